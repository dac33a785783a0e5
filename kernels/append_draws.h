// What Candidates does to the slots where args.advance is set (ops.h), for backends on the host.
#pragma once

#include <cstdint>

#include "kernels/ops.h"

namespace tandem::kernels {

// REQUIRES the summaries of all logits rows.
inline void AppendDraws(const CandidatesArgs& args) {
  const StepRows& rows = args.rows;
  const SlotState& slots = args.slots;
  const int32_t n = args.num_logits_rows;
  const auto is_of = [&](int32_t index, int32_t slot) {
    return index < n && rows.token[args.logits_rows[index]] != kIdleToken &&
           rows.slot[args.logits_rows[index]] == slot;
  };
  for (int32_t i = 0; i < n; ++i) {
    if (rows.token[args.logits_rows[i]] == kIdleToken) continue;
    const int32_t slot = rows.slot[args.logits_rows[i]];
    while (is_of(i + 1, slot) && rows.token[args.logits_rows[i + 1]] == args.summary[i].drawn) ++i;
    const int32_t position = rows.row_position[args.logits_rows[i]] + 1;
    if (position < slots.context_length) {
      const int32_t drawn = args.summary[i].drawn;
      slots.tokens[int64_t{slot} * slots.context_length + position] =
          drawn >= 0 ? drawn : kIdleToken;
      slots.num_tokens[slot] = position + 1;
    }
    while (is_of(i + 1, slot)) ++i;
  }
}

}  // namespace tandem::kernels
