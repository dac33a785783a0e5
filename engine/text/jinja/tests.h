// What stands behind `is`: x is defined, x is divisibleby(3).
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "engine/text/jinja/context.h"
#include "engine/text/jinja/value.h"

namespace tandem::jinja {

struct TestEntry {
  std::string_view name;
  absl::StatusOr<bool> (*call)(Context& context, const Value& value, const CallArgs& args);
};

// Null when there is none of that name.
const TestEntry* FindTest(std::string_view name);

}  // namespace tandem::jinja
