// Adjusted logits of a chunk of a row: which ids are outside the row, and the edits of the others.
//
// A block counts the slot's whole history for its own chunk, in shared memory: there is no scratch
// of the vocabulary's size to clear, and no order of additions that could show.
#pragma once

#include <cstdint>

#include "kernels/cuda/candidates_row.cuh"
#include "kernels/draw/edit.h"
#include "kernels/ops.h"

namespace tandem::kernels::cuda {

// The edits of one id in a word: flags, and the number of occurrences that the frequency penalty
// counts in the bits below them.
inline constexpr uint32_t kRepeats = 1u << 31;
inline constexpr uint32_t kIsPresent = 1u << 30;
inline constexpr uint32_t kIsOutside = 1u << 29;
inline constexpr uint32_t kFrequencyMask = kIsOutside - 1;

__device__ inline bool BitIsSet(const uint32_t* bits, int32_t id) {
  return (bits[id / 32] >> (id % 32) & 1u) != 0;
}

// Whether penalties change no logit, not even the sign of a zero.
__device__ inline bool IsNeutral(const DrawParams& params) {
  return params.repetition_penalty == 1.0f && __float_as_uint(params.presence_penalty) == 0 &&
         __float_as_uint(params.frequency_penalty) == 0;
}

// Edits of the ids [first, first + kChunkIds) of a row.
struct ChunkEdits {
  float bias[kChunkIds];
  uint32_t marks[kChunkIds];
};

__device__ inline bool IsInChunk(int32_t id, int32_t first) {
  return id >= first && id < first + kChunkIds;
}

__device__ inline void CountHistory(const SlotState& slots, const RowContext& row, int32_t first,
                                    ChunkEdits& edits) {
  const DrawParams& params = *row.params;
  const int32_t repetition = RepetitionBegin(params, row.position);
  const int32_t presence = PresenceBegin(params, row.position);
  const int32_t frequency = FrequencyBegin(params, row.position);
  const int32_t* tokens = slots.tokens + int64_t{row.slot} * slots.context_length;
  const int32_t begin = min(repetition, min(presence, frequency));
  for (int32_t i = begin + static_cast<int32_t>(threadIdx.x); i < row.position;
       i += kChunkThreads) {
    const int32_t id = tokens[i];
    if (!IsInChunk(id, first)) continue;
    uint32_t* mark = &edits.marks[id - first];
    const uint32_t flags = (i >= repetition ? kRepeats : 0) | (i >= presence ? kIsPresent : 0);
    if (flags != 0) atomicOr(mark, flags);
    if (i >= frequency) atomicAdd(mark, 1u);
  }
}

// The whole block calls it.
__device__ inline void CollectEdits(const SlotState& slots, const RowContext& row, int32_t first,
                                    ChunkEdits& edits) {
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  for (int32_t i = thread; i < kChunkIds; i += kChunkThreads) {
    edits.bias[i] = 0.0f;
    edits.marks[i] = 0;
  }
  __syncthreads();
  const DrawParams& params = *row.params;
  if (slots.bias_ids != nullptr) {
    const int64_t line = int64_t{row.slot} * slots.max_bias;
    const int32_t num_bias = min(slots.num_bias[row.slot], slots.max_bias);
    for (int32_t i = thread; i < num_bias; i += kChunkThreads) {
      const int32_t id = slots.bias_ids[line + i];
      if (IsInChunk(id, first)) edits.bias[id - first] = slots.bias_values[line + i];
    }
  }
  if (slots.end_ids != nullptr && row.position < params.prompt_length + params.min_tokens) {
    const int32_t* end_ids = slots.end_ids + int64_t{row.slot} * slots.max_end_ids;
    const int32_t num_end_ids = min(slots.num_end_ids[row.slot], slots.max_end_ids);
    for (int32_t i = thread; i < num_end_ids; i += kChunkThreads) {
      if (IsInChunk(end_ids[i], first)) atomicOr(&edits.marks[end_ids[i] - first], kIsOutside);
    }
  }
  if (!IsNeutral(params)) CountHistory(slots, row, first, edits);
  __syncthreads();
}

// The adjusted logit of an id of the vocabulary, -infinity outside the row.
__device__ inline float AdjustedOrOutside(float raw, float bias, uint32_t marks, bool is_allowed,
                                          const DrawParams& params) {
  LogitEdit edit;
  edit.bias = bias;
  edit.repetition_count = (marks & kRepeats) != 0 ? 1 : 0;
  edit.presence_count = (marks & kIsPresent) != 0 ? 1 : 0;
  edit.frequency_count = static_cast<int32_t>(marks & kFrequencyMask);
  const bool is_inside = is_allowed && (marks & kIsOutside) == 0;
  return is_inside ? AdjustedLogit(raw, edit, params) : MinusInfinity();
}

}  // namespace tandem::kernels::cuda
