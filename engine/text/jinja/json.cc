#include "engine/text/jinja/json.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/print.h"
#include "engine/text/jinja/unicode.h"

namespace tandem::jinja {
namespace {

void AppendEscaped(char32_t c, bool ensure_ascii, std::string* out) {
  static constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t";
  static constexpr std::string_view kLetters = "\"\\bfnrt";
  if (c < 0x80) {
    if (const size_t found = kEscaped.find(static_cast<char>(c)); found != std::string::npos) {
      out->push_back('\\');
      out->push_back(kLetters[found]);
      return;
    }
  }
  if (c >= 0x20 && (c < 0x7F || !ensure_ascii)) {
    AppendUtf8(c, out);
  } else if (c < 0x10000) {
    absl::StrAppendFormat(out, "\\u%04x", static_cast<uint32_t>(c));
  } else {
    const auto offset = static_cast<uint32_t>(c) - 0x10000;
    absl::StrAppendFormat(out, "\\u%04x\\u%04x", 0xD800 + (offset >> 10),
                          0xDC00 + (offset & 0x3FF));
  }
}

class JsonWriter final {
 public:
  JsonWriter(Context& context, const JsonFormat& format)
      : context_(context),
        format_(format),
        item_separator_(format.item_separator.value_or(format.indent.has_value() ? "," : ", ")) {}

  absl::Status Append(const Value& value, int depth) {
    RETURN_IF_ERROR(context_.Charge());
    RETURN_IF_ERROR(context_.CheckTextSize(out_.size()));
    if (depth > kMaxDataDepth) return ResourceExhausted("a value nests too deep for JSON");
    if (value.text() != nullptr) {
      RETURN_IF_ERROR(context_.ChargeScan(value.text()->size()));
      AppendString(*value.text());
      return absl::OkStatus();
    }
    if (value.dict() != nullptr) return AppendDict(*value.dict(), depth);
    const Sequence* sequence = value.sequence();
    if (sequence != nullptr && (sequence->flavor == Sequence::Flavor::kList ||
                                sequence->flavor == Sequence::Flavor::kTuple)) {
      return AppendList(sequence->items, depth);
    }
    ASSIGN_OR_RETURN(const std::string scalar, Scalar(value));
    Add(scalar);
    return absl::OkStatus();
  }

  Text Take() { return std::move(out_); }

 private:
  static absl::StatusOr<std::string> Scalar(const Value& value) {
    if (value.is_none()) return std::string("null");
    if (value.is_bool()) return std::string(*value.AsInt() != 0 ? "true" : "false");
    if (value.is_integer()) return IntToString(*value.AsInt());
    if (value.is_float()) {
      const double number = *value.AsDouble();
      if (std::isnan(number)) return std::string("NaN");
      if (std::isinf(number)) return std::string(number < 0 ? "-Infinity" : "Infinity");
      return FloatToString(number);
    }
    if (value.is_undefined()) {
      return InvalidArgument("undefined has no JSON form: ", value.WhyUndefined());
    }
    return InvalidArgument("a ", std::string(value.TypeName()), " has no JSON form");
  }

  void Add(std::string_view bytes) { out_.Append(bytes, Origin::kScaffold); }

  void AppendString(const Text& text) {
    Add("\"");
    out_.Append(text.Transform([&](std::string_view bytes, std::string* out) {
      for (size_t position = 0; position < bytes.size();) {
        AppendEscaped(NextCodePoint(bytes, &position), format_.ensure_ascii, out);
      }
    }));
    Add("\"");
  }

  void NewLine(int depth) {
    if (!format_.indent.has_value()) return;
    std::string line = "\n";
    for (int i = 0; i < depth; ++i) line += *format_.indent;
    Add(line);
  }

  absl::Status AppendList(const std::vector<Value>& items, int depth) {
    if (items.empty()) {
      Add("[]");
      return absl::OkStatus();
    }
    Add("[");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) Add(item_separator_);
      NewLine(depth + 1);
      RETURN_IF_ERROR(Append(items[i], depth + 1));
    }
    NewLine(depth);
    Add("]");
    return absl::OkStatus();
  }

