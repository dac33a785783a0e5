#include "tests/simulation/shrink.h"

#include "tests/simulation/seed_runner.h"

namespace tandem::test {

Scenario Shrink(Scenario scenario) {
  const auto take_if_fails = [&](const Scenario& smaller) {
    const bool fails = !ViolationOf(smaller).empty();
    if (fails) scenario = smaller;
    return fails;
  };
  const auto fewer_requests = [&] {
    while (scenario.num_requests > 1) {
      Scenario smaller = scenario;
      smaller.num_requests /= 2;
      if (!take_if_fails(smaller)) return;
    }
  };
  fewer_requests();
  for (int32_t i = 0; i < static_cast<int32_t>(Feature::kEnd); ++i) {
    const Feature feature = static_cast<Feature>(i);
    if (!scenario.features.has(feature)) continue;
    Scenario smaller = scenario;
    smaller.features = scenario.features.Without(feature);
    take_if_fails(smaller);
  }
  fewer_requests();
  return scenario;
}

}  // namespace tandem::test
