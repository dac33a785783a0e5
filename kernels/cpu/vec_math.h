// Elementary functions on the lanes of simd.h, for the forward pass. (The draw has its own,
// bit-exact ones in kernels/draw.) A NaN stays a NaN.
#pragma once

#include "kernels/cpu/simd.h"

namespace tandem::kernels::cpu::TANDEM_CPU_LEVEL {

// e^x for x <= 0, relative error below 2^-22; 0 below -87. x = n ln 2 + r, |r| <= ln 2 / 2, and e^r
// = 1 + r + r^2 q(r) with q the minimax polynomial of kernels/draw/math.h.
TANDEM_SIMD F Exp(F x) {
  const F lowest = Set1(-87.0f);
  const F clamped = Max(lowest, x);
  const I n = Round(Mul(clamped, Set1(1.44269504f)));
  const F n_float = ToFloat(n);
  F r = Fma(n_float, Set1(-0.693359375f), clamped);  // 355 / 512
  r = Fma(n_float, Set1(2.12194440e-4f), r);
  F q = Set1(1.39506576e-3f);
  q = Fma(q, r, Set1(8.36898501e-3f));
  q = Fma(q, r, Set1(4.16662033e-2f));
  q = Fma(q, r, Set1(1.66665180e-1f));
  q = Fma(q, r, Set1(5.00000010e-1f));
  const F exp_r = Add(Set1(1.0f), Fma(Mul(r, r), q, r));
  const F two_to_n = FromBits(ShiftLeft23(AddI(n, SetI(127))));
  return Select(Less(x, lowest), Zero(), Mul(exp_r, two_to_n));
}

// tanh(x) = sign(x) (1 - e) / (1 + e), e = exp(-2 |x|); absolute error below 2^-23.
TANDEM_SIMD F Tanh(F x) {
  const F e = Exp(Mul(Set1(-2.0f), Abs(x)));
  const F magnitude = Div(Sub(Set1(1.0f), e), Add(Set1(1.0f), e));
  return Select(Less(x, Zero()), Sub(Zero(), magnitude), magnitude);
}

// erf(x), absolute error below 3e-7: Abramowitz and Stegun, Handbook of Mathematical Functions,
// 7.1.26.
TANDEM_SIMD F Erf(F x) {
  const F z = Abs(x);
  const F t = Div(Set1(1.0f), Fma(Set1(0.3275911f), z, Set1(1.0f)));
  F p = Set1(1.061405429f);
  p = Fma(p, t, Set1(-1.453152027f));
  p = Fma(p, t, Set1(1.421413741f));
  p = Fma(p, t, Set1(-0.284496736f));
  p = Fma(p, t, Set1(0.254829592f));
  const F e = Exp(Mul(Sub(Zero(), z), z));
  const F magnitude = Sub(Set1(1.0f), Mul(Mul(p, t), e));
  return Select(Less(x, Zero()), Sub(Zero(), magnitude), magnitude);
}

// x / (1 + exp(-x)), without overflow on either side.
TANDEM_SIMD F Silu(F x) {
  const F e = Exp(Sub(Zero(), Abs(x)));
  const F numerator = Select(Less(x, Zero()), e, Set1(1.0f));
  return Div(Mul(x, numerator), Add(Set1(1.0f), e));
}

TANDEM_SIMD F GeluTanh(F x) {
  const F cube = Mul(Mul(x, x), x);
  const F inner = Mul(Set1(0.797884561f), Fma(Set1(0.044715f), cube, x));  // sqrt(2 / pi)
  return Mul(Mul(Set1(0.5f), x), Add(Set1(1.0f), Tanh(inner)));
}

TANDEM_SIMD F GeluErf(F x) {
  return Mul(Mul(Set1(0.5f), x), Add(Set1(1.0f), Erf(Mul(x, Set1(0.707106781f)))));
}

}  // namespace tandem::kernels::cpu::TANDEM_CPU_LEVEL
