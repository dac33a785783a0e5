#include "engine/text/jinja/operators.h"

#include <cmath>
#include <compare>
#include <limits>
#include <utility>

#include "engine/base/status.h"
#include "engine/text/jinja/format.h"
#include "engine/text/jinja/print.h"
#include "engine/text/jinja/unicode.h"

namespace tandem::jinja {
namespace {

std::string_view OpName(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd:
      return "+";
    case BinaryOp::kSubtract:
      return "-";
    case BinaryOp::kMultiply:
      return "*";
    case BinaryOp::kDivide:
      return "/";
    case BinaryOp::kFloorDivide:
      return "//";
    case BinaryOp::kModulo:
      return "%";
    case BinaryOp::kPower:
      return "**";
  }
  return "?";
}

absl::Status Unsupported(std::string_view op, const Value& left, const Value& right) {
  return InvalidArgument("'", std::string(op), "' does not take '", std::string(left.TypeName()),
                         "' and '", std::string(right.TypeName()), "'");
}

absl::Status Overflow() { return InvalidArgument("an integer result is out of range"); }

absl::StatusOr<Value> Power(Int base, Int exponent) {
  if (exponent < 0) {
    if (base == 0) return InvalidArgument("0 to a negative power");
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  Int result = 1;
  for (Int square = base; exponent != 0;) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, square, &result)) return Overflow();
    exponent >>= 1;
    if (exponent != 0 && __builtin_mul_overflow(square, square, &square)) return Overflow();
  }
  return Value::Integer(result);
}

absl::StatusOr<Value> IntArithmetic(BinaryOp op, Int left, Int right) {
  Int result = 0;
  const bool divides =
      op == BinaryOp::kDivide || op == BinaryOp::kFloorDivide || op == BinaryOp::kModulo;
  if (divides && right == 0) return InvalidArgument("division by zero");
  switch (op) {
    case BinaryOp::kAdd:
      if (__builtin_add_overflow(left, right, &result)) return Overflow();
      return Value::Integer(result);
    case BinaryOp::kSubtract:
      if (__builtin_sub_overflow(left, right, &result)) return Overflow();
      return Value::Integer(result);
    case BinaryOp::kMultiply:
      if (__builtin_mul_overflow(left, right, &result)) return Overflow();
      return Value::Integer(result);
    case BinaryOp::kDivide:
      return Value::Float(static_cast<double>(left) / static_cast<double>(right));
    case BinaryOp::kFloorDivide:
    case BinaryOp::kModulo: {
      // Python rounds the quotient down; the remainder has the sign of the divisor.
      if (right == -1) {  // the one quotient that may overflow
        if (op == BinaryOp::kModulo) return Value::Integer(0);
        if (__builtin_sub_overflow(Int{0}, left, &result)) return Overflow();
        return Value::Integer(result);
      }
      const Int remainder = left % right;
      const bool rounds_up = remainder != 0 && (remainder < 0) != (right < 0);
      if (op == BinaryOp::kModulo) return Value::Integer(remainder + (rounds_up ? right : 0));
      return Value::Integer(left / right - (rounds_up ? 1 : 0));
    }
    case BinaryOp::kPower:
      return Power(left, right);
  }
  return Overflow();
}

absl::StatusOr<Value> FloatArithmetic(BinaryOp op, double left, double right) {
  switch (op) {
    case BinaryOp::kAdd:
      return Value::Float(left + right);
    case BinaryOp::kSubtract:
      return Value::Float(left - right);
    case BinaryOp::kMultiply:
      return Value::Float(left * right);
    case BinaryOp::kPower:
      if (left == 0 && right < 0) return InvalidArgument("0 to a negative power");
      if (left < 0 && std::floor(right) != right) {
        return InvalidArgument("a fractional power of a negative number");
      }
      return Value::Float(std::pow(left, right));
    default:
      break;
  }
  if (right == 0) return InvalidArgument("division by zero");
  if (op == BinaryOp::kDivide) return Value::Float(left / right);
  double remainder = std::fmod(left, right);
  if (remainder != 0 && (remainder < 0) != (right < 0)) remainder += right;
  if (op == BinaryOp::kModulo) return Value::Float(remainder);
  return Value::Float(std::round((left - remainder) / right));
}

absl::StatusOr<Value> AddTexts(Context& context, const Text& left, const Text& right) {
  Text result;
  const bool markup = left.markup() || right.markup();
  result.Append(markup && !left.markup() ? EscapeHtml(left) : left);
  result.Append(markup && !right.markup() ? EscapeHtml(right) : right);
  result.set_markup(markup);
  return context.MakeText(std::move(result));
}

