// The arithmetic of attention on a GPU, one definition for every kernel here. For a row (a query
// token and one of its heads) at position p, whichever rows stand beside it:
//
//   Keys go in tiles of 64 positions and splits of 8 tiles, both aligned to position 0, ascending.
//   score    one chain of mma.sync.m16n8k16 along ascending head_dim, bf16 in, fp32 accumulator
//   s        score, or soft_cap * tanh(score * (scale / soft_cap)) with a cap; -inf where the row
//            may not see the key
//   t        s * c is the exponent to base 2: c = scale * log2 e, or log2 e with a cap
//   In a split, from maximum = -inf, sum = 0, out = 0, for each tile:
//     maximum' = max(maximum, c * largest s of the tile)
//     w        = ex2(maximum - maximum')
//     p        = ex2(fma(s, c, -maximum'))
//     sum      = fma(sum, w, sum of the tile), in four lanes: lane i has the columns 8 j + 2 i and
//                8 j + 2 i + 1, added as pairs, the pairs as a balanced tree over j
//     out      = out * w, then one chain of m16n8k16 along ascending keys with p rounded to bf16
//   The four lanes' sums are added as (0 + 1) + (2 + 3). Splits merge in ascending order into
//   M = -inf, L = 0, O = 0:
//     M' = max(M, maximum), a = ex2(M - M'), b = ex2(maximum - M')
//     L  = fma(sum, b, L * a), O = fma(out, b, O * a)
//   result   fma(O, 1 / L, 0) rounded to bf16
//
// where x - (-inf) stands for x - 0 in every exponent. A tile or split of which the row sees
// nothing leaves its state as it is (w = 1 or the state is empty; a = 1, b = 0), so rows of
// different positions may walk the same tiles. That takes finite V at every key that some row of
// the item sees; keys that none of them sees are never read. The running maximum is that of Milakov
// and Gimelshein ("Online normalizer calculation for softmax", 2018); the tiles are those of Dao et
// al. ("FlashAttention", 2022).
#pragma once

#include <cuda_bf16.h>

#include <cmath>
#include <cstdint>

namespace tandem::kernels::cuda::attention {

inline constexpr int kTileKeys = 64;  // a page
inline constexpr int kSplitTiles = 8;
inline constexpr int kSplitKeys = kTileKeys * kSplitTiles;
inline constexpr int kThreads = 128;
inline constexpr float kLog2E = 1.44269504088896340736f;

__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// What is subtracted from exponents for a maximum; nothing while no key was seen.
__device__ __forceinline__ float Shift(float maximum) {
  return maximum == -INFINITY ? 0.0f : maximum;
}

// Maximum exponent and sum of a row, in a split or of all merged splits.
struct RowState {
  float maximum = -INFINITY;
  float sum = 0.0f;
};

// Takes a tile's largest s into the maximum; returns w.
__device__ __forceinline__ float Advance(RowState& state, float largest, float c) {
  const float maximum = fmaxf(state.maximum, __fmul_rn(largest, c));
  const float weight = Exp2(__fsub_rn(state.maximum, Shift(maximum)));
  state.maximum = maximum;
  return weight;
}

__device__ __forceinline__ float Probability(float s, float c, float shift) {
  return Exp2(__fmaf_rn(s, c, -shift));
}

// Sum of the four lanes of a row: lanes that differ in their two low bits.
__device__ __forceinline__ float AddLanes(float sum) {
  sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 1));
  return __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 2));
}

__device__ __forceinline__ float MaxLanes(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

// Sum of a lane's pairs of a tile: a balanced tree.
__device__ __forceinline__ float AddPairs(const float (&pair)[8]) {
  return __fadd_rn(__fadd_rn(__fadd_rn(pair[0], pair[1]), __fadd_rn(pair[2], pair[3])),
                   __fadd_rn(__fadd_rn(pair[4], pair[5]), __fadd_rn(pair[6], pair[7])));
}

struct MergeWeights {
  float merged;  // a
  float split;   // b
};

__device__ __forceinline__ float MergeValue(float merged, float split, MergeWeights weights) {
  return __fmaf_rn(split, weights.split, __fmul_rn(merged, weights.merged));
}

// Merges a split's maximum and sum (of all lanes) into a row's; the weights are for its values.
__device__ __forceinline__ MergeWeights Merge(RowState& merged, float maximum, float sum) {
  const float largest = fmaxf(merged.maximum, maximum);
  const float shift = Shift(largest);
  const MergeWeights weights = {Exp2(__fsub_rn(merged.maximum, shift)),
                                Exp2(__fsub_rn(maximum, shift))};
  merged.maximum = largest;
  merged.sum = MergeValue(merged.sum, sum, weights);
  return weights;
}

// 1 / L; 0 for a row that saw nothing (an idle row), whose result is 0.
__device__ __forceinline__ float Inverse(float sum) { return sum == 0.0f ? 0.0f : __frcp_rn(sum); }

// Two neighbouring results as they lie in memory. The sum with 0 makes every zero positive.
__device__ __forceinline__ __nv_bfloat162 Result(float x, float y, float inverse) {
  return __floats2bfloat162_rn(__fmaf_rn(x, inverse, 0.0f), __fmaf_rn(y, inverse, 0.0f));
}

__device__ __forceinline__ uint32_t PackBf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// sum += a b, a [16, 16], b [16, 8] by columns, in the fragments of the PTX manual: of sum, lane
// 4 g + i holds columns 2 i, 2 i + 1 of row g in 0, 1 and of row g + 8 in 2, 3.
__device__ __forceinline__ void Mma(float* sum, const uint32_t* a, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8 x 8 matrices from shared memory; lane i gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void LoadMatrices(uint32_t* matrices, const __nv_bfloat16* row) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void LoadTransposed(uint32_t* matrices, const __nv_bfloat16* row) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(address)
               : "memory");
}

// The a operand [16, 16] at column 16 k of a matrix of 16 rows that lie stride elements apart.
__device__ __forceinline__ void LoadA(uint32_t* a, const __nv_bfloat16* matrix, int stride, int k,
                                      int lane) {
  LoadMatrices(a, matrix + (lane & 15) * stride + 16 * k + 8 * (lane >> 4));
}
// The b operands of 16 keys (two of 8: b[0], b[1] and b[2], b[3]) for the scores' step k.
__device__ __forceinline__ void LoadKeys(uint32_t* b, const __nv_bfloat16* keys, int stride, int k,
                                         int lane) {
  const int key = (lane & 7) + 8 * (lane >> 4);
  LoadMatrices(b, keys + key * stride + 16 * k + 8 * ((lane >> 3) & 1));
}
// The b operands of 16 columns (two of 8) from `column` for step k along the keys.
__device__ __forceinline__ void LoadValues(uint32_t* b, const __nv_bfloat16* values, int stride,
                                           int k, int column, int lane) {
  LoadTransposed(b, values + (16 * k + (lane & 15)) * stride + column + 8 * (lane >> 4));
}

}  // namespace tandem::kernels::cuda::attention
