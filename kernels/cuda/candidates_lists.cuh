// The lists of a row, each by one block: selected, sorted and written with ranks and masses of 0,
// to which CountKernel adds; -1 stands where a raw rank is not asked for.
#pragma once

#include <cstdint>

#include "kernels/cuda/candidates_row.cuh"
#include "kernels/cuda/candidates_select.cuh"
#include "kernels/draw/edit.h"
#include "kernels/draw/weight.h"
#include "kernels/ops.h"

namespace tandem::kernels::cuda {

// Everything that SelectKernel knows of its row.
struct Selection {
  const CandidatesArgs& args;
  const Scratch& scratch;
  int32_t index;
  RowContext row;
  ChunkPart whole;
  SelectShared& shared;

  __device__ const float* Values(ColumnKind kind) const {
    if (kind == kRaw) return row.logits;
    return (kind == kAdjusted ? scratch.adjusted : scratch.perturbed) +
           int64_t{index} * scratch.num_chunks * kChunkIds;
  }
  __device__ Column ColumnOf(ColumnKind kind) const {
    const int32_t vocab_size = args.slots.vocab_size;
    return {Values(kind), MaximaOf(scratch, index, kind), vocab_size,
            (vocab_size + kGroupIds - 1) / kGroupIds};
  }
};

// Sum of the weights of the first top_k ids, for thread 0. The keys in shared are the num_sorted
// first.
__device__ inline uint64_t TopKWeight(const Selection& in, int32_t top_k, int32_t num_sorted,
                                      float row_max) {
  __shared__ uint64_t warp_sums[kSelectWarps];
  const DrawParams& params = *in.row.params;
  const auto weight_of = [&](uint64_t key) {
    return DrawWeight(ScaledLogit(OrderKeyValue(key), row_max, params));
  };
  uint64_t sum = 0;
  if (top_k <= num_sorted) {
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < top_k; i += kSelectThreads) {
      sum += weight_of(in.shared.keys[i]);
    }
  } else {
    const IdSource source = SourceOf(in.ColumnOf(kAdjusted), top_k, in.shared);
    const uint64_t threshold = Threshold(source, top_k, 0, in.shared);
    source.ForEach(threshold, [&](uint64_t key) { sum += key >= threshold ? weight_of(key) : 0; });
  }
  return BlockSum(sum, warp_sums, kSelectThreads);
}

__device__ inline void SelectTop(const Selection& in) {
  const CandidatesArgs& args = in.args;
  const DrawParams& params = *in.row.params;
  const int32_t in_row = in.whole.num_in_row;
  const int32_t num_top = min(min(params.num_top, args.max_top), in_row);
  const int32_t top_k = params.top_k > 0 && params.top_k < in_row ? params.top_k : 0;
  const int32_t num_sorted = top_k <= kMaxTop ? max(num_top, top_k) : num_top;
  LargestKeys(in.ColumnOf(kAdjusted), num_sorted, in.shared);
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < num_top; i += kSelectThreads) {
    const int32_t id = OrderKeyId(in.shared.keys[i]);
    args.top[int64_t{in.index} * args.max_top + i] = {
        id, in.row.logits[id], in.Values(kAdjusted)[id], params.want_raw ? 0 : -1};
  }
  const float row_max = RowMax(in.scratch, in.index, in.whole);
  const uint64_t total_weight = WholeWeights(in.scratch, in.index).total;
  uint64_t top_k_weight = total_weight;
  if (top_k > 0) top_k_weight = TopKWeight(in, top_k, num_sorted, row_max);
  if (threadIdx.x != 0) return;
  RowSummary& summary = args.summary[in.index];
  summary.num_top = num_top;
  summary.num_in_row = in_row;
  summary.row_max = row_max;
  summary.total_weight = total_weight;
  summary.top_k_weight = top_k_weight;
}

__device__ inline void SelectPerturbed(const Selection& in) {
  const CandidatesArgs& args = in.args;
  const DrawParams& params = *in.row.params;
  const int32_t in_row = in.whole.num_in_row;
  const int32_t num_perturbed = min(min(params.num_perturbed, args.max_perturbed), in_row);
  // With the one that is next, where there is one.
  LargestKeys(in.ColumnOf(kPerturbed), min(num_perturbed + 1, in_row), in.shared);
  const float* values = in.Values(kPerturbed);
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < num_perturbed; i += kSelectThreads) {
    const int32_t id = OrderKeyId(in.shared.keys[i]);
    args.perturbed[int64_t{in.index} * args.max_perturbed + i] = {
        id, in.row.logits[id], in.Values(kAdjusted)[id], values[id], 0, params.want_raw ? 0 : -1,
        0};
  }
  if (threadIdx.x != 0) return;
  RowSummary& summary = args.summary[in.index];
  summary.num_perturbed = num_perturbed;
  summary.next_perturbed =
      num_perturbed < in_row ? values[OrderKeyId(in.shared.keys[num_perturbed])] : MinusInfinity();
}

__device__ inline void SelectRaw(const Selection& in) {
  const CandidatesArgs& args = in.args;
  const SlotState& slots = args.slots;
  const DrawParams& params = *in.row.params;
  if (!params.want_raw) return;
  const int32_t num_raw_top =
      args.raw_top != nullptr ? min(min(params.num_raw_top, kMaxRawTop), slots.vocab_size) : 0;
  LargestKeys(in.ColumnOf(kRaw), num_raw_top, in.shared);
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < num_raw_top; i += kSelectThreads) {
    const int32_t id = OrderKeyId(in.shared.keys[i]);
    args.raw_top[int64_t{in.index} * kMaxRawTop + i] = {id, in.row.logits[id], i};
  }
  int32_t num_reported = 0;
  if (args.reported != nullptr && slots.report_ids != nullptr) {
    num_reported = min(slots.num_report_ids[in.row.slot], kMaxReported);
  }
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < num_reported; i += kSelectThreads) {
    const int32_t id = slots.report_ids[int64_t{in.row.slot} * slots.max_report_ids + i];
    const bool exists = id >= 0 && id < slots.vocab_size;
    args.reported[int64_t{in.index} * kMaxReported + i] = {
        id, exists ? in.row.logits[id] : MinusInfinity(), 0};
  }
  const uint64_t raw_total = WholeWeights(in.scratch, in.index).raw_total;
  if (threadIdx.x != 0) return;
  if (args.next != nullptr) {
    const int32_t id = slots.tokens[int64_t{in.row.slot} * slots.context_length + in.row.position];
    const bool exists = id >= 0 && id < slots.vocab_size;
    args.next[in.index] = {id, exists ? in.row.logits[id] : MinusInfinity(), 0};
  }
  RowSummary& summary = args.summary[in.index];
  summary.num_raw_top = num_raw_top;
  summary.num_reported = num_reported;
  summary.raw_max = in.row.logits[OrderKeyId(in.whole.raw_max_key)];
  summary.raw_total = raw_total;
}

}  // namespace tandem::kernels::cuda