absl::StatusOr<Value> AddSequences(Context& context, const Sequence& left, const Sequence& right) {
  std::vector<Value> items = left.items;
  items.insert(items.end(), right.items.begin(), right.items.end());
  return context.MakeSequence(left.flavor, std::move(items));
}

absl::StatusOr<Value> Repeat(Context& context, const Value& value, Int count) {
  if (count < 0) count = 0;
  if (const Text* text = value.text()) {
    Int size = 0;
    if (__builtin_mul_overflow(count, static_cast<Int>(text->size()), &size) ||
        size > std::numeric_limits<int64_t>::max()) {
      size = std::numeric_limits<int64_t>::max();
    }
    RETURN_IF_ERROR(context.CheckTextSize(static_cast<size_t>(size)));
    Text result;
    for (Int i = 0; size > 0 && i < count; ++i) result.Append(*text);
    result.set_markup(text->markup());
    return context.MakeText(std::move(result));
  }
  const Sequence& sequence = *value.sequence();
  Int size = 0;
  if (__builtin_mul_overflow(count, static_cast<Int>(sequence.items.size()), &size) ||
      size > std::numeric_limits<int32_t>::max()) {
    size = std::numeric_limits<int32_t>::max();
  }
  RETURN_IF_ERROR(context.Charge(static_cast<int64_t>(size)));
  std::vector<Value> items;
  for (Int i = 0; size > 0 && i < count; ++i) {
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  }
  return context.MakeSequence(sequence.flavor, std::move(items));
}

bool IsRepeatable(const Value& value) {
  if (value.text() != nullptr) return true;
  const Sequence* sequence = value.sequence();
  return sequence != nullptr && (sequence->flavor == Sequence::Flavor::kList ||
                                 sequence->flavor == Sequence::Flavor::kTuple);
}

// Numbers as Python orders them: integers and floats exactly, not after rounding.
std::partial_ordering CompareNumbers(const Value& left, const Value& right) {
  const std::optional<Int> a = left.AsInt();
  const std::optional<Int> b = right.AsInt();
  if (a.has_value() && b.has_value()) return *a <=> *b;
  if (a.has_value() != b.has_value()) {
    const double number = a.has_value() ? *right.AsDouble() : *left.AsDouble();
    if (std::isfinite(number) && std::fabs(number) < 0x1p126) {
      const Int integer = a.has_value() ? *a : *b;
      const double whole = std::floor(number);
      std::partial_ordering order = integer <=> static_cast<Int>(whole);
      if (order == 0 && number > whole) order = std::partial_ordering::less;
      return a.has_value() ? order : 0 <=> order;
    }
  }
  return *left.AsDouble() <=> *right.AsDouble();
}

absl::StatusOr<bool> EqualAtDepth(Context& context, const Value& left, const Value& right,
                                  int depth);

absl::StatusOr<bool> EqualItems(Context& context, const std::vector<Value>& left,
                                const std::vector<Value>& right, int depth) {
  if (left.size() != right.size()) return false;
  for (size_t i = 0; i < left.size(); ++i) {
    ASSIGN_OR_RETURN(const bool equal, EqualAtDepth(context, left[i], right[i], depth));
    if (!equal) return false;
  }
  return true;
}

absl::StatusOr<bool> EqualAtDepth(Context& context, const Value& left, const Value& right,
                                  int depth) {
  RETURN_IF_ERROR(context.Charge());
  if (depth > kMaxDataDepth) return ResourceExhausted("values nest too deep to be compared");
  if (left.is_number() && right.is_number()) return CompareNumbers(left, right) == 0;
  if (left.text() != nullptr && right.text() != nullptr) {
    RETURN_IF_ERROR(context.ChargeBytes(std::min(left.text()->size(), right.text()->size())));
    return left.text()->bytes() == right.text()->bytes();
  }
  if (left.is_undefined() || left.is_none()) {
    return left.is_undefined() ? right.is_undefined() : right.is_none();
  }
  if (left.sequence() != nullptr && right.sequence() != nullptr) {
    if (left.sequence() == right.sequence()) return true;
    if (left.sequence()->flavor != right.sequence()->flavor) return false;
    if (left.sequence()->flavor == Sequence::Flavor::kGenerator) return false;
    return EqualItems(context, left.sequence()->items, right.sequence()->items, depth + 1);
  }
  if (left.dict() != nullptr && right.dict() != nullptr) {
    if (left.dict() == right.dict()) return true;
    if (left.dict()->size() != right.dict()->size()) return false;
    for (const Dict::Entry& entry : left.dict()->entries()) {
      ASSIGN_OR_RETURN(const Value* other, right.dict()->Find(context, entry.key));
      if (other == nullptr) return false;
      ASSIGN_OR_RETURN(const bool equal, EqualAtDepth(context, entry.value, *other, depth + 1));
      if (!equal) return false;
    }
    return true;
  }
  if (left.ns() != nullptr) return left.ns() == right.ns();
  if (left.loop() != nullptr) return left.loop() == right.loop();
  if (left.callable() != nullptr) return left.callable() == right.callable();
  return false;
}

