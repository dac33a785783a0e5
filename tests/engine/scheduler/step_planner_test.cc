#include "engine/scheduler/step_planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>

namespace tandem {
namespace {

using Rows = std::vector<std::pair<int32_t, int32_t>>;  // slot, number

Rows Plan(StepPlanner* planner, const std::vector<RunnableSequence>& runnable) {
  Rows rows;
  for (const PlannedRows& planned : planner->Plan(runnable)) {
    rows.emplace_back(planned.slot, planned.num_rows);
  }
  return rows;
}

TEST(StepPlanner, NothingRunnableIsAnEmptyPlan) {
  StepPlanner planner(8);
  EXPECT_TRUE(Plan(&planner, {}).empty());
}

TEST(StepPlanner, DecodeRowsComeFirstAndPrefillFillsTheRest) {
  StepPlanner planner(8);
  EXPECT_EQ(Plan(&planner, {{.slot = 0, .age = 1, .num_rows = 100},
                            {.slot = 1, .age = 2, .num_rows = 1},
                            {.slot = 2, .age = 3, .num_rows = 1}}),
            (Rows{{1, 1}, {2, 1}, {0, 6}}));
}

TEST(StepPlanner, TheOldestPrefillGoesFirst) {
  StepPlanner planner(8);
  EXPECT_EQ(Plan(&planner, {{.slot = 0, .age = 9, .num_rows = 5},
                            {.slot = 1, .age = 3, .num_rows = 6},
                            {.slot = 2, .age = 10, .num_rows = 5}}),
            (Rows{{1, 6}, {0, 2}}));
}

TEST(StepPlanner, DecodeRowsThatDoNotFitBeginTheNextStep) {
  StepPlanner planner(2);
  const std::vector<RunnableSequence> runnable = {{.slot = 0, .age = 0, .num_rows = 1},
                                                  {.slot = 3, .age = 1, .num_rows = 1},
                                                  {.slot = 5, .age = 2, .num_rows = 1}};
  EXPECT_EQ(Plan(&planner, runnable), (Rows{{0, 1}, {3, 1}}));
  EXPECT_EQ(Plan(&planner, runnable), (Rows{{5, 1}, {0, 1}}));
  EXPECT_EQ(Plan(&planner, runnable), (Rows{{3, 1}, {5, 1}}));
}

TEST(StepPlanner, PrefillThatWasLeftOutGetsHalfOfTheNextStep) {
  StepPlanner planner(4);
  std::vector<RunnableSequence> runnable;
  for (int32_t slot = 0; slot < 6; ++slot) runnable.push_back({slot, slot, 1});
  runnable.push_back({.slot = 6, .age = 6, .num_rows = 50});
  EXPECT_EQ(Plan(&planner, runnable), (Rows{{0, 1}, {1, 1}, {2, 1}, {3, 1}}));
  EXPECT_EQ(Plan(&planner, runnable), (Rows{{4, 1}, {5, 1}, {6, 2}}));
  EXPECT_EQ(Plan(&planner, runnable), (Rows{{0, 1}, {1, 1}, {2, 1}, {3, 1}}));
}

TEST(StepPlanner, EveryPlanIsWithinItsBoundsAndEveryoneAdvances) {
  std::mt19937 random(3);
  for (const int32_t step_tokens : {1, 2, 7, 64}) {
    StepPlanner planner(step_tokens);
    std::map<int32_t, int32_t> waited;  // steps without a row, by slot
    std::vector<RunnableSequence> runnable;
    for (int32_t slot = 0; slot < 12; ++slot) {
      runnable.push_back({slot, slot, slot < 6 ? 1 : 1 + int32_t(random() % 40)});
    }
    for (int step = 0; step < 3000; ++step) {
      const Rows rows = Plan(&planner, runnable);
      int32_t sum = 0;
      std::set<int32_t> slots;
      for (const auto& [slot, num_rows] : rows) {
        sum += num_rows;
        EXPECT_TRUE(slots.insert(slot).second);
        RunnableSequence& sequence = runnable[slot];
        ASSERT_GE(num_rows, 1);
        ASSERT_LE(num_rows, sequence.num_rows);
        sequence.num_rows -= num_rows;
        if (sequence.num_rows == 0) {  // decodes on, or a new prompt
          sequence.num_rows = slot < 6 ? 1 : 1 + int32_t(random() % 40);
          sequence.age = 100 + step;
        }
      }
      ASSERT_LE(sum, step_tokens);
      ASSERT_GE(sum, std::min<int32_t>(step_tokens, 1));
      for (int32_t slot = 0; slot < 12; ++slot) {
        waited[slot] = slots.contains(slot) ? 0 : waited[slot] + 1;
        ASSERT_LT(waited[slot], 1200 / step_tokens + 24) << slot;
      }
    }
  }
}

}  // namespace
}  // namespace tandem
