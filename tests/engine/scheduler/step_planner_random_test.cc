// What holds for every plan, over random sequences that run as planned.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "engine/scheduler/step_planner.h"

namespace tandem::test {
namespace {

constexpr int32_t kSlots = 14;
constexpr int64_t kStreams = 4;

class StepPlannerRandom : public ::testing::TestWithParam<int32_t> {
 protected:
  void Refill(int32_t slot, int64_t age) {
    RunnableSequence& sequence = sequences_[slot];
    sequence.slot = slot;
    sequence.stream = std::min(random_() % kStreams, random_() % kStreams);
    sequence.age = age * kSlots + slot;
    sequence.priority = static_cast<int32_t>(random_() % 2);
    sequence.is_prefill = slot % 2 == 0;
    sequence.num_rows = 1 + static_cast<int32_t>(random_() % (sequence.is_prefill ? 40 : 4));
  }

  std::mt19937 random_{3};
  std::vector<RunnableSequence> sequences_ = std::vector<RunnableSequence>(kSlots);
};

// Prefill rows of a plan, by the definition: shares are equal but for one row and for streams that
// have all they want; within a stream nobody is served before one that goes first and wants more.
void CheckPrefill(const std::vector<RunnableSequence>& runnable, std::map<int32_t, int32_t> rows) {
  std::map<int64_t, int32_t> demand;
  std::map<int64_t, int32_t> share;
  for (const RunnableSequence& sequence : runnable) {
    if (!sequence.is_prefill) continue;
    demand[sequence.stream] += sequence.num_rows;
    share[sequence.stream] += rows[sequence.slot];
  }
  for (const auto& [stream, wanted] : demand) {
    if (share[stream] == wanted) continue;
    for (const auto& [other, other_share] : share) {
      ASSERT_LE(other_share, share[stream] + 1) << "streams " << other << " and " << stream;
    }
  }
  for (const RunnableSequence& a : runnable) {
    for (const RunnableSequence& b : runnable) {
      if (!a.is_prefill || !b.is_prefill || a.stream != b.stream) continue;
      const bool a_first = a.priority != b.priority ? a.priority > b.priority : a.age < b.age;
      if (a_first && rows[a.slot] < a.num_rows) {
        ASSERT_EQ(rows[b.slot], 0) << b.slot << " before " << a.slot;
      }
    }
  }
}

TEST_P(StepPlannerRandom, EveryPlanIsFullFairAndWithinItsBounds) {
  const int32_t step_tokens = GetParam();
  StepPlanner planner(step_tokens);
  for (int32_t slot = 0; slot < kSlots; ++slot) Refill(slot, 0);
  bool was_left_out = false;
  for (int step = 1; step < 4000; ++step) {
    std::vector<RunnableSequence> runnable;
    int32_t decode_wanted = 0;
    int32_t prefill_wanted = 0;
    for (const RunnableSequence& sequence : sequences_) {
      if (random_() % 3 == 0) continue;  // waits for its text tier
      runnable.push_back(sequence);
      (sequence.is_prefill ? prefill_wanted : decode_wanted) += sequence.num_rows;
    }
    const int32_t limit = 1 + static_cast<int32_t>(random_() % 20);
    std::map<int32_t, int32_t> rows;
    int32_t decode_rows = 0;
    int32_t prefill_rows = 0;
    for (const PlannedRows& planned : planner.Plan(runnable, limit)) {
      ASSERT_TRUE(rows.emplace(planned.slot, planned.num_rows).second);
      ASSERT_GE(planned.num_rows, 1);
      ASSERT_LE(planned.num_rows, sequences_[planned.slot].num_rows);
      const bool is_prefill = sequences_[planned.slot].is_prefill;
      ASSERT_TRUE(is_prefill || prefill_rows == 0) << "decode rows come first";
      (is_prefill ? prefill_rows : decode_rows) += planned.num_rows;
    }
    const int32_t kept =
        was_left_out && prefill_wanted > 0 ? std::max(1, std::min(limit, step_tokens / 2)) : 0;
    ASSERT_EQ(decode_rows, std::min(decode_wanted, step_tokens - kept));
    const int32_t room = std::min(step_tokens - decode_rows, decode_rows > 0 ? limit : step_tokens);
    ASSERT_EQ(prefill_rows, std::min(prefill_wanted, room));
    was_left_out = prefill_wanted > 0 && prefill_rows == 0;
    CheckPrefill(runnable, rows);
    if (HasFatalFailure()) return;
    for (const auto& [slot, num_rows] : rows) {
      sequences_[slot].num_rows -= num_rows;
      if (sequences_[slot].num_rows == 0) Refill(slot, step);
    }
  }
}

// Seven decodes that always have rows, seven streams of one prompt each: the longest that one goes
// without a row.
TEST_P(StepPlannerRandom, EveryDecodeAndEveryStreamHasItsTurn) {
  const int32_t step_tokens = GetParam();
  StepPlanner planner(step_tokens);
  std::vector<int> waited(kSlots);
  const int32_t longest = 2 * kSlots / std::max(1, step_tokens / 2) + 4;
  for (int step = 0; step < 4000; ++step) {
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      Refill(slot, step);
      sequences_[slot].stream = slot;
    }
    const int32_t limit = std::max(1, step_tokens / 2);
    for (const PlannedRows& planned : planner.Plan(sequences_, limit)) waited[planned.slot] = -1;
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      ASSERT_LE(++waited[slot], longest) << "slot " << slot << ", step " << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(StepTokens, StepPlannerRandom, ::testing::Values(1, 2, 3, 8, 16, 64, 512));

}  // namespace
}  // namespace tandem::test
