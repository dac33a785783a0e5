// What stands behind `|`: x|trim, x|join(', ').
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "engine/text/jinja/context.h"
#include "engine/text/jinja/value.h"

namespace tandem::jinja {

struct FilterEntry {
  std::string_view name;
  absl::StatusOr<Value> (*call)(Context& context, const Value& input, const CallArgs& args);
};

// Null when there is none of that name.
const FilterEntry* FindFilter(std::string_view name);
const FilterEntry* FindTextFilter(std::string_view name);      // text_filters.cc
const FilterEntry* FindSequenceFilter(std::string_view name);  // sequence_filters.cc

}  // namespace tandem::jinja
