#include "engine/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/base/check.h"

namespace tandem {
namespace {

double Llama3(const RopeScaling& scaling, double frequency) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const double turns = scaling.original_context / wavelength;
  if (turns < scaling.low_freq_factor) return frequency / scaling.factor;
  if (turns > scaling.high_freq_factor) return frequency;
  const double smooth =
      (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1.0 - smooth) * frequency / scaling.factor + smooth * frequency;
}

// The pair index, not rounded, whose frequency makes `turns` turns within the original context.
double YarnPair(const ModelConfig& config, double turns) {
  return config.rotary_dim *
         std::log(config.rope_scaling.original_context / (turns * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(config.rope_base));
}

void Yarn(const ModelConfig& config, RopeFrequencies& out) {
  const RopeScaling& scaling = config.rope_scaling;
  // Pairs up to low keep their frequency, pairs from high on are divided, between them a linear
  // ramp.
  const double low = std::max(std::floor(YarnPair(config, scaling.beta_fast)), 0.0);
  double high = std::min(std::ceil(YarnPair(config, scaling.beta_slow)), config.rotary_dim - 1.0);
  if (high <= low) high = low + 0.001;
  for (size_t i = 0; i < out.inverse.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    out.inverse[i] = (1.0 - ramp) * out.inverse[i] + ramp * out.inverse[i] / scaling.factor;
  }
  out.attention_factor = scaling.factor <= 1.0 ? 1.0 : 0.1 * std::log(scaling.factor) + 1.0;
}

}  // namespace

RopeFrequencies ComputeRopeFrequencies(const ModelConfig& config) {
  const RopeScaling& scaling = config.rope_scaling;
  const auto num_pairs = static_cast<size_t>(config.rotary_dim / 2);
  TANDEM_CHECK(config.rotary_dim > 0 && config.rotary_dim % 2 == 0) << config.rotary_dim;
  TANDEM_CHECK(scaling.freq_factors.empty() || scaling.freq_factors.size() == num_pairs)
      << scaling.freq_factors.size() << " factors for " << num_pairs << " pairs";
  RopeFrequencies out;
  out.inverse.resize(num_pairs);
  for (size_t i = 0; i < num_pairs; ++i) {
    out.inverse[i] = std::pow(config.rope_base, -2.0 * static_cast<double>(i) / config.rotary_dim);
  }
  switch (scaling.kind) {
    case RopeScaling::Kind::kNone:
      break;
    case RopeScaling::Kind::kLinear:
      for (double& frequency : out.inverse) frequency /= scaling.factor;
      break;
    case RopeScaling::Kind::kLlama3:
      for (double& frequency : out.inverse) frequency = Llama3(scaling, frequency);
      break;
    case RopeScaling::Kind::kYarn:
      Yarn(config, out);
      break;
  }
  for (size_t i = 0; i < scaling.freq_factors.size(); ++i) {
    out.inverse[i] /= double{scaling.freq_factors[i]};
  }
  return out;
}

void FillRopeTables(const RopeFrequencies& frequencies, int32_t first_position,
                    int32_t num_positions, float* cos, float* sin) {
  const size_t num_pairs = frequencies.inverse.size();
  for (int32_t row = 0; row < num_positions; ++row) {
    const double position = static_cast<double>(first_position) + row;
    for (size_t i = 0; i < num_pairs; ++i) {
      const double angle = position * frequencies.inverse[i];
      const size_t index = static_cast<size_t>(row) * num_pairs + i;
      cos[index] = static_cast<float>(std::cos(angle) * frequencies.attention_factor);
      sin[index] = static_cast<float>(std::sin(angle) * frequencies.attention_factor);
    }
  }
}

}  // namespace tandem
