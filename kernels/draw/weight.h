// Weights, and which ids a draw keeps.
//
// Masses are sums of integers, which have no order: any tiling on any machine gives the same sum. A
// weight is at most 2^40 and a row has at most 2^18 ids, so that a sum stays below 2^59. Exp is
// monotone, so weights fall along the order of ranks, and each rule, hence their conjunction, keeps
// a prefix of that order.
#pragma once

#include <cstdint>

#include "kernels/draw/host_device.h"
#include "kernels/draw/math.h"
#include "kernels/draw/params.h"

namespace tandem::kernels {

inline constexpr uint64_t kMaxWeight = uint64_t{1} << 40;

// round(exponential * 2^40), halves up, for exponential in [0, 1].
//
// In two digits of 20 bits, so that only 32-bit conversions are needed, which vectorise everywhere.
// Every operation is exact.
TANDEM_HD uint64_t FixedWeight(float exponential) {
  constexpr float kDigit = 1048576.0f;     // 2^20
  constexpr uint32_t kHalf = 0x3F000000u;  // bits of 0.5
  const float scaled = exponential * kDigit;
  const int32_t high = static_cast<int32_t>(scaled);
  const float rest = (scaled - static_cast<float>(high)) * kDigit;
  const int32_t low = static_cast<int32_t>(rest);
  const float fraction = rest - static_cast<float>(low);
  const uint32_t rounds_down = NegativeMask(static_cast<int32_t>(FloatBits(fraction) - kHalf));
  const uint32_t rounded = static_cast<uint32_t>(low) + (1u & ~rounds_down);
  return (static_cast<uint64_t>(static_cast<uint32_t>(high)) << 20) + rounded;
}

// w = round(exp(s) * 2^40), for s <= 0.
TANDEM_HD uint64_t DrawWeight(float s) { return FixedWeight(Exp(s)); }

struct Product128 {
  uint64_t high;
  uint64_t low;
};

// The full product, by 32-bit halves (no 128-bit type on every compiler that builds this).
TANDEM_HD Product128 Multiply128(uint64_t a, uint64_t b) {
  const uint64_t a_low = a & 0xFFFFFFFFu, a_high = a >> 32;
  const uint64_t b_low = b & 0xFFFFFFFFu, b_high = b >> 32;
  const uint64_t low = a_low * b_low;
  const uint64_t middle = a_high * b_low + (low >> 32);
  const uint64_t middle2 = a_low * b_high + (middle & 0xFFFFFFFFu);
  return {a_high * b_high + (middle >> 32) + (middle2 >> 32),
          (middle2 << 32) | (low & 0xFFFFFFFFu)};
}

TANDEM_HD bool PassesTopK(int32_t top_k, int32_t rank) { return top_k <= 0 || rank < top_k; }

// mass_above * 2^32 < top_p_fixed * total, in 128 bits. total is the mass that top_k keeps.
TANDEM_HD bool PassesTopP(uint64_t top_p_fixed, uint64_t mass_above, uint64_t total) {
  if (top_p_fixed >= kTopPOff) return true;
  const Product128 right = Multiply128(top_p_fixed, total);
  const uint64_t left_high = mass_above >> 32;
  const uint64_t left_low = mass_above << 32;
  return left_high < right.high || (left_high == right.high && left_low < right.low);
}

TANDEM_HD bool PassesMinP(uint64_t min_p_weight, uint64_t weight) { return weight >= min_p_weight; }

// Whether the draw keeps the id of this rank, mass above and weight. top_k_weight is RowSummary's.
// Rank 0 is always kept.
TANDEM_HD bool Keeps(const DrawParams& params, uint64_t top_k_weight, int32_t rank,
                     uint64_t mass_above, uint64_t weight) {
  return rank == 0 || (PassesTopK(params.top_k, rank) &&
                       PassesTopP(params.top_p_fixed, mass_above, top_k_weight) &&
                       PassesMinP(params.min_p_weight, weight));
}

}  // namespace tandem::kernels
