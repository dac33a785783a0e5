// Template source -> syntax tree.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/text/jinja/ast.h"

namespace tandem::jinja {

// INVALID_ARGUMENT with the line for what is not a template, UNIMPLEMENTED with the line and the
// name for a statement, filter or test that this renderer does not have.
absl::StatusOr<std::unique_ptr<Template>> ParseTemplate(std::string_view source);

}  // namespace tandem::jinja
