// A request's body as a JSON value, from callers that are not trusted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"

namespace tandem::text {

inline constexpr int64_t kMaxBodyBytes = 8 << 20;
inline constexpr int32_t kMaxJsonDepth = 64;  // of arrays and objects
// Arrays, objects and members of objects together: each costs much more memory than its text.
inline constexpr int32_t kMaxJsonNodes = 1 << 16;

// INVALID_ARGUMENT: not UTF-8, no JSON, no object, over a limit, a number that is too large for a
// double, a lone surrogate, or a name that an object has twice. It names the place where there is
// one: as ParamOf, the field.
absl::StatusOr<nlohmann::json> ParseJsonObject(std::string_view body);

// A value as an error may show it: itself if it is short, else what it is.
std::string Shown(const nlohmann::json& value);
// A name that a caller gave, cut off if it is long; "" in quotes if it is empty.
std::string ShownName(std::string_view name);

}  // namespace tandem::text