  absl::Status AppendDict(const Dict& dict, int depth) {
    if (dict.size() == 0) {
      Add("{}");
      return absl::OkStatus();
    }
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    if (format_.sort_keys) RETURN_IF_ERROR(SortByKey(&entries));
    Add("{");
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) Add(item_separator_);
      NewLine(depth + 1);
      if (const Text* key = entries[i]->key.text()) {
        RETURN_IF_ERROR(context_.ChargeScan(key->size()));
        AppendString(*key);
      } else {
        ASSIGN_OR_RETURN(const std::string scalar, Scalar(entries[i]->key));
        Add(absl::StrCat("\"", scalar, "\""));
      }
      Add(format_.key_separator);
      RETURN_IF_ERROR(Append(entries[i]->value, depth + 1));
    }
    NewLine(depth);
    Add("}");
    return absl::OkStatus();
  }

  absl::Status SortByKey(std::vector<const Dict::Entry*>* entries) {
    for (const Dict::Entry* entry : *entries) {  // so that the comparison below cannot fail
      ASSIGN_OR_RETURN([[maybe_unused]] const bool comparable,
                       Compare(context_, CompareOp::kLess, entries->front()->key, entry->key));
    }
    std::stable_sort(entries->begin(), entries->end(),
                     [&](const Dict::Entry* a, const Dict::Entry* b) {
                       return Compare(context_, CompareOp::kLess, a->key, b->key).value_or(false);
                     });
    return context_.Charge();
  }

  Context& context_;
  const JsonFormat& format_;
  const std::string item_separator_;
  Text out_;
};

}  // namespace

absl::StatusOr<Text> ToJson(Context& context, const Value& value, const JsonFormat& format) {
  JsonWriter writer(context, format);
  RETURN_IF_ERROR(writer.Append(value, 0));
  return writer.Take();
}

template <typename Json>
absl::StatusOr<Value> FromJson(Context& context, const Json& json, Origin origin, int depth) {
  const auto text = [&](const std::string& bytes) -> absl::StatusOr<TextPtr> {
    if (!IsValidUtf8(bytes)) return InvalidArgument("a string of the input is not valid UTF-8");
    return std::make_shared<const Text>(bytes, origin);
  };
  if (depth > kMaxDataDepth) {
    return InvalidArgument("the input nests deeper than ", kMaxDataDepth, " levels");
  }
  switch (json.type()) {
    case Json::value_t::null:
      return Value::NoneValue();
    case Json::value_t::boolean:
      return Value::Bool(json.template get<bool>());
    case Json::value_t::number_integer:
      return Value::Integer(json.template get<int64_t>());
    case Json::value_t::number_unsigned:
      return Value::Integer(json.template get<uint64_t>());
    case Json::value_t::number_float:
      return Value::Float(json.template get<double>());
    case Json::value_t::string: {
      ASSIGN_OR_RETURN(TextPtr held, text(json.template get_ref<const typename Json::string_t&>()));
      return Value::String(std::move(held));
    }
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) {
        ASSIGN_OR_RETURN(Value value, FromJson(context, item, origin, depth + 1));
        items.push_back(std::move(value));
      }
      return context.MakeList(std::move(items));
    }
    case Json::value_t::object: {
      ASSIGN_OR_RETURN(Dict * dict, context.MakeDict());
      for (const auto& [key, item] : json.items()) {
        RETURN_IF_ERROR(context.ChargeScan(key.size()));
        ASSIGN_OR_RETURN(const TextPtr name, text(key));
        ASSIGN_OR_RETURN(Value value, FromJson(context, item, origin, depth + 1));
        dict->SetText(name, std::move(value));
      }
      return Value::Of(dict);
    }
    case Json::value_t::binary:
    case Json::value_t::discarded:
      break;
  }
  return InvalidArgument("the input holds a JSON value of an unknown type");
}

template absl::StatusOr<Value> FromJson(Context&, const nlohmann::json&, Origin, int);
template absl::StatusOr<Value> FromJson(Context&, const nlohmann::ordered_json&, Origin, int);

absl::StatusOr<Value> ParseJson(Context& context, const Text& text) {
  // Each byte of JSON may become a value.
  RETURN_IF_ERROR(context.Charge(static_cast<int64_t>(text.size())));
  const auto json = nlohmann::ordered_json::parse(text.bytes().begin(), text.bytes().end(), nullptr,
                                                  /*allow_exceptions=*/false);
  if (json.is_discarded()) return InvalidArgument("from_json: the text is not JSON");
  return FromJson(context, json, text.origin(), 0);
}

}  // namespace tandem::jinja
