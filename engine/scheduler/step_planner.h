// Which rows make the next step. Decode rows first, one for each sequence that waits for one, then
// chunks of prefill, the oldest sequence first, until the step is full.
//
// Progress: where decode rows do not all fit, the next step begins with those left out. A step
// whose decode rows leave no room for prefill that waits is followed by one that gives prefill half
// of its rows (at least one).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tandem {

// A sequence with rows to run. One row is a decode row, more are a prefill.
struct RunnableSequence {
  int32_t slot = 0;      // distinct
  int64_t age = 0;       // smaller is older; distinct
  int32_t num_rows = 0;  // >= 1
};

struct PlannedRows {
  int32_t slot = 0;
  int32_t num_rows = 0;  // the first of the sequence's rows, >= 1
};

class StepPlanner final {
 public:
  // REQUIRES step_tokens >= 1.
  explicit StepPlanner(int32_t step_tokens);

  // At most step_tokens rows in all, each slot at most once; valid until the next call. Empty iff
  // nothing is runnable.
  std::span<const PlannedRows> Plan(std::span<const RunnableSequence> runnable);

 private:
  int32_t step_tokens_;
  int32_t next_slot_ = 0;  // decode rows are taken from this slot on, then from 0
  bool prefill_was_left_out_ = false;
  std::vector<RunnableSequence> decodes_;   // scratch
  std::vector<RunnableSequence> prefills_;  // scratch
  std::vector<PlannedRows> plan_;
};

}  // namespace tandem
