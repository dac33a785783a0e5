// What the kernels of candidates.cu share: the scratch of a call, what is known of a row, and
// reductions over a warp. Every sum is of integers, so that no order of threads can show.
#pragma once

#include <cstdint>

#include "kernels/draw/order.h"
#include "kernels/ops.h"

namespace tandem::kernels::cuda {

inline constexpr int32_t kWarp = 32;
inline constexpr uint32_t kAllLanes = 0xFFFFFFFFu;
// Ids of the vocabulary that one block works on, and those whose largest value is kept.
inline constexpr int32_t kChunkIds = 1024;
inline constexpr int32_t kGroupIds = kWarp;
inline constexpr int32_t kChunkGroups = kChunkIds / kGroupIds;
inline constexpr int32_t kNoId = 0x7FFFFFFF;
inline constexpr int32_t kChunkThreads = 256;  // of a block that works on a chunk

// Three columns of values over the ids of a row.
enum ColumnKind : int32_t { kAdjusted, kPerturbed, kRaw, kNumColumns };

// What one chunk adds to its row. A key is an OrderKey, 0 where there is no id.
struct ChunkPart {
  uint64_t max_key;         // of the adjusted logits inside the row
  uint64_t raw_max_key;     // of the raw logits
  int32_t num_in_row;       // ids inside the row
  int32_t first_nonfinite;  // lowest id whose raw logit is not finite, or kNoId
};
struct ChunkWeights {
  uint64_t total;
  uint64_t raw_total;  // 0 unless want_raw
};

// The scratch of a call. Columns of a row have num_chunks * kChunkIds places; those past the
// vocabulary hold -infinity.
struct Scratch {
  float* adjusted;   // [rows, num_chunks * kChunkIds], -infinity outside the row
  float* perturbed;  // the same
  uint32_t* maxima;  // [rows, kNumColumns, num_chunks * kChunkGroups] OrderedBits of the largest
  ChunkPart* parts;  // [rows, num_chunks], out of AdjustKernel
  ChunkWeights* weights;  // [rows, num_chunks], out of ScoreKernel
  int32_t num_chunks;
};

// A logits row of the call.
struct RowContext {
  bool idle;  // if set, nothing below is
  int32_t slot;
  int32_t position;  // of the token to be decided
  const DrawParams* params;
  const float* logits;  // [vocab_size]
};

__device__ inline RowContext ContextOf(const CandidatesArgs& args, int32_t index) {
  RowContext row = {};
  const int32_t step_row = args.logits_rows[index];
  row.idle = args.rows.token[step_row] == kIdleToken;
  if (row.idle) return row;
  row.slot = args.rows.slot[step_row];
  row.position = args.rows.row_position[step_row] + 1;
  row.params = args.slots.params + row.slot;
  row.logits = args.logits + int64_t{index} * args.slots.vocab_size;
  return row;
}

__device__ inline float MinusInfinity() { return __uint_as_float(0xFF800000u); }

__device__ inline bool IsFinite(float value) {
  constexpr uint32_t kExponent = 0x7F800000u;
  return (__float_as_uint(value) & kExponent) != kExponent;
}

// The upper half of OrderKey: unsigned integers in the order of the values, never 0.
__device__ inline uint32_t OrderedBits(float value) {
  return static_cast<uint32_t>(OrderKey(value, 0) >> 32);
}

__device__ inline uint64_t WarpMax(uint64_t value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const uint64_t other = __shfl_xor_sync(kAllLanes, value, offset);
    value = other > value ? other : value;
  }
  return value;
}

__device__ inline uint64_t WarpSum(uint64_t value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

// Sum over a block of num_threads, for thread 0. warp_sums: shared memory, one for each warp.
__device__ inline uint64_t BlockSum(uint64_t value, uint64_t* warp_sums, int32_t num_threads) {
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  value = WarpSum(value);
  __syncthreads();
  if (thread % kWarp == 0) warp_sums[thread / kWarp] = value;
  __syncthreads();
  uint64_t sum = 0;
  if (thread == 0) {
    for (int32_t warp = 0; warp < num_threads / kWarp; ++warp) sum += warp_sums[warp];
  }
  return sum;
}

// All parts of a row in one, computed by every warp for itself.
__device__ inline ChunkPart WholeRow(const Scratch& scratch, int32_t index) {
  const ChunkPart* parts = scratch.parts + int64_t{index} * scratch.num_chunks;
  ChunkPart whole = {0, 0, 0, kNoId};
  for (int32_t i = static_cast<int32_t>(threadIdx.x) % kWarp; i < scratch.num_chunks; i += kWarp) {
    const ChunkPart part = parts[i];
    whole.max_key = part.max_key > whole.max_key ? part.max_key : whole.max_key;
    whole.raw_max_key = part.raw_max_key > whole.raw_max_key ? part.raw_max_key : whole.raw_max_key;
    whole.num_in_row += part.num_in_row;
    if (part.first_nonfinite < whole.first_nonfinite) whole.first_nonfinite = part.first_nonfinite;
  }
  whole.max_key = WarpMax(whole.max_key);
  whole.raw_max_key = WarpMax(whole.raw_max_key);
  whole.num_in_row = __reduce_add_sync(kAllLanes, whole.num_in_row);
  whole.first_nonfinite = __reduce_min_sync(kAllLanes, whole.first_nonfinite);
  return whole;
}

// The same for the weights.
__device__ inline ChunkWeights WholeWeights(const Scratch& scratch, int32_t index) {
  const ChunkWeights* weights = scratch.weights + int64_t{index} * scratch.num_chunks;
  ChunkWeights whole = {0, 0};
  for (int32_t i = static_cast<int32_t>(threadIdx.x) % kWarp; i < scratch.num_chunks; i += kWarp) {
    whole.total += weights[i].total;
    whole.raw_total += weights[i].raw_total;
  }
  return {WarpSum(whole.total), WarpSum(whole.raw_total)};
}

__device__ inline uint32_t* MaximaOf(const Scratch& scratch, int32_t index, ColumnKind column) {
  return scratch.maxima +
         (int64_t{index} * kNumColumns + column) * scratch.num_chunks * kChunkGroups;
}

// The largest adjusted logit as it stands in the row (the key has lost the sign of a zero);
// -infinity where no id is inside the row.
__device__ inline float RowMax(const Scratch& scratch, int32_t index, const ChunkPart& whole) {
  if (whole.num_in_row == 0) return MinusInfinity();
  return scratch
      .adjusted[int64_t{index} * scratch.num_chunks * kChunkIds + OrderKeyId(whole.max_key)];
}

}  // namespace tandem::kernels::cuda
