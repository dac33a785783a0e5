#include "engine/sampling/parameters.h"

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"
#include "engine/base/status.h"
#include "kernels/draw/candidates.h"

namespace tandem {
namespace {

constexpr float kMinTemperature = 1e-5f;
constexpr float kMaxTemperature = 100.0f;
constexpr float kMaxAbsBias = 1e4f;

// NaN is in no range.
absl::Status InRange(const char* field, float value, float low, float high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return InvalidArgument(field, " is ", value, ": it must be ", low, " to ", high);
}

absl::Status InRange(const char* field, int32_t value, int32_t low, int32_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return InvalidArgument(field, " is ", value, ": it must be ", low, " to ", high);
}

// Ids of the vocabulary, distinct, at most `limit`.
absl::Status ValidIds(const char* field, std::vector<int32_t> ids, int32_t limit,
                      int32_t vocab_size) {
  if (ids.size() > static_cast<size_t>(limit)) {
    return InvalidArgument(field, " has ", ids.size(), " ids: at most ", limit);
  }
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size) {
      return InvalidArgument(field, " has id ", id, ": ids are 0 to ", vocab_size - 1);
    }
  }
  std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(ids.begin(), ids.end());
  if (twice != ids.end()) return InvalidArgument(field, " has id ", *twice, " twice");
  return absl::OkStatus();
}

absl::Status ValidBias(const SamplingParameters& parameters, int32_t vocab_size) {
  std::vector<int32_t> ids;
  ids.reserve(parameters.logit_bias.size());
  for (const auto& [id, bias] : parameters.logit_bias) {
    ids.push_back(id);
    if (!(std::abs(bias) <= kMaxAbsBias)) {
      return InvalidArgument("logit_bias of id ", id, " is ", bias, ": it must be ", -kMaxAbsBias,
                             " to ", kMaxAbsBias);
    }
  }
  return ValidIds("logit_bias", std::move(ids), kMaxBias, vocab_size);
}

absl::Status ValidRawPart(const SamplingParameters& parameters, int32_t vocab_size) {
  RETURN_IF_ERROR(InRange("num_raw_top", parameters.num_raw_top, 0, kernels::kMaxRawTop));
  RETURN_IF_ERROR(ValidIds("report_ids", parameters.report_ids, kernels::kMaxReported, vocab_size));
  if (parameters.want_raw) return absl::OkStatus();
  if (parameters.num_raw_top > 0) {
    return InvalidArgument("num_raw_top is ", parameters.num_raw_top, ": it needs want_raw");
  }
  if (!parameters.report_ids.empty()) {
    return InvalidArgument("report_ids has ", parameters.report_ids.size(),
                           " ids: it needs want_raw");
  }
  return absl::OkStatus();
}

// round(share * 2^32), halves up, for share in [0, 1]: the product is exact in double.
uint64_t Fixed32(float share) {
  return static_cast<uint64_t>(static_cast<double>(share) * 4294967296.0 + 0.5);
}

}  // namespace

absl::Status Validate(const SamplingParameters& parameters, int32_t vocab_size) {
  TANDEM_CHECK(vocab_size > 0) << "vocab_size " << vocab_size;
  const SamplingParameters& p = parameters;
  if (p.temperature != 0.0f &&
      !(p.temperature >= kMinTemperature && p.temperature <= kMaxTemperature)) {
    return InvalidArgument("temperature is ", p.temperature, ": it must be 0, or ", kMinTemperature,
                           " to ", kMaxTemperature);
  }
  if (p.top_k < -1) {
    return InvalidArgument("top_k is ", p.top_k, ": it must be at least 0, or -1 for off");
  }
  RETURN_IF_ERROR(InRange("top_p", p.top_p, 0.0f, 1.0f));
  RETURN_IF_ERROR(InRange("min_p", p.min_p, 0.0f, 1.0f));
  RETURN_IF_ERROR(InRange("repetition_penalty", p.repetition_penalty, 0.01f, 100.0f));
  RETURN_IF_ERROR(InRange("presence_penalty", p.presence_penalty, -100.0f, 100.0f));
  RETURN_IF_ERROR(InRange("frequency_penalty", p.frequency_penalty, -100.0f, 100.0f));
  RETURN_IF_ERROR(InRange("repetition_window", p.repetition_window, 0, kMaxWindow));
  RETURN_IF_ERROR(InRange("presence_window", p.presence_window, 0, kMaxWindow));
  RETURN_IF_ERROR(InRange("frequency_window", p.frequency_window, 0, kMaxWindow));
  RETURN_IF_ERROR(InRange("min_tokens", p.min_tokens, 0, kMaxWindow));
  RETURN_IF_ERROR(InRange("num_top", p.num_top, 1, kernels::kMaxTop));
  RETURN_IF_ERROR(InRange("num_perturbed", p.num_perturbed, 1, kernels::kMaxPerturbed));
  RETURN_IF_ERROR(ValidBias(p, vocab_size));
  RETURN_IF_ERROR(ValidIds("allowed_ids", p.allowed_ids, vocab_size, vocab_size));
  RETURN_IF_ERROR(ValidIds("banned_ids", p.banned_ids, vocab_size, vocab_size));
  RETURN_IF_ERROR(ValidIds("end_ids", p.end_ids, kMaxEndIds, vocab_size));
  return ValidRawPart(p, vocab_size);
}

kernels::DrawParams ToDrawParams(const SamplingParameters& parameters, uint32_t choice,
                                 int32_t prompt_length, int32_t vocab_size) {
  kernels::DrawParams out;
  out.seed = parameters.seed;
  out.choice = choice;
  out.greedy = parameters.temperature == 0.0f;
  out.inverse_temperature = out.greedy ? 1.0f : 1.0f / parameters.temperature;
  out.top_k = parameters.top_k <= 0 ? 0 : std::min(parameters.top_k, vocab_size);
  out.top_p_fixed = Fixed32(parameters.top_p);
  out.min_p_weight = Fixed32(parameters.min_p) << 8;
  out.repetition_penalty = parameters.repetition_penalty;
  // + 0: a penalty of -0 is a penalty of 0, on both sides of the wire.
  out.presence_penalty = parameters.presence_penalty + 0.0f;
  out.frequency_penalty = parameters.frequency_penalty + 0.0f;
  out.repetition_window = parameters.repetition_window;
  out.presence_window = parameters.presence_window;
  out.frequency_window = parameters.frequency_window;
  out.prompt_length = prompt_length;
  out.min_tokens = parameters.min_tokens;
  out.num_top = parameters.num_top;
  out.num_perturbed = parameters.num_perturbed;
  out.num_raw_top = parameters.num_raw_top;
  out.want_raw = parameters.want_raw;
  return out;
}

std::vector<uint32_t> AllowedBits(const SamplingParameters& parameters, int32_t vocab_size) {
  if (parameters.allowed_ids.empty() && parameters.banned_ids.empty()) return {};
  const bool all = parameters.allowed_ids.empty();
  std::vector<uint32_t> bits((static_cast<size_t>(vocab_size) + 31) / 32, all ? ~0u : 0u);
  if (all && vocab_size % 32 != 0) bits.back() = (1u << (vocab_size % 32)) - 1;
  for (const int32_t id : parameters.allowed_ids) bits[id / 32] |= 1u << (id % 32);
  for (const int32_t id : parameters.banned_ids) bits[id / 32] &= ~(1u << (id % 32));
  return bits;
}

}  // namespace tandem
