#include "engine/scheduler/step_planner.h"

#include <algorithm>
#include <tuple>

#include "engine/base/check.h"
#include "engine/base/planted_bugs.h"

namespace tandem {

StepPlanner::StepPlanner(int32_t step_tokens) : step_tokens_(step_tokens) {
  TANDEM_CHECK(step_tokens >= 1) << "step_tokens " << step_tokens;
}

std::span<const PlannedRows> StepPlanner::Plan(std::span<const RunnableSequence> runnable,
                                               int32_t max_prefill_rows) {
  TANDEM_CHECK(max_prefill_rows >= 1) << "max_prefill_rows " << max_prefill_rows;
  decodes_.clear();
  prefills_.clear();
  plan_.clear();
  int64_t decode_rows = 0;
  int64_t last_slot = INT64_MIN;
  for (const RunnableSequence& sequence : runnable) {
    TANDEM_CHECK(sequence.slot > last_slot) << "slot " << sequence.slot << " after " << last_slot;
    TANDEM_CHECK(sequence.num_rows >= 1)
        << "slot " << sequence.slot << " has " << sequence.num_rows << " rows";
    last_slot = sequence.slot;
    if (sequence.is_prefill) {
      prefills_.push_back(&sequence);
    } else {
      decodes_.push_back(&sequence);
      decode_rows += sequence.num_rows;
    }
  }

  const bool keeps_room =
      !prefills_.empty() && prefill_was_left_out_ && !Planted(Bug::kStarvePrefill);
  const int32_t kept = keeps_room ? std::max(1, std::min(max_prefill_rows, step_tokens_ / 2)) : 0;
  const int32_t decode_room = step_tokens_ - kept;
  PlanDecodes(decode_rows, decode_room);
  const int32_t planned = static_cast<int32_t>(std::min<int64_t>(decode_rows, decode_room));
  int32_t room = step_tokens_ - planned;
  if (planned > 0) room = std::min(room, max_prefill_rows);
  prefill_was_left_out_ = !prefills_.empty() && room == 0;
  if (!prefills_.empty() && room > 0) PlanPrefills(room);
  return plan_;
}

// num_rows: of all decodes_.
void StepPlanner::PlanDecodes(int64_t num_rows, int32_t room) {
  if (num_rows <= room) {
    for (const RunnableSequence* sequence : decodes_) {
      plan_.push_back({sequence->slot, sequence->num_rows});
    }
    return;
  }
  const int32_t count = static_cast<int32_t>(decodes_.size());
  const auto at = std::lower_bound(
      decodes_.begin(), decodes_.end(), next_slot_,
      [](const RunnableSequence* sequence, int32_t slot) { return sequence->slot < slot; });
  const int32_t from = static_cast<int32_t>(at - decodes_.begin());
  const auto turn = [&](int32_t i) { return decodes_[(int64_t{from} + i) % count]; };
  const int32_t num_planned = std::min(count, room);
  for (int32_t i = 0; i < num_planned; ++i) plan_.push_back({turn(i)->slot, 1});
  room -= num_planned;
  int32_t served = num_planned < count ? num_planned : 0;
  for (int32_t i = 0; i < count && room > 0; ++i) {
    const int32_t more = std::min(room, turn(i)->num_rows - 1);
    plan_[i].num_rows += more;
    room -= more;
    served = i + 1;
  }
  next_slot_ = turn(served)->slot;
}

void StepPlanner::PlanPrefills(int32_t room) {
  std::sort(prefills_.begin(), prefills_.end(),
            [](const RunnableSequence* a, const RunnableSequence* b) {
              return std::tuple(a->stream, b->priority, a->age) <
                     std::tuple(b->stream, a->priority, b->age);
            });
  shares_.clear();
  for (int32_t i = 0; i < static_cast<int32_t>(prefills_.size()); ++i) {
    const int64_t stream = prefills_[i]->stream;
    if (shares_.empty() || shares_.back().stream != stream) {
      shares_.push_back({.stream = stream, .begin = i});
    }
    shares_.back().demand += prefills_[i]->num_rows;
    shares_.back().end = i + 1;
  }
  ShareRoom(room);
  for (const StreamShare& share : shares_) {
    int64_t left = share.share;
    for (int32_t i = share.begin; i < share.end && left > 0; ++i) {
      const int32_t num_rows =
          static_cast<int32_t>(std::min<int64_t>(left, prefills_[i]->num_rows));
      plan_.push_back({prefills_[i]->slot, num_rows});
      left -= num_rows;
    }
  }
}

// Sets the shares of shares_, which is in the order of streams.
void StepPlanner::ShareRoom(int32_t room) {
  by_demand_.clear();
  for (StreamShare& share : shares_) by_demand_.push_back(&share);
  std::sort(by_demand_.begin(), by_demand_.end(),
            [](const StreamShare* a, const StreamShare* b) { return a->demand < b->demand; });
  int64_t left = room;
  int64_t level = 0;
  int64_t num_short = static_cast<int64_t>(by_demand_.size());  // streams that want more than level
  for (const StreamShare* share : by_demand_) {
    level = left / num_short;
    if (share->demand > level) break;
    left -= share->demand;
    --num_short;
  }
  for (StreamShare& share : shares_) share.share = std::min(share.demand, level);
  if (num_short == 0) {
    for (StreamShare& share : shares_) share.share = share.demand;
    return;
  }
  left -= level * num_short;  // fewer rows than streams that are short
  if (left == 0) return;
  const auto first = std::lower_bound(
      shares_.begin(), shares_.end(), next_stream_,
      [](const StreamShare& share, int64_t stream) { return share.stream < stream; });
  const size_t from = static_cast<size_t>(first - shares_.begin());
  for (size_t i = 0; i < shares_.size(); ++i) {
    StreamShare& share = shares_[(from + i) % shares_.size()];
    if (share.share == share.demand) continue;
    if (left == 0) {
      next_stream_ = share.stream;
      return;
    }
    ++share.share;
    --left;
  }
}

}  // namespace tandem
