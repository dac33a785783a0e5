// Methods of strings, lists, dicts and loops, as Python has them, and how they take arguments.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/text/jinja/context.h"
#include "engine/text/jinja/value.h"

namespace tandem::jinja {

struct MethodEntry {
  std::string_view name;
  absl::StatusOr<Value> (*call)(Context& context, const Value& self, const CallArgs& args);
};

// Null when values of this kind have no such method.
const MethodEntry* FindMethod(const Value& value, std::string_view name);
const MethodEntry* FindTextMethod(std::string_view name);  // text_methods.cc

// The arguments in the order of `parameters`; absent ones are empty. INVALID_ARGUMENT for too
// many, for an unknown name, for one given twice, and when fewer than the first `required` are
// there.
absl::StatusOr<std::vector<std::optional<Value>>> BindArguments(
    const CallArgs& args, std::initializer_list<std::string_view> parameters, size_t required = 0);

// What filters and methods share. Each works on code points and keeps origins.
enum class Side { kLeft, kRight, kBoth };
// Without the code points of `characters` (white space when null) at the sides.
Text Strip(const Text& text, Side side, const Text* characters);
Text ToUpper(const Text& text);
Text ToLower(const Text& text);
Text Capitalize(const Text& text);
// Replaces at most `limit` occurrences (all when negative).
absl::StatusOr<Value> Replace(Context& context, const Text& text, const Text& from, const Text& to,
                              Int limit);
// As str.splitlines.
std::vector<Text> SplitLines(const Text& text);

}  // namespace tandem::jinja
