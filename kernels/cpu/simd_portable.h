// The lanes of simd.h as four vectors of the compiler's own 128-bit type: SSE2, NEON or scalar
// code, as the target has it. Fma rounds the product and the sum.
#pragma once

#include <math.h>
#include <string.h>

namespace tandem::kernels::cpu::portable {

typedef float F4 __attribute__((vector_size(16)));
typedef int32_t I4 __attribute__((vector_size(16)));

struct F {
  F4 v[4];
};
struct I {
  I4 v[4];
};
struct B {
  I4 v[4];  // 0 or -1
};

#define TANDEM_QUARTERS(result, expression)                                \
  do {                                                                     \
    TANDEM_UNROLL for (int j = 0; j < 4; ++j)(result).v[j] = (expression); \
  } while (false)

TANDEM_SIMD F Set1(float x) {
  F r;
  TANDEM_QUARTERS(r, (F4{x, x, x, x}));
  return r;
}
TANDEM_SIMD F Zero() { return Set1(0.0f); }
TANDEM_SIMD F Load(const float* p) {
  F r;
  memcpy(&r, p, sizeof(r));
  return r;
}
TANDEM_SIMD void Store(float* p, F v) { memcpy(p, &v, sizeof(v)); }
TANDEM_SIMD F LoadFirst(const float* p, int n) {
  float lanes[16];
  for (int i = 0; i < 16; ++i) lanes[i] = i < n ? p[i] : 0.0f;
  return Load(lanes);
}
TANDEM_SIMD void StoreFirst(float* p, int n, F v) {
  float lanes[16];
  Store(lanes, v);
  for (int i = 0; i < n; ++i) p[i] = lanes[i];
}

TANDEM_SIMD F Add(F a, F b) {
  TANDEM_QUARTERS(a, a.v[j] + b.v[j]);
  return a;
}
TANDEM_SIMD F Sub(F a, F b) {
  TANDEM_QUARTERS(a, a.v[j] - b.v[j]);
  return a;
}
TANDEM_SIMD F Mul(F a, F b) {
  TANDEM_QUARTERS(a, a.v[j] * b.v[j]);
  return a;
}
TANDEM_SIMD F Div(F a, F b) {
  TANDEM_QUARTERS(a, a.v[j] / b.v[j]);
  return a;
}
TANDEM_SIMD F Fma(F a, F b, F c) {
  TANDEM_QUARTERS(a, a.v[j] * b.v[j] + c.v[j]);
  return a;
}
TANDEM_SIMD F Sqrt(F a) {
  TANDEM_QUARTERS(a, (F4{sqrtf(a.v[j][0]), sqrtf(a.v[j][1]), sqrtf(a.v[j][2]), sqrtf(a.v[j][3])}));
  return a;
}
TANDEM_SIMD B Less(F a, F b) {
  B r;
  TANDEM_QUARTERS(r, a.v[j] < b.v[j]);
  return r;
}
TANDEM_SIMD F Select(B which, F if_true, F if_false) {
  F r;
  TANDEM_QUARTERS(r, (F4)((which.v[j] & (I4)if_true.v[j]) | (~which.v[j] & (I4)if_false.v[j])));
  return r;
}
TANDEM_SIMD F Max(F a, F b) { return Select(Less(b, a), a, b); }

TANDEM_SIMD I SetI(int32_t x) {
  I r;
  TANDEM_QUARTERS(r, (I4{x, x, x, x}));
  return r;
}
TANDEM_SIMD I LoadI(const void* p) {
  I r;
  memcpy(&r, p, sizeof(r));
  return r;
}
TANDEM_SIMD I AddI(I a, I b) {
  TANDEM_QUARTERS(a, a.v[j] + b.v[j]);
  return a;
}
TANDEM_SIMD I ShiftLeft23(I a) {
  TANDEM_QUARTERS(a, a.v[j] << 23);
  return a;
}
TANDEM_SIMD B LessInt(I a, I b) {
  B r;
  TANDEM_QUARTERS(r, a.v[j] < b.v[j]);
  return r;
}
TANDEM_SIMD B FirstLanes(int n) {
  return LessInt(I{{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}}, SetI(n));
}
TANDEM_SIMD F ToFloat(I a) {
  F r;
  TANDEM_QUARTERS(r, __builtin_convertvector(a.v[j], F4));
  return r;
}
TANDEM_SIMD I Bits(F a) {
  I r;
  TANDEM_QUARTERS(r, (I4)a.v[j]);
  return r;
}
TANDEM_SIMD F FromBits(I a) {
  F r;
  TANDEM_QUARTERS(r, (F4)a.v[j]);
  return r;
}
// Adding 1.5 * 2^23 leaves the rounded integer in the low bits of the significand.
TANDEM_SIMD I Round(F a) {
  const F shifted = Add(a, Set1(12582912.0f));
  I r;
  TANDEM_QUARTERS(r, (I4)shifted.v[j] - 0x4B400000);
  return r;
}
TANDEM_SIMD F Abs(F a) {
  TANDEM_QUARTERS(a, (F4)((I4)a.v[j] & 0x7FFFFFFF));
  return a;
}

TANDEM_SIMD I LoadUint16(const uint16_t* p) {
  I r;
  TANDEM_QUARTERS(r, (I4{p[4 * j], p[4 * j + 1], p[4 * j + 2], p[4 * j + 3]}));
  return r;
}
// A half's exponent and significand, moved up, are an fp32 number that is 2^-112 times the half's
// value, subnormals included; infinities and NaNs get their exponent back.
TANDEM_SIMD F LoadHalf(const uint16_t* p) {
  const I halves = LoadUint16(p);
  const F4 scale = F4{} + 0x1p112f;
  F r;
  TANDEM_UNROLL for (int j = 0; j < 4; ++j) {
    const I4 magnitude = halves.v[j] & 0x7FFF;
    const I4 value = (I4)((F4)(magnitude << 13) * scale);
    const I4 special = (magnitude >= 0x7C00) & 0x7F800000;
    r.v[j] = (F4)(value | special | ((halves.v[j] & 0x8000) << 16));
  }
  return r;
}
TANDEM_SIMD F LoadBf16(const uint16_t* p) {
  const I words = LoadUint16(p);
  F r;
  TANDEM_QUARTERS(r, (F4)(words.v[j] << 16));
  return r;
}
TANDEM_SIMD F LoadInt8(const int8_t* p) {
  I r;
  TANDEM_QUARTERS(r, (I4{p[4 * j], p[4 * j + 1], p[4 * j + 2], p[4 * j + 3]}));
  return ToFloat(r);
}

using NibbleValues = int32_t;  // the offset
TANDEM_SIMD NibbleValues NibbleTable(int32_t offset) { return offset; }
template <int kShift>
TANDEM_SIMD F Nibbles(I words, NibbleValues table) {
  TANDEM_QUARTERS(words, ((words.v[j] >> kShift) & 15) - table);
  return ToFloat(words);
}

TANDEM_SIMD float ReduceAdd(F v) {
  const F4 four = (v.v[0] + v.v[2]) + (v.v[1] + v.v[3]);
  return (four[0] + four[2]) + (four[1] + four[3]);
}
TANDEM_SIMD float ReduceMax(F v) {
  float lanes[16];
  Store(lanes, v);
  float largest = lanes[0];
  for (int i = 1; i < 16; ++i) largest = lanes[i] > largest ? lanes[i] : largest;
  return largest;
}
TANDEM_SIMD F ReduceAdd16(const F v[16]) {
  float lanes[16];
  for (int i = 0; i < 16; ++i) lanes[i] = ReduceAdd(v[i]);
  return Load(lanes);
}

#undef TANDEM_QUARTERS

}  // namespace tandem::kernels::cpu::portable
