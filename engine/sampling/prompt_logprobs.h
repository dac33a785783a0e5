// What a worker sent for tokens of a prompt, on the host: the raw part of the rows before them.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/draw/candidates.h"

namespace tandem {

// n positions that follow each other. The row of position p is that of the tokens [0, p).
struct PromptLogprobs {
  int32_t position = 0;      // of the first; at least 1, since the first token has no row before it
  int32_t num_raw_top = 0;   // of each position
  int32_t num_reported = 0;  // likewise
  std::vector<kernels::RawEntry> tokens;    // [n] the prompt's own
  std::vector<kernels::RawEntry> raw_top;   // [n, num_raw_top] best raw first
  std::vector<kernels::RawEntry> reported;  // [n, num_reported] in the order of report_ids
  std::vector<float> raw_max;               // [n]
  std::vector<uint64_t> raw_total;          // [n] as RowSummary's

  int32_t size() const { return static_cast<int32_t>(tokens.size()); }
};

}  // namespace tandem
