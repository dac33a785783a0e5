// exp and log in plain fp32 operations, each rounded once to nearest even, with no library call, no
// fused multiply-add and no branch that depends on data: the same bits on every host and device,
// and loops over them vectorise.
//
// REQUIRES of the compiler: no contraction (-ffp-contract=off, -fmad=false), no fast-math, no
// flushing of subnormals.
//
// Measured against double (tests/kernels/draw/math_test.cc asserts it):
//   Exp     relative error at most 2^-23 for x in [-87, 0], monotone over every fp32 x <= 0
//   Log     relative error at most 2^-23 for x in [2^-126, 2^127]
//   Log1p   relative error at most 2^-22 for x in [-(1 - 2^-24), -2^-33]
#pragma once

#include <cstdint>

#include "kernels/draw/host_device.h"

namespace tandem::kernels {

// e^x for x <= 0. Below -87 the result is 0: every weight is 0 from exp(-28.4) = 2^-41 down. A NaN
// gives 0.
//
// x = n ln 2 + r with |r| <= ln 2 / 2; ln 2 = kLn2High + kLn2Low, where n * kLn2High and x - n *
// kLn2High are exact, so that r is a monotone function of x for each n. e^r = 1 + (r + r^2 q(r));
// the last two additions carry the value, and rounding is monotone. q is the minimax polynomial of
// (e^r - 1 - r) / r^2 (Remez), relative error 2^-28.
TANDEM_HD float Exp(float x) {
  constexpr uint32_t kSignBit = 0x80000000u;
  constexpr uint32_t kZeroBelow = 0x42AE0000u;  // bits of 87
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0.693359375f;  // 355 / 512
  constexpr float kLn2Low = -2.12194440e-4f;
  const uint32_t magnitude = FloatBits(x) & ~kSignBit;
  const uint32_t is_zero = NegativeMask(static_cast<int32_t>(kZeroBelow - magnitude));
  const float clamped = BitsFloat(SelectBits(is_zero, kZeroBelow, magnitude) | kSignBit);
  const int32_t n = static_cast<int32_t>(clamped * kLog2E - 0.5f);  // truncation rounds to nearest
  const float n_float = static_cast<float>(n);
  const float r = (clamped - n_float * kLn2High) - n_float * kLn2Low;
  float q = 1.39506576e-3f;
  q = q * r + 8.36898501e-3f;
  q = q * r + 4.16662033e-2f;
  q = q * r + 1.66665180e-1f;
  q = q * r + 5.00000010e-1f;
  const float exp_r = 1.0f + (r + (r * r) * q);
  const uint32_t scale = static_cast<uint32_t>(n + 127) << 23;  // bits of 2^n, n in [-126, 0]
  return exp_r * BitsFloat(scale & ~is_zero);
}

// exponent * ln 2 + log(1 + f), for f in [sqrt(1/2) - 1, sqrt(2) - 1]: log(1 + f) = f - f^2 / 2 +
// f^3 p(f) with p minimax (Remez), relative error 2^-27. The terms are added smallest first.
TANDEM_HD float LogOfParts(float exponent, float f) {
  constexpr float kLn2High = 0.693359375f;
  constexpr float kLn2Low = -2.12194440e-4f;
  const float f2 = f * f;
  float p = -7.85966638e-2f;
  p = p * f + 1.28816194e-1f;
  p = p * f - 1.31287200e-1f;
  p = p * f + 1.41811949e-1f;
  p = p * f - 1.66245583e-1f;
  p = p * f + 2.00022862e-1f;
  p = p * f - 2.50008103e-1f;
  p = p * f + 3.33333167e-1f;
  float tail = (f * f2) * p;
  tail = tail + exponent * kLn2Low;
  tail = tail - 0.5f * f2;
  return exponent * kLn2High + (f + tail);
}

// Natural logarithm of a positive normal number.
//
// x = 2^e m with m in [sqrt(1/2), sqrt(2)): adding the distance from sqrt(1/2) to 1 carries into
// the exponent field exactly where m would reach sqrt(2).
TANDEM_HD float Log(float x) {
  constexpr uint32_t kOne = 0x3F800000u;
  constexpr uint32_t kSqrtHalf = 0x3F3504F3u;
  const uint32_t shifted = FloatBits(x) + (kOne - kSqrtHalf);
  const float exponent = static_cast<float>(static_cast<int32_t>(shifted >> 23) - 127);
  const float m = BitsFloat((shifted & 0x007FFFFFu) + kSqrtHalf);
  return LogOfParts(exponent, m - 1.0f);
}

// log(1 + x) for x in [-(1 - 2^-24), 0].
//
// Near 0 the fraction is x itself, exact; further out 1 + x is rounded once, and its logarithm is
// large enough to bear it.
TANDEM_HD float Log1p(float x) {
  constexpr uint32_t kOne = 0x3F800000u;
  constexpr uint32_t kSqrtHalf = 0x3F3504F3u;
  const float y = 1.0f + x;
  const uint32_t shifted = FloatBits(y) + (kOne - kSqrtHalf);
  const int32_t exponent = static_cast<int32_t>(shifted >> 23) - 127;
  const float f = BitsFloat((shifted & 0x007FFFFFu) + kSqrtHalf) - 1.0f;
  const uint32_t is_far = NegativeMask(exponent);  // y <= 1, so that the exponent is at most 0
  const float exact_f = BitsFloat(SelectBits(is_far, FloatBits(f), FloatBits(x)));
  return LogOfParts(static_cast<float>(exponent), exact_f);
}

}  // namespace tandem::kernels
