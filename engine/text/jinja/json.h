// JSON in and out of values.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "engine/text/jinja/context.h"
#include "engine/text/jinja/value.h"

namespace tandem::jinja {

// The arguments of Python's json.dumps that the filter tojson has.
struct JsonFormat {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // what one level is indented by; absent: all in one line
  std::optional<std::string> item_separator;  // absent: ", ", or "," when there is an indent
  std::string key_separator = ": ";
  bool sort_keys = false;
};

// INVALID_ARGUMENT for what JSON cannot hold (undefined, a macro).
absl::StatusOr<Text> ToJson(Context& context, const Value& value, const JsonFormat& format);

// All strings and keys get `origin`. INVALID_ARGUMENT for a string that is not UTF-8 or for
// nesting beyond kMaxDataDepth. Json is nlohmann::json or nlohmann::ordered_json.
// Strings do not count as held: the caller bounds its input.
template <typename Json>
absl::StatusOr<Value> FromJson(Context& context, const Json& json, Origin origin, int depth = 0);

// The JSON text `text`; everything in it has the origin of the text (content if any of it is).
absl::StatusOr<Value> ParseJson(Context& context, const Text& text);

}  // namespace tandem::jinja
