// The kernels of one SIMD level, as a table of functions: what is compiled once per level and
// chosen at run time. Plain data only: these headers are included by sources built for wider
// instruction sets than the rest of the program (see simd.h).
//
// Every function is single-threaded and works on the piece it is given; pieces are cut by CpuOps.
// What is written for a row does not depend on how they were cut.
#pragma once

#include <stdint.h>

#include "kernels/draw/params.h"
#include "kernels/tensor.h"

namespace tandem::kernels::cpu {

// y = x W^T for one packed part (packed.h). Per output: within a block of 32 the sum over k ascends
// from 0 by fused multiply-adds with the stored integers (or fp values); then
//   total = fma(d, sum, total), and for Q4_1 total = fma(m, sum of the block's x, total);
//   total = total + sum for F32, F16, BF16
// over ascending blocks from 0; then bias and the previous y, one addition each.
struct ProductTask {
  DType dtype = DType::kF32;
  int32_t rows = 0;
  int32_t num_tiles = 0;
  int32_t num_blocks = 0;
  int32_t cols = 0;
  int64_t tile_bytes = 0;
  int64_t scales_offset = 0;
  const uint8_t* tiles = nullptr;
  const float* x = nullptr;  // [n, x_stride]
  int64_t x_stride = 0;
  const float* block_sums = nullptr;  // [n, num_blocks], kQ4_1 only (BlockSums)
  const float* bias = nullptr;        // [rows] or null
  bool accumulate = false;            // y += instead of y =
  float* y = nullptr;                 // [n, y_stride]
  int64_t y_stride = 0;
};

// How RMSNorm treats one row (ops.h Norm).
struct NormTask {
  const float* weight = nullptr;
  int32_t width = 0;
  float epsilon = 0.0f;
  float offset = 0.0f;
};

// Attention of query rows of one slot at consecutive positions, for one kv head and its group.
struct AttentionTask {
  const float* keys = nullptr;  // of this layer and kv head, page 0: [pages, page_stride]
  const float* values = nullptr;
  int64_t page_stride = 0;         // elements from one page to the next
  const int32_t* pages = nullptr;  // the slot's page table
  int32_t head_dim = 0;            // a multiple of 8, <= kMaxHeadDim
  int32_t group = 0;               // query heads of this kv head
  int32_t window = 0;
  float scale = 0.0f;
  float soft_cap = 0.0f;
  const float* q = nullptr;  // first row's first head of the group; heads follow each other
  float* out = nullptr;
  int64_t row_stride = 0;  // elements from one row to the next, of q and out
};
inline constexpr int32_t kMaxHeadDim = 512;
inline constexpr int32_t kMaxGroup = 64;

// A number of ids and the sum of their weights.
struct Above {
  int32_t count;
  uint64_t mass;
};
inline constexpr int32_t kMaximaBlock = 32;

struct Kernels {
  // Rows [row_begin, row_end) of x times tiles [tile_begin, tile_end).
  void (*product)(const ProductTask& task, int32_t tile_begin, int32_t tile_end, int32_t row_begin,
                  int32_t row_end);
  // sums[b] of the blocks of one row: pairs 16 apart, then ReduceAdd.
  void (*block_sums)(const float* x, int32_t cols, float* sums);
  // RMSNorm of one row, out may be x.
  void (*norm)(const NormTask& task, const float* x, float* out);
  // out[i] = kind(gate[i]) * up[i]; kind as GateKind.
  void (*gate)(int32_t kind, const float* gate, const float* up, int32_t count, float* out);
  // x[i] = cap * tanh(x[i] * scale / cap), or x[i] * scale where cap is 0.
  void (*scale_and_cap)(float scale, float cap, float* x, int32_t count);
  // num_rows rows from first_position on.
  void (*attention)(const AttentionTask& task, int32_t first_position, int32_t num_rows);

  // Passes over a piece of a logits row. An id outside the row has the adjusted value -infinity.
  // adjusted = the clamped raw logits; whether all are finite.
  bool (*clamp_row)(const float* raw, int32_t count, float* adjusted);
  // -infinity where the id's bit is 0. The piece starts at bit 0 of bits[0].
  void (*exclude_ids)(const uint32_t* bits, int32_t count, float* adjusted);
  // maxima[j] = the largest of values [kMaximaBlock j, kMaximaBlock (j + 1)); returns the largest
  // of all, -infinity for none.
  float (*block_maxima)(const float* values, int32_t count, float* maxima);
  int32_t (*count_in_row)(const float* adjusted, int32_t count);
  // perturbed and weights of ids first_id (a multiple of 64) on; returns the weights' sum.
  uint64_t (*score_ids)(const DrawParams& params, int32_t position, float row_max, int32_t first_id,
                        int32_t count, const float* adjusted, float* perturbed, uint64_t* weights);
  uint64_t (*total_raw_weight)(const float* raw, int32_t count, float raw_max);
  // What of values [count] stands before (limit, index ties_before): larger values, and equal ones
  // of a lower index. maxima: block_maxima of values. weights may be null: no mass.
  Above (*count_above)(const float* values, const uint64_t* weights, const float* maxima,
                       int32_t count, float limit, int32_t ties_before);
};

namespace portable {
const Kernels& Table();
}
namespace avx2 {
const Kernels& Table();
}
namespace avx512 {
const Kernels& Table();
}

}  // namespace tandem::kernels::cpu
