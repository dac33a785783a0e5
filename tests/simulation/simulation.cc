#include "tests/simulation/simulation.h"

#include "tests/simulation/world.h"

namespace tandem::test {

std::string CommandLine(const Scenario& scenario) {
  std::string out = "tandem-simulation --seed " + std::to_string(scenario.seed) + " --requests " +
                    std::to_string(scenario.num_requests);
  if (!(scenario.features == Features::All())) {
    out += " --features " + scenario.features.ToString();
  }
  if (scenario.bug != Bug::kNone) out += " --bug " + BugName(scenario.bug);
  return out;
}

Outcome Simulate(const Scenario& scenario, std::ostream* trace) {
  const Bug before = planted_bug;
  planted_bug = scenario.bug;
  Outcome outcome;
  {
    World world(scenario, trace);
    outcome = world.Run();
  }
  planted_bug = before;
  return outcome;
}

}  // namespace tandem::test
