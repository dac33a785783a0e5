#include "kernels/reference/layer_math.h"

#include <cmath>

#include "kernels/check.h"
#include "kernels/reference/dequantize.h"

namespace tandem::kernels {

float RoundToAct(ActDType act, float value) {
  return act == ActDType::kBF16 ? BFloat16ToFloat(FloatToBFloat16(value)) : value;
}

void ApplyNorm(const Norm& norm, ActDType rounding, const float* x, float* out) {
  KERNELS_REQUIRE(norm.width > 0 && norm.epsilon > 0.0f, "width %d, epsilon %g", norm.width,
                  norm.epsilon);
  const double mean = Dot(x, x, norm.width) / norm.width;
  const double inverse = 1.0 / std::sqrt(mean + norm.epsilon);
  for (int32_t i = 0; i < norm.width; ++i) {
    float normed = static_cast<float>(x[i] * inverse);
    if (norm.order == NormOrder::kRoundThenScale) normed = RoundToAct(rounding, normed);
    out[i] = RoundToAct(rounding, normed * (norm.offset + norm.weight[i]));
  }
}

void ApplyRope(const Rope& rope, int32_t position, float* head) {
  KERNELS_REQUIRE(position >= 0 && position < rope.context_length, "position %d of %d", position,
                  rope.context_length);
  const int32_t half = rope.rotary_dim / 2;
  const float* cos = rope.cos + int64_t{position} * half;
  const float* sin = rope.sin + int64_t{position} * half;
  for (int32_t i = 0; i < half; ++i) {
    const bool interleaved = rope.pairs == RopePairs::kInterleaved;
    float& first = head[interleaved ? 2 * i : i];
    float& second = head[interleaved ? 2 * i + 1 : i + half];
    const double a = first;
    const double b = second;
    first = static_cast<float>(a * cos[i] - b * sin[i]);
    second = static_cast<float>(b * cos[i] + a * sin[i]);
  }
}

float Gated(GateKind kind, float gate, float up) {
  const double g = gate;
  double activated = 0.0;
  switch (kind) {
    case GateKind::kSilu:
      activated = g / (1.0 + std::exp(-g));
      break;
    case GateKind::kGeluTanh: {
      constexpr double kSqrt2OverPi = 0.79788456080286535588;
      activated = 0.5 * g * (1.0 + std::tanh(kSqrt2OverPi * (g + 0.044715 * g * g * g)));
      break;
    }
    case GateKind::kGeluErf: {
      constexpr double kSqrtHalf = 0.70710678118654752440;
      activated = 0.5 * g * (1.0 + std::erf(g * kSqrtHalf));
      break;
    }
  }
  return static_cast<float>(activated * up);
}

double SoftCap(double x, float cap) { return cap == 0.0f ? x : cap * std::tanh(x / cap); }

double Dot(const float* a, const float* b, int32_t count) {
  double sum = 0.0;
  for (int32_t i = 0; i < count; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

void Product(const Weight& weight, const float* bias, const float* x, float* out) {
  const float* rows = weight.storage.as<float>();
  for (int32_t row = 0; row < weight.rows; ++row) {
    const double sum = Dot(rows + int64_t{row} * weight.cols, x, weight.cols);
    out[row] = static_cast<float>(sum);
    if (bias != nullptr) out[row] += bias[row];
  }
}

}  // namespace tandem::kernels
