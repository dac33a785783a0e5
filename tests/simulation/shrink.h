// Makes a failing scenario smaller, greedily: takes out features and halves the requests as long as
// something still fails.
#pragma once

#include "tests/simulation/simulation.h"

namespace tandem::test {

// REQUIRES that the scenario fails. Runs a few dozen scenarios, each in a process of its own.
Scenario Shrink(Scenario scenario);

}  // namespace tandem::test
