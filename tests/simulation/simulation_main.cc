// Replays one seed of the simulation. Exit status 1: something does not hold.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "tests/simulation/simulation.h"

namespace {

int Usage(const char* what) {
  std::fprintf(stderr,
               "%s\nusage: tandem-simulation [--seed N] [--requests N] [--features NAMES] "
               "[--bug NAME] [--trace]\n",
               what);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  using tandem::Bug;
  namespace test = tandem::test;
  test::Scenario scenario;
  bool trace = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (argument == "--trace") {
      trace = true;
    } else if (argument == "--seed") {
      scenario.seed = std::strtoull(value, nullptr, 10);
      ++i;
    } else if (argument == "--requests") {
      scenario.num_requests = std::atoi(value);
      ++i;
    } else if (argument == "--bug") {
      scenario.bug = test::BugByName(value);
      if (scenario.bug == Bug::kEnd) return Usage("no such bug");
      ++i;
    } else if (argument == "--features") {
      if (!test::Features::Parse(value, &scenario.features)) return Usage("no such feature");
      ++i;
    } else {
      return Usage(argument.c_str());
    }
  }
  if (scenario.num_requests < 1) return Usage("--requests is at least 1");
  const test::Outcome outcome = test::Simulate(scenario, trace ? &std::cout : nullptr);
  std::cout << outcome.counters.ToString();
  if (outcome.violation.empty()) return 0;
  std::cout << "VIOLATION: " << outcome.violation << "\n";
  return 1;
}
