// The lists and the draw of one logits row, by sorting the row: what every backend's Candidates
// must equal to the bit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/draw/candidates.h"
#include "kernels/ops.h"

namespace tandem::kernels {

struct RowCandidates {
  RowSummary summary{};
  std::vector<TopEntry> top;              // [summary.num_top], in the order of ranks
  std::vector<PerturbedEntry> perturbed;  // [summary.num_perturbed], in the order of the draw
  std::vector<RawEntry> raw_top;          // [summary.num_raw_top], best raw logit first
  std::vector<RawEntry> reported;         // [summary.num_reported], in the order of report_ids
};

// For a row that ran at row_position of a slot; the decision is for row_position + 1. Every pointer
// in slots is host memory. logits [slots.vocab_size]. The slot's tokens are not changed. REQUIRES
// slot in [0, num_slots), row_position in [0, context_length), num_top in [0, kMaxTop],
// num_perturbed in [0, kMaxPerturbed], num_raw_top in [0, kMaxRawTop], distinct bias ids inside the
// vocabulary.
RowCandidates ComputeCandidates(std::span<const float> logits, const SlotState& slots, int32_t slot,
                                int32_t row_position);

// The token that the whole row gives: the definition that lists are held to. -1: no id is inside
// the row, or a raw logit is not finite. Same arguments and REQUIRES.
int32_t DrawFromRow(std::span<const float> logits, const SlotState& slots, int32_t slot,
                    int32_t row_position);

// The raw logit of an id and its rank over the whole vocabulary. REQUIRES id in [0, logits.size()).
RawEntry RawEntryOf(std::span<const float> logits, int32_t id);

// Summary of an idle row, and the start of every other.
RowSummary EmptySummary();

}  // namespace tandem::kernels
