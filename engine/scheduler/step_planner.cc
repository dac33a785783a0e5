#include "engine/scheduler/step_planner.h"

#include <algorithm>

#include "engine/base/check.h"

namespace tandem {

StepPlanner::StepPlanner(int32_t step_tokens) : step_tokens_(step_tokens) {
  TANDEM_CHECK(step_tokens >= 1) << "step_tokens " << step_tokens;
}

std::span<const PlannedRows> StepPlanner::Plan(std::span<const RunnableSequence> runnable) {
  decodes_.clear();
  prefills_.clear();
  plan_.clear();
  for (const RunnableSequence& sequence : runnable) {
    TANDEM_CHECK(sequence.num_rows >= 1)
        << "slot " << sequence.slot << " has " << sequence.num_rows << " rows";
    (sequence.num_rows == 1 ? decodes_ : prefills_).push_back(sequence);
  }
  const auto turn = [this](const RunnableSequence& sequence) {
    return std::pair(sequence.slot < next_slot_, sequence.slot);
  };
  std::sort(decodes_.begin(), decodes_.end(),
            [&](const auto& a, const auto& b) { return turn(a) < turn(b); });
  std::sort(prefills_.begin(), prefills_.end(),
            [](const auto& a, const auto& b) { return a.age < b.age; });

  const bool prefill_waits = !prefills_.empty();
  const int32_t kept_for_prefill =
      prefill_waits && prefill_was_left_out_ ? std::max(1, step_tokens_ / 2) : 0;
  const int32_t num_decodes = std::min<int32_t>(decodes_.size(), step_tokens_ - kept_for_prefill);
  for (int32_t i = 0; i < num_decodes; ++i) plan_.push_back({decodes_[i].slot, 1});
  if (num_decodes < static_cast<int32_t>(decodes_.size())) {
    next_slot_ = decodes_[num_decodes].slot;
  }
  int32_t room = step_tokens_ - num_decodes;
  prefill_was_left_out_ = prefill_waits && room == 0;
  for (const RunnableSequence& sequence : prefills_) {
    if (room == 0) break;
    const int32_t num_rows = std::min(room, sequence.num_rows);
    plan_.push_back({sequence.slot, num_rows});
    room -= num_rows;
  }
  return plan_;
}

}  // namespace tandem
