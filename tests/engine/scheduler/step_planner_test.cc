#include "engine/scheduler/step_planner.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace tandem::test {
namespace {

using Rows = std::vector<std::pair<int32_t, int32_t>>;  // slot, number

constexpr int32_t kNoLimit = 1 << 20;

Rows Plan(StepPlanner* planner, const std::vector<RunnableSequence>& runnable,
          int32_t max_prefill_rows = kNoLimit) {
  Rows rows;
  for (const PlannedRows& planned : planner->Plan(runnable, max_prefill_rows)) {
    rows.emplace_back(planned.slot, planned.num_rows);
  }
  return rows;
}

RunnableSequence Decode(int32_t slot, int32_t num_rows = 1) {
  return {.slot = slot, .age = slot, .num_rows = num_rows};
}

RunnableSequence Prefill(int32_t slot, int64_t stream, int32_t num_rows) {
  return {.slot = slot, .stream = stream, .age = slot, .num_rows = num_rows, .is_prefill = true};
}

TEST(StepPlanner, NothingRunnableIsAnEmptyPlan) {
  StepPlanner planner(8);
  EXPECT_TRUE(Plan(&planner, {}).empty());
}

TEST(StepPlanner, DecodeRowsComeFirstAndPrefillFillsTheRest) {
  StepPlanner planner(8);
  EXPECT_EQ(Plan(&planner, {Prefill(0, 0, 100), Decode(1), Decode(2, 3)}),
            (Rows{{1, 1}, {2, 3}, {0, 4}}));
}

TEST(StepPlanner, APromptOfOneRowIsPrefill) {
  StepPlanner planner(2);
  EXPECT_EQ(Plan(&planner, {Prefill(0, 0, 1), Decode(1), Decode(2)}), (Rows{{1, 1}, {2, 1}}));
}

TEST(StepPlanner, PrefillBesideDecodeIsLimitedAndAloneIsNot) {
  StepPlanner planner(64);
  EXPECT_EQ(Plan(&planner, {Prefill(0, 0, 100), Decode(1)}, 5), (Rows{{1, 1}, {0, 5}}));
  EXPECT_EQ(Plan(&planner, {Prefill(0, 0, 100)}, 5), (Rows{{0, 64}}));
}

TEST(StepPlanner, WithinAStreamPriorityGoesBeforeAge) {
  StepPlanner planner(10);
  std::vector<RunnableSequence> runnable = {Prefill(0, 7, 4), Prefill(1, 7, 4), Prefill(2, 7, 4)};
  runnable[0].age = 9;
  EXPECT_EQ(Plan(&planner, runnable), (Rows{{1, 4}, {2, 4}, {0, 2}}));
  runnable[0].priority = 1;
  EXPECT_EQ(Plan(&planner, runnable), (Rows{{0, 4}, {1, 4}, {2, 2}}));
}

TEST(StepPlanner, StreamsShareTheRoomAndWhatOneDoesNotNeedGoesToTheOthers) {
  StepPlanner planner(20);
  EXPECT_EQ(Plan(&planner, {Prefill(0, 1, 50), Prefill(1, 1, 50), Prefill(2, 2, 50)}),
            (Rows{{0, 10}, {2, 10}}));
  EXPECT_EQ(Plan(&planner, {Prefill(0, 1, 50), Prefill(1, 2, 4), Prefill(2, 3, 50)}),
            (Rows{{0, 8}, {1, 4}, {2, 8}}));
  EXPECT_EQ(Plan(&planner, {Prefill(0, 1, 3), Prefill(1, 2, 4), Prefill(2, 3, 5)}),
            (Rows{{0, 3}, {1, 4}, {2, 5}}));
}

TEST(StepPlanner, SharesRotateWhereStreamsAreMoreThanRows) {
  StepPlanner planner(2);
  const std::vector<RunnableSequence> runnable = {Prefill(0, 1, 50), Prefill(1, 2, 50),
                                                  Prefill(2, 3, 50)};
  EXPECT_EQ(Plan(&planner, runnable), (Rows{{0, 1}, {1, 1}}));
  EXPECT_EQ(Plan(&planner, runnable), (Rows{{0, 1}, {2, 1}}));
  EXPECT_EQ(Plan(&planner, runnable), (Rows{{1, 1}, {2, 1}}));
}

TEST(StepPlanner, DecodeRowsThatDoNotFitBeginTheNextStep) {
  StepPlanner planner(2);
  const std::vector<RunnableSequence> runnable = {Decode(0), Decode(3), Decode(5)};
  EXPECT_EQ(Plan(&planner, runnable), (Rows{{0, 1}, {3, 1}}));
  EXPECT_EQ(Plan(&planner, runnable), (Rows{{5, 1}, {0, 1}}));
  EXPECT_EQ(Plan(&planner, runnable), (Rows{{3, 1}, {5, 1}}));
}

TEST(StepPlanner, EachDecodeHasARowBeforeAnyHasASecondAndTheSecondsRotate) {
  StepPlanner planner(6);
  const std::vector<RunnableSequence> runnable = {Decode(0, 3), Decode(1, 3), Decode(2, 3)};
  EXPECT_EQ(Plan(&planner, runnable), (Rows{{0, 3}, {1, 2}, {2, 1}}));
  EXPECT_EQ(Plan(&planner, runnable), (Rows{{2, 3}, {0, 2}, {1, 1}}));
  EXPECT_EQ(Plan(&planner, runnable), (Rows{{1, 3}, {2, 2}, {0, 1}}));
}

TEST(StepPlanner, PrefillThatWasLeftOutGetsHalfOfTheNextStep) {
  StepPlanner planner(4);
  std::vector<RunnableSequence> runnable;
  for (int32_t slot = 0; slot < 6; ++slot) runnable.push_back(Decode(slot));
  runnable.push_back(Prefill(6, 0, 50));
  EXPECT_EQ(Plan(&planner, runnable), (Rows{{0, 1}, {1, 1}, {2, 1}, {3, 1}}));
  EXPECT_EQ(Plan(&planner, runnable), (Rows{{4, 1}, {5, 1}, {6, 2}}));
  EXPECT_EQ(Plan(&planner, runnable), (Rows{{0, 1}, {1, 1}, {2, 1}, {3, 1}}));
  EXPECT_EQ(Plan(&planner, runnable, 1), (Rows{{4, 1}, {5, 1}, {0, 1}, {6, 1}}));
}

TEST(StepPlanner, StepsOfOneRowAlternate) {
  StepPlanner planner(1);
  const std::vector<RunnableSequence> runnable = {Decode(0), Decode(1), Prefill(2, 0, 50)};
  EXPECT_EQ(Plan(&planner, runnable), (Rows{{0, 1}}));
  EXPECT_EQ(Plan(&planner, runnable), (Rows{{2, 1}}));
  EXPECT_EQ(Plan(&planner, runnable), (Rows{{1, 1}}));
  EXPECT_EQ(Plan(&planner, runnable), (Rows{{2, 1}}));
}

TEST(StepPlannerDeath, SlotsRiseAndHaveRows) {
  StepPlanner planner(4);
  EXPECT_DEATH(Plan(&planner, {Decode(3), Decode(3)}), "slot 3 after 3");
  EXPECT_DEATH(Plan(&planner, {Decode(3, 0)}), "slot 3 has 0 rows");
  EXPECT_DEATH(Plan(&planner, {}, 0), "max_prefill_rows 0");
}

}  // namespace
}  // namespace tandem::test
