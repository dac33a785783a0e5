// Attributes, items and slices of values (declared in operators.h).
#include <algorithm>
#include <array>
#include <limits>

#include "engine/base/status.h"
#include "engine/text/jinja/methods.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/print.h"
#include "engine/text/jinja/unicode.h"

namespace tandem::jinja {
namespace {

std::string ObjectName(const Value& value) {
  if (value.is_none()) return "none";
  return absl::StrCat("'", std::string(value.TypeName()), " object'");
}

Value NoAttribute(const Value& value, std::string_view name) {
  return Value::Missing(
      absl::StrCat(ObjectName(value), " has no attribute '", std::string(name), "'"));
}

// Methods of Python's dict that would change it. Templates may not, and their names hide keys.
bool IsForbidden(const Value& value, std::string_view name) {
  static constexpr std::string_view kDictNames[] = {"clear",   "fromkeys",   "pop",
                                                    "popitem", "setdefault", "update"};
  static constexpr std::string_view kListNames[] = {"clear",  "extend",  "insert",
                                                    "remove", "reverse", "sort"};
  if (value.dict() != nullptr) {
    return std::find(std::begin(kDictNames), std::end(kDictNames), name) != std::end(kDictNames);
  }
  return value.list() != nullptr &&
         std::find(std::begin(kListNames), std::end(kListNames), name) != std::end(kListNames);
}

Value LoopAttribute(const Loop& loop, std::string_view name) {
  const auto item = [&](int64_t index, const char* why) {
    if (index >= 0 && index < static_cast<int64_t>(loop.items.size())) return loop.items[index];
    return Value::Missing(why);
  };
  if (name == "index") return Value::Integer(loop.index0 + 1);
  if (name == "index0") return Value::Integer(loop.index0);
  if (name == "revindex") return Value::Integer(loop.length - loop.index0);
  if (name == "revindex0") return Value::Integer(loop.length - loop.index0 - 1);
  if (name == "first") return Value::Bool(loop.index0 == 0);
  if (name == "last") return Value::Bool(loop.index0 + 1 == loop.length);
  if (name == "length") return Value::Integer(loop.length);
  if (name == "depth") return Value::Integer(loop.depth0 + 1);
  if (name == "depth0") return Value::Integer(loop.depth0);
  if (name == "previtem") return item(loop.index0 - 1, "there is no previous item");
  if (name == "nextitem") return item(loop.index0 + 1, "there is no next item");
  return Value::Missing(absl::StrCat("'loop' has no attribute '", std::string(name), "'"));
}

// Methods and attributes, not items. Nothing when there is none of that name.
absl::StatusOr<std::optional<Value>> FindAttribute(Context& context, const Value& value,
                                                   std::string_view name) {
  if (const MethodEntry* method = FindMethod(value, name)) {
    ASSIGN_OR_RETURN(Value bound,
                     context.MakeCallable(
                         Callable{std::string(name), [method, value](Context& c, CallArgs args) {
                                    return method->call(c, value, args);
                                  }}));
    return std::optional<Value>(std::move(bound));
  }
  if (IsForbidden(value, name)) {
    return std::optional<Value>(Value::Missing(absl::StrCat("'", std::string(name), "' of a ",
                                                            std::string(value.TypeName()),
                                                            " is not available to templates")));
  }
  if (const Namespace* ns = value.ns()) {
    const auto found = ns->attributes.find(std::string(name));
    if (found != ns->attributes.end()) return std::optional<Value>(found->second);
  }
  if (value.loop() != nullptr) return std::optional<Value>(LoopAttribute(*value.loop(), name));
  return std::optional<Value>();
}

struct SliceBounds {
  int64_t start;
  int64_t step;
  int64_t count;
};

// Python's rules for a sequence of `length`.
absl::StatusOr<SliceBounds> ResolveSlice(int64_t length, const Value& start, const Value& stop,
                                         const Value& step) {
  const auto integer = [](const Value& value, int64_t absent) -> absl::StatusOr<int64_t> {
    if (value.is_none()) return absent;
    const std::optional<Int> held = value.AsInt();
    if (value.is_undefined()) return UndefinedError(value);
    if (!held.has_value()) return InvalidArgument("a slice needs integers");
    constexpr Int kFar = int64_t{1} << 60;
    return static_cast<int64_t>(std::clamp(*held, -kFar, kFar));
  };
  ASSIGN_OR_RETURN(const int64_t by, integer(step, 1));
  if (by == 0) return InvalidArgument("the step of a slice is 0");
  const int64_t lowest = by > 0 ? 0 : -1;
  const int64_t highest = by > 0 ? length : length - 1;
  const auto clamp = [&](int64_t index) {
    return std::clamp(index < 0 ? index + length : index, lowest, highest);
  };
  SliceBounds bounds{by > 0 ? lowest : highest, by, 0};
  int64_t end = by > 0 ? highest : lowest;
  if (!start.is_none()) {
    ASSIGN_OR_RETURN(const int64_t index, integer(start, 0));
    bounds.start = clamp(index);
  }
  if (!stop.is_none()) {
    ASSIGN_OR_RETURN(const int64_t index, integer(stop, 0));
    end = clamp(index);
  }
  const int64_t distance = by > 0 ? end - bounds.start : bounds.start - end;
  const int64_t stride = by > 0 ? by : -by;
  bounds.count = distance > 0 ? (distance - 1) / stride + 1 : 0;
  return bounds;
}

absl::StatusOr<Value> SliceText(Context& context, const Text& text, const Value& start,
                                const Value& stop, const Value& step) {
  RETURN_IF_ERROR(context.ChargeBytes(text.size()));
  const std::string_view bytes = text.bytes();
  ASSIGN_OR_RETURN(const SliceBounds bounds,
                   ResolveSlice(CountCodePoints(bytes), start, stop, step));
  if (bounds.count == 0) return context.MakeText("", Origin::kScaffold);
  if (bounds.step == 1) {
    const size_t begin = OffsetOfCodePoint(bytes, bounds.start);
    const size_t length = OffsetOfCodePoint(bytes.substr(begin), bounds.count);
    return context.MakeText(text.Slice(begin, begin + length));
  }
  std::vector<size_t> offsets;  // of each code point, and the end
  for (size_t position = 0; position < bytes.size(); NextCodePoint(bytes, &position)) {
    offsets.push_back(position);
  }
  offsets.push_back(bytes.size());
  Text result;
  for (int64_t i = 0; i < bounds.count; ++i) {
    const int64_t index = bounds.start + i * bounds.step;
    result.Append(text, offsets[index], offsets[index + 1]);
  }
  return context.MakeText(std::move(result));
}

bool IsIndexable(const Sequence& sequence) {
  return sequence.flavor == Sequence::Flavor::kList ||
         sequence.flavor == Sequence::Flavor::kTuple || sequence.flavor == Sequence::Flavor::kRange;
}

}  // namespace

absl::StatusOr<Value> GetAttribute(Context& context, const Value& value, std::string_view name) {
  RETURN_IF_ERROR(context.ChargeScan(name.size()));
  if (value.is_undefined()) return UndefinedError(value);
  ASSIGN_OR_RETURN(std::optional<Value> attribute, FindAttribute(context, value, name));
  if (attribute.has_value()) return *std::move(attribute);
  if (const Dict* dict = value.dict()) {
    if (const Value* item = dict->FindText(name)) return *item;
  }
  return NoAttribute(value, name);
}

absl::StatusOr<Value> GetItem(Context& context, const Value& value, const Value& key) {
  if (value.is_undefined()) return UndefinedError(value);
  if (const Dict* dict = value.dict()) {
    const absl::StatusOr<const Value*> found = dict->Find(context, key);
    if (found.ok() && *found != nullptr) return **found;
  }
  if (const std::optional<Int> index = key.AsInt()) {
    const Sequence* sequence = value.sequence();
    const Text* text = value.text();
    if (text != nullptr || (sequence != nullptr && IsIndexable(*sequence))) {
      ASSIGN_OR_RETURN(const int64_t length, Length(context, value));
      const Int position = *index < 0 ? *index + length : *index;
      if (position < 0 || position >= length) {
        return Value::Missing(
            absl::StrCat(ObjectName(value), " has no element ", IntToString(*index)));
      }
      if (sequence != nullptr) return sequence->items[static_cast<size_t>(position)];
      const size_t begin = OffsetOfCodePoint(text->bytes(), static_cast<int64_t>(position));
      size_t end = begin;
      NextCodePoint(text->bytes(), &end);
      return context.MakeText(text->Slice(begin, end));
    }
  }
  if (const Text* name = key.text()) {
    RETURN_IF_ERROR(context.ChargeScan(name->size()));
    ASSIGN_OR_RETURN(std::optional<Value> attribute, FindAttribute(context, value, name->bytes()));
    if (attribute.has_value()) return *std::move(attribute);
    return NoAttribute(value, name->bytes());
  }
  return Value::Missing(ObjectName(value) + " has no such element");
}

absl::StatusOr<Value> GetSlice(Context& context, const Value& value, const Value& start,
                               const Value& stop, const Value& step) {
  if (value.is_undefined()) return UndefinedError(value);
  if (const Text* text = value.text()) return SliceText(context, *text, start, stop, step);
  const Sequence* sequence = value.sequence();
  if (sequence == nullptr || !IsIndexable(*sequence)) {
    return InvalidArgument("a ", std::string(value.TypeName()), " cannot be sliced");
  }
  const auto length = static_cast<int64_t>(sequence->items.size());
  ASSIGN_OR_RETURN(const SliceBounds bounds, ResolveSlice(length, start, stop, step));
  std::vector<Value> items;
  for (int64_t i = 0; i < bounds.count; ++i) {
    items.push_back(sequence->items[bounds.start + i * bounds.step]);
  }
  return context.MakeSequence(sequence->flavor, std::move(items));
}

}  // namespace tandem::jinja
