#include "services/text/openai/fields.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tandem::text {
namespace {

using nlohmann::json;

constexpr double kMaxExact = 9007199254740992.0;  // 2^53: doubles are exact up to it

absl::Status WrongType(std::string_view field, const json& value, std::string_view type) {
  return FieldError(field, " is ", Shown(value), ": it must be ", std::string(type));
}

template <typename T>
absl::Status OutOfRange(std::string_view field, const json& value, T low, T high) {
  return FieldError(field, " is ", Shown(value), ": it must be ", low, " to ", high);
}

}  // namespace

absl::StatusOr<bool> ReadBoolean(std::string_view field, const json& value) {
  if (!value.is_boolean()) return WrongType(field, value, "true or false");
  return value.get<bool>();
}

absl::StatusOr<int64_t> ReadInteger(std::string_view field, const json& value, int64_t low,
                                    int64_t high) {
  int64_t integer = 0;
  if (value.is_number_unsigned()) {
    const uint64_t given = value.get<uint64_t>();
    if (given > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return OutOfRange(field, value, low, high);
    }
    integer = static_cast<int64_t>(given);
  } else if (value.is_number_integer()) {
    integer = value.get<int64_t>();
  } else if (value.is_number_float()) {
    const double given = value.get<double>();
    if (given != std::trunc(given)) return WrongType(field, value, "an integer");
    if (std::abs(given) > kMaxExact) return OutOfRange(field, value, low, high);
    integer = static_cast<int64_t>(given);
  } else {
    return WrongType(field, value, "an integer");
  }
  if (integer < low || integer > high) return OutOfRange(field, value, low, high);
  return integer;
}

absl::StatusOr<double> ReadNumber(std::string_view field, const json& value, double low,
                                  double high) {
  if (!value.is_number()) return WrongType(field, value, "a number");
  const double number = value.get<double>();
  if (!(number >= low && number <= high)) return OutOfRange(field, value, low, high);
  return number;
}

absl::StatusOr<std::string> ReadText(std::string_view field, const json& value, int64_t max_bytes) {
  if (!value.is_string()) return WrongType(field, value, "a string");
  const std::string& text = value.get_ref<const std::string&>();
  if (text.size() > static_cast<size_t>(max_bytes)) {
    return FieldError(field, " has ", text.size(), " bytes: at most ", max_bytes);
  }
  return text;
}

absl::StatusOr<std::vector<int32_t>> ReadIds(std::string_view field, const json& value,
                                             int64_t min_count, int64_t max_count) {
  if (!value.is_array()) return WrongType(field, value, "an array of token ids");
  const int64_t count = static_cast<int64_t>(value.size());
  if (count < min_count || count > max_count) {
    return FieldError(field, " has ", count, " ids: it must have ", min_count, " to ", max_count);
  }
  std::vector<int32_t> ids;
  ids.reserve(value.size());
  for (const json& element : value) {
    // The name of an element is made only for one that is wrong: there may be millions.
    auto id = ReadInteger(field, element, 0, std::numeric_limits<int32_t>::max());
    if (!id.ok()) {
      const std::string name = std::string(field) + "[" + std::to_string(ids.size()) + "]";
      return ReadInteger(name, element, 0, std::numeric_limits<int32_t>::max()).status();
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

absl::Status ReadOnly(std::string_view field, const json& value, std::string_view allowed) {
  const json values = json::parse(allowed);
  if (std::find(values.begin(), values.end(), value) != values.end()) return absl::OkStatus();
  std::string list = "null";
  for (const json& one : values) list += " or " + one.dump();
  return FieldError(field, " is ", Shown(value), ", which is not supported: it may be ", list);
}

absl::Status CheckMembers(std::string_view field, const json& value,
                          std::span<const std::string_view> names) {
  if (!value.is_object()) return WrongType(field, value, "an object");
  for (const auto& member : value.items()) {
    if (std::find(names.begin(), names.end(), member.key()) != names.end()) continue;
    return FieldError(std::string(field) + "." + ShownName(member.key()), " is no field of ",
                      std::string(field));
  }
  return absl::OkStatus();
}

json TypedSchema(std::string_view type) { return {{"type", {type, "null"}}}; }

json RangeSchema(std::string_view type, const json& low, const json& high) {
  json schema = TypedSchema(type);
  schema["minimum"] = low;
  schema["maximum"] = high;
  return schema;
}

json IdsSchema(int64_t min_count, int64_t max_count, bool distinct) {
  json schema = TypedSchema("array");
  schema["items"] = {
      {"type", "integer"}, {"minimum", 0}, {"maximum", std::numeric_limits<int32_t>::max()}};
  schema["minItems"] = min_count;
  schema["maxItems"] = max_count;
  if (distinct) schema["uniqueItems"] = true;
  return schema;
}

json OnlySchema(std::string_view allowed) {
  json values = json::parse(allowed);
  values.push_back(nullptr);
  return {{"enum", values}};
}

}  // namespace tandem::text
