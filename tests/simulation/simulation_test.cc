// Thousands of seeds of the simulator. TANDEM_SIMULATION_SEEDS and TANDEM_SIMULATION_REQUESTS
// change how many, and how many requests each has.
#include "tests/simulation/simulation.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <sstream>

#include "tests/simulation/seed_runner.h"
#include "tests/simulation/shrink.h"

namespace tandem::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kDefaultSeeds = 100;
#else
constexpr int64_t kDefaultSeeds = 2000;
#endif
constexpr int64_t kDefaultRequests = 50;
constexpr int32_t kWorkers = 2;
// So many seeds meet every case.
constexpr int64_t kSeedsForAllCases = 100;

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoll(value, nullptr, 10);
}

// Cases that an engine without a feature never meets.
bool IsExpected(Counter counter, const Features& features) {
  switch (counter) {
    case Counter::kBlindExtends:
    case Counter::kNeedlessEpochs:
      return features.has(Feature::kEpochs);
    case Counter::kStaleCandidates:
    case Counter::kRunAheadCandidates:
      return features.has(Feature::kRunAhead);
    case Counter::kDrafted:
    case Counter::kDraftsTaken:
      return features.has(Feature::kRunAhead) && features.has(Feature::kDrafts);
    case Counter::kHits:
    case Counter::kLateHits:
      return features.has(Feature::kCache);
    default:
      return true;
  }
}

TEST(SimulationTest, EverySeedKeepsTheContractOfTheEngine) {
  Scenario scenario;
  scenario.num_requests =
      static_cast<int32_t>(FromEnvironment("TANDEM_SIMULATION_REQUESTS", kDefaultRequests));
  const int64_t num_seeds = FromEnvironment("TANDEM_SIMULATION_SEEDS", kDefaultSeeds);
  const RunResult result = RunSeeds(scenario, num_seeds, kWorkers);
  std::cout << result.num_seeds << " seeds\n" << result.counters.ToString();
  if (!result.violation.empty()) {
    scenario.seed = result.failed_seed;
    const Scenario smallest = Shrink(scenario);
    FAIL() << result.violation << "\nreplay: " << CommandLine(scenario)
           << "\nshortest: " << CommandLine(smallest)
           << "\n  which says: " << ViolationOf(smallest);
  }
  if (num_seeds < kSeedsForAllCases || scenario.num_requests < kDefaultRequests) return;
  for (int32_t i = 0; i < static_cast<int32_t>(Counter::kEnd); ++i) {
    const Counter counter = static_cast<Counter>(i);
    if (!IsExpected(counter, scenario.features)) continue;
    EXPECT_GT(result.counters.of(counter), 0) << "never happened: " << Name(counter);
  }
}

TEST(SimulationTest, ASeedHasOneTrace) {
  Scenario scenario;
  scenario.seed = 4;
  std::ostringstream first;
  std::ostringstream second;
  Simulate(scenario, &first);
  Simulate(scenario, &second);
  EXPECT_FALSE(first.str().empty());
  EXPECT_EQ(first.str(), second.str());
}

}  // namespace
}  // namespace tandem::test
