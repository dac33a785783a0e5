// Runs many seeds, each worker a forked process: an abort in the engine is a finding like any
// other, and it is known which seed it was.
#pragma once

#include <cstdint>
#include <string>

#include "tests/simulation/simulation.h"

namespace tandem::test {

struct RunResult {
  int64_t num_seeds = 0;     // that were run to their end
  std::string violation;     // empty: none. "aborted" where a process died
  uint64_t failed_seed = 0;  // the lowest that was found to fail
  Counters counters;
};

// Seeds [scenario.seed, scenario.seed + count), by num_workers processes; each stops at its first
// violation. REQUIRES num_workers in [1, 16].
RunResult RunSeeds(const Scenario& scenario, int64_t count, int32_t num_workers);

// One scenario in a process of its own: what it finds, empty if nothing.
std::string ViolationOf(const Scenario& scenario);

}  // namespace tandem::test
