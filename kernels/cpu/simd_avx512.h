// The lanes of simd.h as one 512-bit register. Needs AVX-512 F, BW, DQ, VL.
#pragma once

#include <immintrin.h>

namespace tandem::kernels::cpu::avx512 {

using F = __m512;
using I = __m512i;
using B = __mmask16;

TANDEM_SIMD B FirstLanes(int n) { return static_cast<B>((1u << n) - 1u); }

TANDEM_SIMD F Zero() { return _mm512_setzero_ps(); }
TANDEM_SIMD F Set1(float x) { return _mm512_set1_ps(x); }
TANDEM_SIMD F Load(const float* p) { return _mm512_loadu_ps(p); }
TANDEM_SIMD void Store(float* p, F v) { _mm512_storeu_ps(p, v); }
TANDEM_SIMD F LoadFirst(const float* p, int n) { return _mm512_maskz_loadu_ps(FirstLanes(n), p); }
TANDEM_SIMD void StoreFirst(float* p, int n, F v) { _mm512_mask_storeu_ps(p, FirstLanes(n), v); }

TANDEM_SIMD F LoadHalf(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
TANDEM_SIMD F LoadBf16(const uint16_t* p) {
  const I wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
TANDEM_SIMD F LoadInt8(const int8_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}

TANDEM_SIMD F Add(F a, F b) { return _mm512_add_ps(a, b); }
TANDEM_SIMD F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
TANDEM_SIMD F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
TANDEM_SIMD F Div(F a, F b) { return _mm512_div_ps(a, b); }
TANDEM_SIMD F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
TANDEM_SIMD F Max(F a, F b) { return _mm512_max_ps(a, b); }
TANDEM_SIMD F Sqrt(F a) { return _mm512_sqrt_ps(a); }
TANDEM_SIMD B Less(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
TANDEM_SIMD F Select(B which, F if_true, F if_false) {
  return _mm512_mask_blend_ps(which, if_false, if_true);
}

TANDEM_SIMD I SetI(int32_t x) { return _mm512_set1_epi32(x); }
TANDEM_SIMD I LoadI(const void* p) { return _mm512_loadu_si512(p); }
TANDEM_SIMD I AddI(I a, I b) { return _mm512_add_epi32(a, b); }
TANDEM_SIMD I ShiftLeft23(I a) { return _mm512_slli_epi32(a, 23); }
TANDEM_SIMD B LessInt(I a, I b) { return _mm512_cmplt_epi32_mask(a, b); }
TANDEM_SIMD I Round(F a) { return _mm512_cvtps_epi32(a); }
TANDEM_SIMD F ToFloat(I a) { return _mm512_cvtepi32_ps(a); }
TANDEM_SIMD I Bits(F a) { return _mm512_castps_si512(a); }
TANDEM_SIMD F FromBits(I a) { return _mm512_castsi512_ps(a); }
TANDEM_SIMD F Abs(F a) { return _mm512_abs_ps(a); }

// A nibble indexes its own value: the permute reads the low four bits of a lane and ignores the
// rest, so that neither a mask nor a conversion is needed.
using NibbleValues = __m512;
TANDEM_SIMD NibbleValues NibbleTable(int32_t offset) {
  const I counts = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return _mm512_cvtepi32_ps(_mm512_sub_epi32(counts, _mm512_set1_epi32(offset)));
}
template <int kShift>
TANDEM_SIMD F Nibbles(I words, NibbleValues table) {
  return _mm512_permutexvar_ps(_mm512_srli_epi32(words, kShift), table);
}

TANDEM_SIMD float ReduceAdd(F v) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
TANDEM_SIMD float ReduceMax(F v) { return _mm512_reduce_max_ps(v); }

// Adds the upper half of lanes to the lower one, of two vectors at once, at distances 8, 4, 2
// and 1.
TANDEM_SIMD F FoldEights(F a, F b) {
  return Add(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
}
TANDEM_SIMD F FoldFours(F a, F b) {
  return Add(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
}
TANDEM_SIMD F FoldTwos(F a, F b) {
  return Add(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xEE));
}
TANDEM_SIMD F FoldOnes(F a, F b) {
  return Add(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xDD));
}
TANDEM_SIMD F ReduceAdd16(const F v[16]) {
  // After a fold by eights a register holds the low lanes of v[i] and v[j]; by fours, one 128-bit
  // group each of four vectors. Groups are then transposed as 4 x 4 blocks while being added.
  F eights[8], fours[4];
  TANDEM_UNROLL for (int i = 0; i < 8; ++i) eights[i] = FoldEights(v[i], v[i + 8]);
  // eights[i] = {v[i]: 2 groups, v[i + 8]: 2 groups}
  TANDEM_UNROLL for (int i = 0; i < 4; ++i) fours[i] = FoldFours(eights[i], eights[i + 4]);
  // fours[i] groups: v[i], v[i + 8], v[i + 4], v[i + 12]
  const F even = FoldTwos(fours[0], fours[1]);
  const F odd = FoldTwos(fours[2], fours[3]);
  const F sums = FoldOnes(even, odd);
  // sums, group g: v[0], v[1], v[2], v[3] of the group's base 0, 8, 4, 12
  return _mm512_shuffle_f32x4(sums, sums, 0xD8);
}

}  // namespace tandem::kernels::cpu::avx512
