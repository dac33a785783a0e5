#include "engine/text/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "engine/base/status.h"
#include "engine/text/jinja/context.h"

namespace tandem::jinja {
namespace {

std::string TextKey(std::string_view text) { return absl::StrCat("s", std::string(text)); }

}  // namespace

const Value* Dict::FindText(std::string_view key) const {
  const auto found = index_.find(TextKey(key));
  return found == index_.end() ? nullptr : &entries_[found->second].value;
}

absl::StatusOr<const Value*> Dict::Find(Context& context, const Value& key) const {
  ASSIGN_OR_RETURN(const std::string hashed, key.HashKey(context));
  const auto found = index_.find(hashed);
  return found == index_.end() ? nullptr : &entries_[found->second].value;
}

absl::Status Dict::Set(Context& context, const Value& key, Value value) {
  ASSIGN_OR_RETURN(std::string hashed, key.HashKey(context));
  SetHashed(std::move(hashed), key, std::move(value));
  return absl::OkStatus();
}

void Dict::SetText(const TextPtr& key, Value value) {
  SetHashed(TextKey(key->bytes()), Value::String(key), std::move(value));
}

void Dict::SetHashed(std::string hashed, const Value& key, Value value) {
  const auto [place, inserted] = index_.emplace(std::move(hashed), entries_.size());
  if (inserted) {
    entries_.push_back({key, std::move(value)});
  } else {
    entries_[place->second].value = std::move(value);
  }
}

std::optional<Int> Value::AsInt() const {
  if (const bool* held = std::get_if<bool>(&data_)) return *held ? 1 : 0;
  if (const Int* held = std::get_if<Int>(&data_)) return *held;
  return std::nullopt;
}

std::optional<double> Value::AsDouble() const {
  if (const double* held = std::get_if<double>(&data_)) return *held;
  if (const std::optional<Int> integer = AsInt()) return static_cast<double>(*integer);
  return std::nullopt;
}

std::string_view Value::TypeName() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_integer()) return "int";
  if (is_float()) return "float";
  if (text() != nullptr) return "str";
  if (dict() != nullptr) return "dict";
  if (ns() != nullptr) return "Namespace";
  if (loop() != nullptr) return "LoopContext";
  if (callable() != nullptr) return "function";
  switch (sequence()->flavor) {
    case Sequence::Flavor::kList:
      return "list";
    case Sequence::Flavor::kTuple:
      return "tuple";
    case Sequence::Flavor::kRange:
      return "range";
    case Sequence::Flavor::kKeys:
      return "dict_keys";
    case Sequence::Flavor::kValues:
      return "dict_values";
    case Sequence::Flavor::kItems:
      return "dict_items";
    case Sequence::Flavor::kGenerator:
      return "generator";
  }
  return "object";
}

std::string Value::WhyUndefined() const {
  const auto* held = std::get_if<Undefined>(&data_);
  return held != nullptr && held->why != nullptr ? *held->why : "a value is undefined";
}

absl::StatusOr<std::string> Value::HashKey(Context& context) const {
  RETURN_IF_ERROR(context.ChargeScan(text() == nullptr ? 0 : text()->size()));
  if (const Text* held = text()) return TextKey(held->bytes());
  if (is_none()) return std::string("n");
  if (is_undefined()) return std::string("u");
  if (const std::optional<Int> integer = AsInt()) return absl::StrCat("i", IntToString(*integer));
  if (const double* held = std::get_if<double>(&data_)) {
    if (std::floor(*held) == *held && std::fabs(*held) < 0x1p100) {
      return absl::StrCat("i", IntToString(static_cast<Int>(*held)));
    }
    return absl::StrCat("f", std::hash<double>()(*held));
  }
  if (Sequence* held = sequence(); held != nullptr && held->flavor == Sequence::Flavor::kTuple) {
    // A tuple cannot contain itself, but one may be nested deep: only flat ones are keys.
    std::string key = "t";
    for (const Value& item : held->items) {
      if (item.sequence() != nullptr || item.dict() != nullptr) {
        return InvalidArgument("a tuple that holds a ", std::string(item.TypeName()),
                               " cannot be a dictionary key");
      }
      ASSIGN_OR_RETURN(const std::string part, item.HashKey(context));
      absl::StrAppend(&key, part.size(), ":", part);
    }
    return key;
  }
  if (sequence() != nullptr || dict() != nullptr) {
    return InvalidArgument("unhashable type: '", std::string(TypeName()), "'");
  }
  return InvalidArgument("a ", std::string(TypeName()), " cannot be a dictionary key");
}

std::string IntToString(Int value) {
  if (value == 0) return "0";
  const bool negative = value < 0;
  auto magnitude = static_cast<unsigned __int128>(value);
  if (negative) magnitude = -magnitude;
  std::string digits;
  for (; magnitude != 0; magnitude /= 10) {
    digits.push_back(static_cast<char>('0' + static_cast<int>(magnitude % 10)));
  }
  if (negative) digits.push_back('-');
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::optional<Int> ParseInt(std::string_view digits) {
  const bool negative = !digits.empty() && digits[0] == '-';
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) digits.remove_prefix(1);
  if (digits.empty()) return std::nullopt;
  Int value = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return std::nullopt;
    if (__builtin_mul_overflow(value, Int{10}, &value)) return std::nullopt;
    const Int digit = negative ? -(c - '0') : c - '0';
    if (__builtin_add_overflow(value, digit, &value)) return std::nullopt;
  }
  return value;
}

}  // namespace tandem::jinja
