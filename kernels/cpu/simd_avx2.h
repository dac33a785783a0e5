// The lanes of simd.h as two 256-bit registers. Needs AVX2, FMA and F16C.
#pragma once

#include <immintrin.h>

namespace tandem::kernels::cpu::avx2 {

struct F {
  __m256 low, high;
};
struct I {
  __m256i low, high;
};
struct B {
  __m256 low, high;  // all bits of a lane
};

TANDEM_SIMD F Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
TANDEM_SIMD F Set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
TANDEM_SIMD F Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
TANDEM_SIMD void Store(float* p, F v) {
  _mm256_storeu_ps(p, v.low);
  _mm256_storeu_ps(p + 8, v.high);
}
TANDEM_SIMD I SetI(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
TANDEM_SIMD I LaneNumbers() {
  return {_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
          _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)};
}
TANDEM_SIMD B LessInt(I a, I b) {
  return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(b.low, a.low)),
          _mm256_castsi256_ps(_mm256_cmpgt_epi32(b.high, a.high))};
}
TANDEM_SIMD B FirstLanes(int n) { return LessInt(LaneNumbers(), SetI(n)); }
TANDEM_SIMD F LoadFirst(const float* p, int n) {
  const B mask = FirstLanes(n);
  return {_mm256_maskload_ps(p, _mm256_castps_si256(mask.low)),
          _mm256_maskload_ps(p + 8, _mm256_castps_si256(mask.high))};
}
TANDEM_SIMD void StoreFirst(float* p, int n, F v) {
  const B mask = FirstLanes(n);
  _mm256_maskstore_ps(p, _mm256_castps_si256(mask.low), v.low);
  _mm256_maskstore_ps(p + 8, _mm256_castps_si256(mask.high), v.high);
}

TANDEM_SIMD __m128i Load128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
TANDEM_SIMD F LoadHalf(const uint16_t* p) {
  return {_mm256_cvtph_ps(Load128(p)), _mm256_cvtph_ps(Load128(p + 8))};
}
TANDEM_SIMD F LoadBf16(const uint16_t* p) {
  const __m256i low = _mm256_slli_epi32(_mm256_cvtepu16_epi32(Load128(p)), 16);
  const __m256i high = _mm256_slli_epi32(_mm256_cvtepu16_epi32(Load128(p + 8)), 16);
  return {_mm256_castsi256_ps(low), _mm256_castsi256_ps(high)};
}
TANDEM_SIMD F LoadInt8(const int8_t* p) {
  const __m128i bytes = Load128(p);
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}

TANDEM_SIMD F Add(F a, F b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
TANDEM_SIMD F Sub(F a, F b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
TANDEM_SIMD F Mul(F a, F b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
TANDEM_SIMD F Div(F a, F b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
TANDEM_SIMD F Fma(F a, F b, F c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
TANDEM_SIMD F Max(F a, F b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
TANDEM_SIMD F Sqrt(F a) { return {_mm256_sqrt_ps(a.low), _mm256_sqrt_ps(a.high)}; }
TANDEM_SIMD B Less(F a, F b) {
  return {_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ)};
}
TANDEM_SIMD F Select(B which, F if_true, F if_false) {
  return {_mm256_blendv_ps(if_false.low, if_true.low, which.low),
          _mm256_blendv_ps(if_false.high, if_true.high, which.high)};
}

TANDEM_SIMD I LoadI(const void* p) {
  const __m256i* words = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(words), _mm256_loadu_si256(words + 1)};
}
TANDEM_SIMD I AddI(I a, I b) {
  return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
TANDEM_SIMD I ShiftLeft23(I a) {
  return {_mm256_slli_epi32(a.low, 23), _mm256_slli_epi32(a.high, 23)};
}
TANDEM_SIMD I Round(F a) { return {_mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(a.high)}; }
TANDEM_SIMD F ToFloat(I a) { return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)}; }
TANDEM_SIMD I Bits(F a) { return {_mm256_castps_si256(a.low), _mm256_castps_si256(a.high)}; }
TANDEM_SIMD F FromBits(I a) { return {_mm256_castsi256_ps(a.low), _mm256_castsi256_ps(a.high)}; }
TANDEM_SIMD F Abs(F a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}

using NibbleValues = __m256i;  // the offset
TANDEM_SIMD NibbleValues NibbleTable(int32_t offset) { return _mm256_set1_epi32(offset); }
template <int kShift>
TANDEM_SIMD F Nibbles(I words, NibbleValues table) {
  const __m256i fifteen = _mm256_set1_epi32(15);
  const __m256i low = _mm256_and_si256(_mm256_srli_epi32(words.low, kShift), fifteen);
  const __m256i high = _mm256_and_si256(_mm256_srli_epi32(words.high, kShift), fifteen);
  return {_mm256_cvtepi32_ps(_mm256_sub_epi32(low, table)),
          _mm256_cvtepi32_ps(_mm256_sub_epi32(high, table))};
}

TANDEM_SIMD float ReduceAdd(F v) {
  const __m256 eight = _mm256_add_ps(v.low, v.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
TANDEM_SIMD float ReduceMax(F v) {
  const __m256 eight = _mm256_max_ps(v.low, v.high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// Sums of eight vectors whose halves are added already: distances 4, 2 and 1.
TANDEM_SIMD __m256 ReduceAdd8(const __m256 v[8]) {
  __m256 fours[4];
  TANDEM_UNROLL for (int i = 0; i < 4; ++i) {
    fours[i] = _mm256_add_ps(_mm256_permute2f128_ps(v[i], v[i + 4], 0x20),
                             _mm256_permute2f128_ps(v[i], v[i + 4], 0x31));
  }
  const __m256 even = _mm256_add_ps(_mm256_shuffle_ps(fours[0], fours[1], 0x44),
                                    _mm256_shuffle_ps(fours[0], fours[1], 0xEE));
  const __m256 odd = _mm256_add_ps(_mm256_shuffle_ps(fours[2], fours[3], 0x44),
                                   _mm256_shuffle_ps(fours[2], fours[3], 0xEE));
  return _mm256_add_ps(_mm256_shuffle_ps(even, odd, 0x88), _mm256_shuffle_ps(even, odd, 0xDD));
}
TANDEM_SIMD F ReduceAdd16(const F v[16]) {
  __m256 eights[16];
  TANDEM_UNROLL for (int i = 0; i < 16; ++i) eights[i] = _mm256_add_ps(v[i].low, v[i].high);
  return {ReduceAdd8(eights), ReduceAdd8(eights + 8)};
}

}  // namespace tandem::kernels::cpu::avx2
