// A request's fields as a table: what each may hold, what it means, and where it goes. The table is
// read by the parser and by the OpenAPI document, so that neither knows a field or a range that the
// other does not.
//
// A field that is null is absent. Draft is what the fields are written to.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/status.h"
#include "services/text/openai/field_names.h"
#include "services/text/openai/json_body.h"

namespace tandem::text {

// Values of one type, in a range; `field` names it in errors. An integer may be written with a
// point (3.0) as far as a double is exact, 2^53.
absl::StatusOr<bool> ReadBoolean(std::string_view field, const nlohmann::json& value);
absl::StatusOr<int64_t> ReadInteger(std::string_view field, const nlohmann::json& value,
                                    int64_t low, int64_t high);
absl::StatusOr<double> ReadNumber(std::string_view field, const nlohmann::json& value, double low,
                                  double high);
absl::StatusOr<std::string> ReadText(std::string_view field, const nlohmann::json& value,
                                     int64_t max_bytes);
// Token ids: 0 to 2^31 - 1.
absl::StatusOr<std::vector<int32_t>> ReadIds(std::string_view field, const nlohmann::json& value,
                                             int64_t min_count, int64_t max_count);
// `allowed`: a JSON array of all that it may be.
absl::Status ReadOnly(std::string_view field, const nlohmann::json& value,
                      std::string_view allowed);
// An error if value has a member that is not among names.
absl::Status CheckMembers(std::string_view field, const nlohmann::json& value,
                          std::span<const std::string_view> names);

template <typename Draft>
struct Boolean {
  void (*set)(bool value, Draft* draft);
};
template <typename Draft>
struct Integer {
  int64_t low;
  int64_t high;
  void (*set)(int64_t value, Draft* draft);
};
template <typename Draft>
struct Number {
  double low;
  double high;
  void (*set)(double value, Draft* draft);
};
template <typename Draft>
struct Text {
  int64_t max_bytes;
  void (*set)(std::string value, Draft* draft);
};
template <typename Draft>
struct Ids {
  int64_t min_count;
  int64_t max_count;
  void (*set)(std::vector<int32_t> value, Draft* draft);
  bool distinct = false;  // of the schema: CheckRequest looks
};
// What is as good as nothing; all else would change the answer in a way that is not supported.
struct Only {
  std::string_view allowed;  // a JSON array
};
// A rule of its own, beside its JSON schema.
template <typename Draft>
struct Own {
  std::string_view schema;
  absl::Status (*read)(const nlohmann::json& value, Draft* draft);
};

template <typename Draft>
struct Field {
  std::string_view name;
  uint8_t where;  // bits, as the table means them
  std::string_view description;
  std::variant<Boolean<Draft>, Integer<Draft>, Number<Draft>, Text<Draft>, Ids<Draft>, Only,
               Own<Draft>>
      rule;
  bool required = false;
};

template <typename... Readers>
struct Overloaded : Readers... {
  using Readers::operator()...;
};
template <typename... Readers>
Overloaded(Readers...) -> Overloaded<Readers...>;

template <typename Draft>
absl::Status ReadField(const Field<Draft>& field, const nlohmann::json& value, Draft* draft) {
  const std::string_view name = field.name;
  const auto set = [draft](const auto& rule, auto read) -> absl::Status {
    if (!read.ok()) return read.status();
    rule.set(*std::move(read), draft);
    return absl::OkStatus();
  };
  return std::visit(
      Overloaded{
          [&](const Boolean<Draft>& rule) { return set(rule, ReadBoolean(name, value)); },
          [&](const Integer<Draft>& rule) {
            return set(rule, ReadInteger(name, value, rule.low, rule.high));
          },
          [&](const Number<Draft>& rule) {
            return set(rule, ReadNumber(name, value, rule.low, rule.high));
          },
          [&](const Text<Draft>& rule) { return set(rule, ReadText(name, value, rule.max_bytes)); },
          [&](const Ids<Draft>& rule) {
            return set(rule, ReadIds(name, value, rule.min_count, rule.max_count));
          },
          [&](const Only& rule) { return ReadOnly(name, value, rule.allowed); },
          [&](const Own<Draft>& rule) { return rule.read(value, draft); },
      },
      field.rule);
}

// Reads the fields of `body` that the table has at `where`, in the table's order. An error names
// the first that is wrong; unknown ones come first. `what` names the request in that case.
template <typename Draft>
absl::Status ReadFields(std::span<const Field<Draft>> table, uint8_t where, std::string_view what,
                        const nlohmann::json& body, Draft* draft) {
  for (const auto& member : body.items()) {
    const std::string& name = member.key();
    bool known = false;
    for (const Field<Draft>& field : table) {
      known |= field.name == name && (field.where & where) != 0;
    }
    if (!known) {
      return FieldError(ShownName(name), " is no field of ", std::string(what));
    }
  }
  for (const Field<Draft>& field : table) {
    if ((field.where & where) == 0) continue;
    const auto value = body.find(field.name);
    if (value != body.end() && !value->is_null()) {
      RETURN_IF_ERROR(ReadField(field, *value, draft));
    } else if (field.required) {
      return FieldError(field.name, value == body.end() ? " is missing" : " is null");
    }
  }
  return absl::OkStatus();
}

// JSON schemas of the rules, null allowed: "type" is a list whose last is null.
nlohmann::json TypedSchema(std::string_view type);
nlohmann::json RangeSchema(std::string_view type, const nlohmann::json& low,
                           const nlohmann::json& high);
nlohmann::json IdsSchema(int64_t min_count, int64_t max_count, bool distinct);
nlohmann::json OnlySchema(std::string_view allowed);

template <typename Draft>
nlohmann::json FieldSchema(const Field<Draft>& field) {
  nlohmann::json schema = std::visit(
      Overloaded{
          [](const Boolean<Draft>&) { return TypedSchema("boolean"); },
          [](const Integer<Draft>& rule) { return RangeSchema("integer", rule.low, rule.high); },
          [](const Number<Draft>& rule) { return RangeSchema("number", rule.low, rule.high); },
          [](const Text<Draft>& rule) {
            nlohmann::json text = TypedSchema("string");
            text["maxLength"] = rule.max_bytes;
            return text;
          },
          [](const Ids<Draft>& rule) {
            return IdsSchema(rule.min_count, rule.max_count, rule.distinct);
          },
          [](const Only& rule) { return OnlySchema(rule.allowed); },
          [](const Own<Draft>& rule) { return nlohmann::json::parse(rule.schema); },
      },
      field.rule);
  if (field.required && schema.contains("type") && schema["type"].is_array()) {
    schema["type"] = schema["type"][0];  // without null
  }
  schema["description"] = field.description;
  return schema;
}

// The schema of the object that ReadFields reads.
template <typename Draft>
nlohmann::json FieldsSchema(std::span<const Field<Draft>> table, uint8_t where) {
  nlohmann::json schema = {{"type", "object"}, {"additionalProperties", false}};
  for (const Field<Draft>& field : table) {
    if ((field.where & where) == 0) continue;
    schema["properties"][std::string(field.name)] = FieldSchema(field);
    if (field.required) schema["required"].push_back(field.name);
  }
  return schema;
}

}  // namespace tandem::text
