// Which rows make the next step: decode rows first, then prefill.
//
// Decode rows that do not all fit: one row for each sequence, then further rows, both in the order
// of slots from where the last such step ended. So every sequence has its turn, whatever its
// priority.
//
// Prefill: the room is shared among the streams that have some, by water-filling: equal shares, and
// what a stream does not need goes to the others; rows that cannot be shared evenly rotate. Within
// a stream a higher priority goes first, then the oldest.
//
// Progress: a step whose decode rows leave no room for prefill that waits is followed by one that
// keeps max(1, min(max_prefill_rows, step_tokens / 2)) rows for prefill.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tandem {

// A sequence with rows to run.
struct RunnableSequence {
  int32_t slot = 0;
  int64_t stream = 0;
  int32_t priority = 0;
  int64_t age = 0;          // smaller is older; distinct
  int32_t num_rows = 0;     // >= 1
  bool is_prefill = false;  // rows of a prompt; else decode rows: a few, run together if they fit
};

struct PlannedRows {
  int32_t slot = 0;
  int32_t num_rows = 0;  // the first of the sequence's rows, >= 1
};

class StepPlanner final {
 public:
  // REQUIRES step_tokens >= 1.
  explicit StepPlanner(int32_t step_tokens);

  // At most step_tokens rows in all, each slot at most once, decode rows before prefill; valid
  // until the next call. Empty iff nothing is runnable. max_prefill_rows: the most prefill rows of
  // a step that has decode rows as well.
  // REQUIRES slots that rise, rows >= 1, max_prefill_rows >= 1.
  // O(n) for n decode sequences, O(m log m) for m prefills; allocates only while either grows.
  std::span<const PlannedRows> Plan(std::span<const RunnableSequence> runnable,
                                    int32_t max_prefill_rows);

 private:
  struct StreamShare {
    int64_t stream = 0;
    int64_t demand = 0;  // rows
    int64_t share = 0;   // rows, <= demand
    int32_t begin = 0;   // of its sequences in prefills_
    int32_t end = 0;
  };

  void PlanDecodes(int64_t num_rows, int32_t room);
  void PlanPrefills(int32_t room);
  void ShareRoom(int32_t room);

  int32_t step_tokens_;
  int32_t next_slot_ = 0;    // decode rows that do not all fit are taken from this slot on
  int64_t next_stream_ = 0;  // rows that are left over go to this stream on
  bool prefill_was_left_out_ = false;
  std::vector<const RunnableSequence*> decodes_;   // scratch
  std::vector<const RunnableSequence*> prefills_;  // scratch
  std::vector<StreamShare> shares_;                // scratch
  std::vector<StreamShare*> by_demand_;            // scratch
  std::vector<PlannedRows> plan_;
};

}  // namespace tandem
