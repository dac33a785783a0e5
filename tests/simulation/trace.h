// Commands and events as lines, for people.
#pragma once

#include <string>

#include "engine/decode_engine.h"
#include "tests/simulation/replica.h"

namespace tandem::test {

std::string TraceLine(const SimCommand& command);
std::string TraceLine(const EngineEvent& event);
std::string TraceLine(const EngineOptions& options);

}  // namespace tandem::test
