// Shows that the simulation finds what it is there to find: with each bug of
// engine/base/planted_bugs.h turned on, a seed has to fail.
#include "engine/base/planted_bugs.h"

#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <vector>

#include "tests/simulation/seed_runner.h"
#include "tests/simulation/shrink.h"
#include "tests/simulation/simulation.h"

namespace tandem::test {
namespace {

constexpr int64_t kMaxSeeds = 1000;
constexpr int64_t kSeedsAtOnce = 20;  // so that the lowest seeds are looked at first
constexpr int32_t kWorkers = 2;

class PlantedBugTest : public testing::TestWithParam<Bug> {};

TEST_P(PlantedBugTest, IsFound) {
  Scenario scenario;
  scenario.bug = GetParam();
  for (int64_t done = 0; done < kMaxSeeds; done += kSeedsAtOnce) {
    scenario.seed = static_cast<uint64_t>(done) + 1;
    const RunResult result = RunSeeds(scenario, kSeedsAtOnce, kWorkers);
    if (result.violation.empty()) continue;
    std::cout << BugName(scenario.bug) << ": seed " << result.failed_seed << ": "
              << result.violation << "\n";
    return;
  }
  FAIL() << kMaxSeeds << " seeds do not find " << BugName(scenario.bug);
}

TEST(ShrinkTest, AShorterScenarioFailsToo) {
  Scenario scenario;
  scenario.bug = Bug::kQueuedCloseLost;
  const RunResult result = RunSeeds(scenario, kMaxSeeds, 1);
  ASSERT_FALSE(result.violation.empty());
  scenario.seed = result.failed_seed;
  const Scenario smallest = Shrink(scenario);
  EXPECT_LT(smallest.num_requests, scenario.num_requests);
  EXPECT_FALSE(smallest.features.has(Feature::kStreamLoss));
  EXPECT_NE(ViolationOf(smallest), "");
}

std::vector<Bug> AllBugs() {
  std::vector<Bug> bugs;
  for (int i = static_cast<int>(Bug::kNone) + 1; i < static_cast<int>(Bug::kEnd); ++i) {
    bugs.push_back(static_cast<Bug>(i));
  }
  return bugs;
}

INSTANTIATE_TEST_SUITE_P(All, PlantedBugTest, testing::ValuesIn(AllBugs()),
                         [](const testing::TestParamInfo<Bug>& info) {
                           return BugName(info.param);
                         });

}  // namespace
}  // namespace tandem::test
