// Values as text: what Python's str() and repr() say.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "engine/text/jinja/context.h"
#include "engine/text/jinja/value.h"

namespace tandem::jinja {

// The text that {{ value }} writes. Nothing for undefined.
absl::StatusOr<Text> ToText(Context& context, const Value& value);
// As ToText, but strings are quoted.
absl::StatusOr<Text> ToRepr(Context& context, const Value& value);

// The shortest decimal that reads back as `value`, in Python's form: 1.0, 1e+16, inf.
std::string FloatToString(double value);

// & < > ' " as character references. The result is markup.
Text EscapeHtml(const Text& text);

}  // namespace tandem::jinja