absl::StatusOr<std::partial_ordering> Order(Context& context, std::string_view op,
                                            const Value& left, const Value& right, int depth) {
  RETURN_IF_ERROR(context.Charge());
  if (left.is_undefined()) return UndefinedError(left);
  if (right.is_undefined()) return UndefinedError(right);
  if (depth > kMaxDataDepth) return ResourceExhausted("values nest too deep to be compared");
  if (left.is_number() && right.is_number()) return CompareNumbers(left, right);
  if (left.text() != nullptr && right.text() != nullptr) {
    // The order of UTF-8 bytes is the order of code points.
    RETURN_IF_ERROR(context.ChargeBytes(std::min(left.text()->size(), right.text()->size())));
    return left.text()->bytes().compare(right.text()->bytes()) <=> 0;
  }
  const bool same_kind = IsRepeatable(left) && IsRepeatable(right) && left.sequence() != nullptr &&
                         right.sequence() != nullptr &&
                         left.sequence()->flavor == right.sequence()->flavor;
  if (!same_kind) return Unsupported(op, left, right);
  const std::vector<Value>& a = left.sequence()->items;
  const std::vector<Value>& b = right.sequence()->items;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    ASSIGN_OR_RETURN(const bool equal, EqualAtDepth(context, a[i], b[i], depth + 1));
    if (!equal) return Order(context, op, a[i], b[i], depth + 1);
  }
  return a.size() <=> b.size();
}

}  // namespace

absl::Status UndefinedError(const Value& undefined) {
  return InvalidArgument(undefined.WhyUndefined());
}

bool Truthy(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (const std::optional<Int> integer = value.AsInt()) return *integer != 0;
  if (const std::optional<double> number = value.AsDouble()) return *number != 0;
  if (const Text* text = value.text()) return !text->empty();
  if (const Sequence* sequence = value.sequence()) {
    return sequence->flavor == Sequence::Flavor::kGenerator || !sequence->items.empty();
  }
  if (const Dict* dict = value.dict()) return dict->size() != 0;
  return true;
}

absl::StatusOr<Value> Arithmetic(Context& context, BinaryOp op, const Value& left,
                                 const Value& right) {
  if (op == BinaryOp::kModulo && left.text() != nullptr) {
    return FormatPercent(context, *left.text(), right);
  }
  if (left.is_undefined()) return UndefinedError(left);
  if (right.is_undefined()) return UndefinedError(right);
  if (left.is_number() && right.is_number()) {
    if (!left.is_float() && !right.is_float()) {
      return IntArithmetic(op, *left.AsInt(), *right.AsInt());
    }
    return FloatArithmetic(op, *left.AsDouble(), *right.AsDouble());
  }
  if (op == BinaryOp::kAdd) {
    if (left.text() != nullptr && right.text() != nullptr) {
      return AddTexts(context, *left.text(), *right.text());
    }
    if (left.sequence() != nullptr && right.sequence() != nullptr && IsRepeatable(left) &&
        left.sequence()->flavor == right.sequence()->flavor) {
      return AddSequences(context, *left.sequence(), *right.sequence());
    }
  }
  if (op == BinaryOp::kMultiply) {
    if (IsRepeatable(left) && right.AsInt().has_value()) {
      return Repeat(context, left, *right.AsInt());
    }
    if (IsRepeatable(right) && left.AsInt().has_value()) {
      return Repeat(context, right, *left.AsInt());
    }
  }
  return Unsupported(OpName(op), left, right);
}

absl::StatusOr<Value> Negate(const Value& operand) {
  if (operand.is_undefined()) return UndefinedError(operand);
  if (const std::optional<Int> integer = operand.AsInt()) {
    return IntArithmetic(BinaryOp::kSubtract, 0, *integer);
  }
  if (const std::optional<double> number = operand.AsDouble()) return Value::Float(-*number);
  return InvalidArgument("'-' does not take '", std::string(operand.TypeName()), "'");
}

