// Ops::CheckFinite for backends whose memory is the host's.
#pragma once

#include <cstdint>

#include "kernels/check_finite.h"
#include "kernels/ops.h"

namespace tandem::kernels {

// act_bytes: of an activation, 4 for fp32, 2 for bf16.
inline void CheckFiniteOnHost(const CheckFiniteArgs& args, int32_t act_bytes) {
  const StepRows& rows = args.rows;
  if (args.first) {
    for (int32_t row = 0; row < rows.num_rows; ++row) args.found[row] = NonFinite{};
  }
  for (int32_t line = 0; line < args.num_lines; ++line) {
    const int32_t row = args.line_rows != nullptr ? args.line_rows[line] : line;
    NonFinite& found = args.found[row];
    const int32_t position = rows.row_position[row];
    if (rows.token[row] == kIdleToken || found.output != CheckedOutput::kNone) continue;
    for (int32_t i = 0; i < args.width; ++i) {
      const int64_t at = int64_t{line} * args.width + i;
      bool is_finite = true;
      if (args.kv != nullptr) {
        const int32_t page =
            args.kv->page_table[int64_t{rows.slot[row]} * args.kv->max_pages_per_slot +
                                position / kPageTokens];
        const int32_t side_width = args.width / 2;
        const int32_t head = i % side_width / args.kv->head_dim;
        is_finite =
            IsFiniteInPool(*args.kv, args.kv->ElementOffset(args.kv_layer, page, i / side_width,
                                                            head, position % kPageTokens) +
                                         i % args.kv->head_dim);
      } else if (args.is_act && act_bytes == 2) {
        is_finite = IsFiniteBF16(static_cast<const uint16_t*>(args.values)[at]);
      } else {
        is_finite = IsFiniteF32(static_cast<const uint32_t*>(args.values)[at]);
      }
      if (is_finite) continue;
      found = {args.output, args.layer, position, i};
      break;
    }
  }
}

}  // namespace tandem::kernels
