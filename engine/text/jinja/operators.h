// What Python's operators and built-in functions do with values.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/text/jinja/ast.h"
#include "engine/text/jinja/context.h"
#include "engine/text/jinja/value.h"

namespace tandem::jinja {

// "line N: 'x' is undefined" without the line, which the evaluator adds.
absl::Status UndefinedError(const Value& undefined);

bool Truthy(const Value& value);

absl::StatusOr<Value> Arithmetic(Context& context, BinaryOp op, const Value& left,
                                 const Value& right);
absl::StatusOr<Value> Negate(const Value& operand);

// == of Python: numbers by value, containers element by element, different types unequal.
absl::StatusOr<bool> Equal(Context& context, const Value& left, const Value& right);
// Any of the comparison operators.
absl::StatusOr<bool> Compare(Context& context, CompareOp op, const Value& left, const Value& right);
// `item in container`.
absl::StatusOr<bool> Contains(Context& context, const Value& container, const Value& item);

// len(value), in code points for a string.
absl::StatusOr<int64_t> Length(Context& context, const Value& value);

// What a for block visits: elements, code points of a string, keys of a dict; nothing for
// undefined. Empties a generator.
absl::StatusOr<std::vector<Value>> Iterate(Context& context, const Value& value);

// value.name: a method first, then an item. Undefined when there is neither.
absl::StatusOr<Value> GetAttribute(Context& context, const Value& value, std::string_view name);
// value[key]: an item first, then, for a string key, a method.
absl::StatusOr<Value> GetItem(Context& context, const Value& value, const Value& key);
// value[start:stop:step]; none for what is absent.
absl::StatusOr<Value> GetSlice(Context& context, const Value& value, const Value& start,
                               const Value& stop, const Value& step);

}  // namespace tandem::jinja