absl::StatusOr<bool> Equal(Context& context, const Value& left, const Value& right) {
  return EqualAtDepth(context, left, right, 0);
}

absl::StatusOr<bool> Compare(Context& context, CompareOp op, const Value& left,
                             const Value& right) {
  switch (op) {
    case CompareOp::kIn:
      return Contains(context, right, left);
    case CompareOp::kNotIn: {
      ASSIGN_OR_RETURN(const bool contains, Contains(context, right, left));
      return !contains;
    }
    case CompareOp::kEqual:
      return Equal(context, left, right);
    case CompareOp::kNotEqual: {
      ASSIGN_OR_RETURN(const bool equal, Equal(context, left, right));
      return !equal;
    }
    case CompareOp::kLess: {
      ASSIGN_OR_RETURN(const auto order, Order(context, "<", left, right, 0));
      return order < 0;
    }
    case CompareOp::kLessEqual: {
      ASSIGN_OR_RETURN(const auto order, Order(context, "<=", left, right, 0));
      return order <= 0;
    }
    case CompareOp::kGreater: {
      ASSIGN_OR_RETURN(const auto order, Order(context, ">", left, right, 0));
      return order > 0;
    }
    case CompareOp::kGreaterEqual: {
      ASSIGN_OR_RETURN(const auto order, Order(context, ">=", left, right, 0));
      return order >= 0;
    }
  }
  return false;
}

absl::StatusOr<bool> Contains(Context& context, const Value& container, const Value& item) {
  if (const Text* text = container.text()) {
    if (item.is_undefined()) return UndefinedError(item);
    if (item.text() == nullptr) {
      return InvalidArgument("'in' a string needs a string on its left, not '",
                             std::string(item.TypeName()), "'");
    }
    RETURN_IF_ERROR(context.ChargeScan(text->size()));
    return FindBytes(text->bytes(), item.text()->bytes(), 0) != std::string_view::npos;
  }
  if (const Dict* dict = container.dict()) {
    ASSIGN_OR_RETURN(const Value* found, dict->Find(context, item));
    return found != nullptr;
  }
  if (container.sequence() == nullptr && !container.is_undefined()) {
    return InvalidArgument("'in' does not take '", std::string(container.TypeName()),
                           "' on its right");
  }
  ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(context, container));
  for (const Value& candidate : items) {
    ASSIGN_OR_RETURN(const bool equal, Equal(context, candidate, item));
    if (equal) return true;
  }
  return false;
}

absl::StatusOr<int64_t> Length(Context& context, const Value& value) {
  if (value.is_undefined()) return 0;
  if (const Text* text = value.text()) {
    RETURN_IF_ERROR(context.ChargeBytes(text->size()));
    return CountCodePoints(text->bytes());
  }
  if (const Dict* dict = value.dict()) return static_cast<int64_t>(dict->size());
  if (value.loop() != nullptr) return value.loop()->length;
  const Sequence* sequence = value.sequence();
  if (sequence == nullptr || sequence->flavor == Sequence::Flavor::kGenerator) {
    return InvalidArgument("a ", std::string(value.TypeName()), " has no length");
  }
  return static_cast<int64_t>(sequence->items.size());
}

absl::StatusOr<std::vector<Value>> Iterate(Context& context, const Value& value) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (Sequence* sequence = value.sequence()) {
    RETURN_IF_ERROR(context.Charge(static_cast<int64_t>(sequence->items.size())));
    if (sequence->flavor == Sequence::Flavor::kGenerator) {
      return std::exchange(sequence->items, {});
    }
    return sequence->items;
  }
  if (const Dict* dict = value.dict()) {
    RETURN_IF_ERROR(context.Charge(static_cast<int64_t>(dict->size())));
    for (const Dict::Entry& entry : dict->entries()) items.push_back(entry.key);
    return items;
  }
  if (const Text* text = value.text()) {
    for (size_t begin = 0; begin < text->size();) {
      size_t end = begin;
      NextCodePoint(text->bytes(), &end);
      Text slice = text->Slice(begin, end);
      slice.set_markup(false);
      ASSIGN_OR_RETURN(Value character, context.MakeText(std::move(slice)));
      items.push_back(std::move(character));
      begin = end;
    }
    return items;
  }
  return InvalidArgument("a ", std::string(value.TypeName()), " cannot be iterated over");
}

}  // namespace tandem::jinja
