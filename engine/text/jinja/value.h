// The values of the template language: Python's, as far as templates see them.
//
// A Value is small and cheap to copy. Strings are shared and never change. Containers live in the
// arena of the Context (context.h) until the rendering ends, so that lists which contain
// themselves, or nest a million deep, are harmless to destroy.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/text/jinja/text.h"

namespace tandem::jinja {

class Context;
class Value;

// Wide enough for every integer that JSON parsers hand over (signed and unsigned 64 bits).
// Arithmetic beyond it is an error.
using Int = __int128;

// What a name, attribute or item that does not exist evaluates to: prints as nothing, is false, and
// most other uses are an error that says `why`.
struct Undefined {
  std::shared_ptr<const std::string> why;
};
struct None {};

struct Sequence {
  enum class Flavor { kList, kTuple, kRange, kKeys, kValues, kItems, kGenerator };
  Flavor flavor = Flavor::kList;
  std::vector<Value> items;  // a generator's are gone once it was iterated
};

// Keeps the order of insertion. Keys: strings, numbers, booleans, none and tuples of those.
class Dict final {
 public:
  struct Entry;
  // Null when there is none. INVALID_ARGUMENT for a key that cannot be hashed (a list, a dict).
  absl::StatusOr<const Value*> Find(Context& context, const Value& key) const;
  absl::Status Set(Context& context, const Value& key, Value value);
  // The same for strings; the caller charges for their length.
  const Value* FindText(std::string_view key) const;
  void SetText(const TextPtr& key, Value value);
  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }

 private:
  void SetHashed(std::string hashed, const Value& key, Value value);
  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> index_;  // HashKey -> index in entries_
};

// What namespace(...) makes: the one object whose attributes `set` may assign.
struct Namespace {
  std::unordered_map<std::string, Value> attributes;
};

// The variable `loop` inside a for block.
struct Loop {
  std::vector<Value> items;  // empty once the loop has ended
  int64_t length = 0;
  int64_t index0 = 0;
  int64_t depth0 = 0;
  // loop(iterable) of a recursive loop: renders the body over `iterable`. Empty when not recursive.
  std::function<absl::StatusOr<Value>(Context&, const Value& iterable)> recurse;
};

struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// A macro, a global function, or a method taken without calling it.
struct Callable {
  std::string name;
  std::function<absl::StatusOr<Value>(Context&, CallArgs)> call;
};

class Value final {
 public:
  Value() = default;  // undefined
  static Value NoneValue() { return Value(None{}); }
  static Value Bool(bool value) { return Value(value); }
  static Value Integer(Int value) { return Value(value); }
  static Value Float(double value) { return Value(value); }
  static Value String(TextPtr text) { return Value(std::move(text)); }
  static Value Missing(std::string why) {
    return Value(Undefined{std::make_shared<const std::string>(std::move(why))});
  }
  static Value Of(Sequence* sequence) { return Value(sequence); }
  static Value Of(Dict* dict) { return Value(dict); }
  static Value Of(Namespace* ns) { return Value(ns); }
  static Value Of(Loop* loop) { return Value(loop); }
  static Value Of(Callable* callable) { return Value(callable); }

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_integer() const { return std::holds_alternative<Int>(data_); }  // not a boolean
  bool is_number() const { return is_bool() || is_integer() || is_float(); }

  // Each is null when the value is of another kind.
  const Text* text() const {
    const auto* held = std::get_if<TextPtr>(&data_);
    return held == nullptr ? nullptr : held->get();
  }
  TextPtr text_ptr() const {
    const auto* held = std::get_if<TextPtr>(&data_);
    return held == nullptr ? nullptr : *held;
  }
  Sequence* sequence() const { return Pointer<Sequence*>(); }
  Dict* dict() const { return Pointer<Dict*>(); }
  Namespace* ns() const { return Pointer<Namespace*>(); }
  Loop* loop() const { return Pointer<Loop*>(); }
  Callable* callable() const { return Pointer<Callable*>(); }
  // The sequence when it is a list, else null.
  Sequence* list() const {
    Sequence* held = sequence();
    return held != nullptr && held->flavor == Sequence::Flavor::kList ? held : nullptr;
  }

  // Integers and booleans (true is 1).
  std::optional<Int> AsInt() const;
  // Integers, booleans and floats.
  std::optional<double> AsDouble() const;

  // Python's name of the type, for messages: "str", "dict", ...
  std::string_view TypeName() const;
  // Why an undefined value is one; "a value is undefined" when nothing more is known.
  std::string WhyUndefined() const;

  // Equal values that can be dictionary keys have equal strings (1, 1.0 and true are equal).
  // Charges for its length.
  absl::StatusOr<std::string> HashKey(Context& context) const;

 private:
  using Data = std::variant<Undefined, None, bool, Int, double, TextPtr, Sequence*, Dict*,
                            Namespace*, Loop*, Callable*>;
  template <typename T>
  explicit Value(T data) : data_(std::in_place_type<T>, std::move(data)) {}
  template <typename T>
  T Pointer() const {
    const T* held = std::get_if<T>(&data_);
    return held == nullptr ? nullptr : *held;
  }

  Data data_;
};

struct Dict::Entry {
  Value key;
  Value value;
};

std::string IntToString(Int value);

// Decimal digits with an optional sign, nothing else. Empty when it is not that or does not fit.
std::optional<Int> ParseInt(std::string_view digits);

}  // namespace tandem::jinja
