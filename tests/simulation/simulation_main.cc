// Runs one seed of the simulator, to replay what simulation_test found.
#include <cstdint>
#include <iostream>
#include <string>

#include <CLI/CLI.hpp>

#include "tests/simulation/simulation.h"

namespace {

int Run(int argc, char** argv) {
  namespace test = tandem::test;
  test::Scenario scenario;
  std::string features = scenario.features.ToString();
  std::string bug;
  bool trace = false;
  CLI::App app("Simulates the engine of a worker and its text tiers.", "tandem-simulation");
  app.add_option("--seed", scenario.seed, "The scenario")->capture_default_str();
  app.add_option("--requests", scenario.num_requests, "Requests in it")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--features", features, "What may happen in it: names, all, or -name")
      ->capture_default_str();
  app.add_option("--bug", bug, "A planted bug to turn on, by its name in planted_bugs.h");
  app.add_flag("--trace", trace, "Print every command and event");
  CLI11_PARSE(app, argc, argv);
  if (!test::Features::Parse(features, &scenario.features)) {
    std::cerr << "--features " << features << ": no such feature\n";
    return 2;
  }
  if (!bug.empty()) scenario.bug = test::BugByName(bug);
  if (scenario.bug == tandem::Bug::kEnd) {
    std::cerr << "--bug " << bug << ": no such bug\n";
    return 2;
  }
  const test::Outcome outcome = test::Simulate(scenario, trace ? &std::cout : nullptr);
  std::cout << outcome.counters.ToString();
  if (outcome.violation.empty()) return 0;
  std::cout << "VIOLATION: " << outcome.violation << "\n";
  return 1;
}

}  // namespace

int main(int argc, char** argv) { return Run(argc, argv); }
