// The functions every template has: range, dict, namespace, raise_exception, strftime_now.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "engine/text/jinja/context.h"
#include "engine/text/jinja/value.h"

namespace tandem::jinja {

struct GlobalEntry {
  std::string_view name;
  absl::StatusOr<Value> (*call)(Context& context, const CallArgs& args);
};

// Null when there is none of that name.
const GlobalEntry* FindGlobal(std::string_view name);

}  // namespace tandem::jinja
