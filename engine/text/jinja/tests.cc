#include "engine/text/jinja/tests.h"

#include <algorithm>
#include <iterator>

#include "engine/base/status.h"
#include "engine/text/jinja/methods.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/print.h"
#include "engine/text/jinja/unicode.h"

namespace tandem::jinja {
namespace {

// A test without arguments that asks only what kind of value there is.
template <bool (*holds)(const Value&)>
absl::StatusOr<bool> KindTest(Context&, const Value& value, const CallArgs& args) {
  RETURN_IF_ERROR(BindArguments(args, {}).status());
  return holds(value);
}

bool IsDefined(const Value& value) { return !value.is_undefined(); }
bool IsUndefined(const Value& value) { return value.is_undefined(); }
bool IsNone(const Value& value) { return value.is_none(); }
bool IsTrue(const Value& value) { return value.is_bool() && *value.AsInt() != 0; }
bool IsFalse(const Value& value) { return value.is_bool() && *value.AsInt() == 0; }
bool IsBoolean(const Value& value) { return value.is_bool(); }
bool IsInteger(const Value& value) { return value.is_integer(); }
bool IsFloat(const Value& value) { return value.is_float(); }
bool IsNumber(const Value& value) { return value.is_number(); }
bool IsString(const Value& value) { return value.text() != nullptr; }
bool IsMapping(const Value& value) { return value.dict() != nullptr; }
bool IsIterable(const Value& value) {
  return value.is_undefined() || value.text() != nullptr || value.dict() != nullptr ||
         value.sequence() != nullptr || value.loop() != nullptr;
}
// What has a length and items, so strings and dicts too, and undefined, as in Jinja2.
bool IsSequence(const Value& value) {
  const Sequence* sequence = value.sequence();
  if (sequence == nullptr) {
    return value.is_undefined() || value.text() != nullptr || value.dict() != nullptr;
  }
  return sequence->flavor == Sequence::Flavor::kList ||
         sequence->flavor == Sequence::Flavor::kTuple ||
         sequence->flavor == Sequence::Flavor::kRange;
}
bool IsCallable(const Value& value) {
  return value.is_undefined() || value.callable() != nullptr ||
         (value.loop() != nullptr && value.loop()->recurse != nullptr);
}
bool IsEscaped(const Value& value) { return value.text() != nullptr && value.text()->markup(); }

template <CompareOp op>
absl::StatusOr<bool> CompareTest(Context& context, const Value& value, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"other"}, 1));
  return Compare(context, op, value, *bound[0]);
}

absl::StatusOr<bool> SameAsTest(Context& context, const Value& value, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"other"}, 1));
  const Value& other = *bound[0];
  if (value.sequence() != nullptr || value.dict() != nullptr) {
    return value.sequence() == other.sequence() && value.dict() == other.dict();
  }
  if (value.TypeName() != other.TypeName()) return false;
  return Equal(context, value, other);
}

template <int remainder>
absl::StatusOr<bool> ParityTest(Context& context, const Value& value, const CallArgs& args) {
  RETURN_IF_ERROR(BindArguments(args, {}).status());
  ASSIGN_OR_RETURN(const Value rest,
                   Arithmetic(context, BinaryOp::kModulo, value, Value::Integer(2)));
  return Equal(context, rest, Value::Integer(remainder));
}

absl::StatusOr<bool> DivisibleByTest(Context& context, const Value& value, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"num"}, 1));
  ASSIGN_OR_RETURN(const Value rest, Arithmetic(context, BinaryOp::kModulo, value, *bound[0]));
  return Equal(context, rest, Value::Integer(0));
}

// Has cased code points, and changing case one way changes none of them.
template <Text (*change)(const Text&)>
absl::StatusOr<bool> CaseTest(Context& context, const Value& value, const CallArgs& args) {
  RETURN_IF_ERROR(BindArguments(args, {}).status());
  ASSIGN_OR_RETURN(const Text text, ToText(context, value));
  RETURN_IF_ERROR(context.ChargeScan(text.size()));
  bool cased = false;
  for (size_t position = 0; position < text.size() && !cased;) {
    cased = IsCased(NextCodePoint(text.bytes(), &position));
  }
  return cased && change(text).bytes() == text.bytes();
}

constexpr TestEntry kTests[] = {
    {"!=", CompareTest<CompareOp::kNotEqual>},
    {"<", CompareTest<CompareOp::kLess>},
    {"<=", CompareTest<CompareOp::kLessEqual>},
    {"==", CompareTest<CompareOp::kEqual>},
    {">", CompareTest<CompareOp::kGreater>},
    {">=", CompareTest<CompareOp::kGreaterEqual>},
    {"boolean", KindTest<IsBoolean>},
    {"callable", KindTest<IsCallable>},
    {"defined", KindTest<IsDefined>},
    {"divisibleby", DivisibleByTest},
    {"eq", CompareTest<CompareOp::kEqual>},
    {"equalto", CompareTest<CompareOp::kEqual>},
    {"escaped", KindTest<IsEscaped>},
    {"even", ParityTest<0>},
    {"false", KindTest<IsFalse>},
    {"float", KindTest<IsFloat>},
    {"ge", CompareTest<CompareOp::kGreaterEqual>},
    {"greaterthan", CompareTest<CompareOp::kGreater>},
    {"gt", CompareTest<CompareOp::kGreater>},
    {"in", CompareTest<CompareOp::kIn>},
    {"integer", KindTest<IsInteger>},
    {"iterable", KindTest<IsIterable>},
    {"le", CompareTest<CompareOp::kLessEqual>},
    {"lessthan", CompareTest<CompareOp::kLess>},
    {"lower", CaseTest<ToLower>},
    {"lt", CompareTest<CompareOp::kLess>},
    {"mapping", KindTest<IsMapping>},
    {"ne", CompareTest<CompareOp::kNotEqual>},
    {"none", KindTest<IsNone>},
    {"number", KindTest<IsNumber>},
    {"odd", ParityTest<1>},
    {"sameas", SameAsTest},
    {"sequence", KindTest<IsSequence>},
    {"string", KindTest<IsString>},
    {"true", KindTest<IsTrue>},
    {"undefined", KindTest<IsUndefined>},
    {"upper", CaseTest<ToUpper>},
};

}  // namespace

const TestEntry* FindTest(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTests), std::end(kTests),
                                   [&](const TestEntry& entry) { return entry.name == name; });
  return found == std::end(kTests) ? nullptr : found;
}

}  // namespace tandem::jinja
