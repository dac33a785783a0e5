// Filters over strings and single values (declared in filters.h).
#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/text/jinja/filters.h"
#include "engine/text/jinja/format.h"
#include "engine/text/jinja/json.h"
#include "engine/text/jinja/methods.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/print.h"
#include "engine/text/jinja/unicode.h"

namespace tandem::jinja {
namespace {

absl::StatusOr<Value> Default(Context& context, const Value& input, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"default_value", "boolean"}));
  const bool if_false = bound[1].has_value() && Truthy(*bound[1]);
  if (!input.is_undefined() && !(if_false && !Truthy(input))) return input;
  if (bound[0].has_value()) return *bound[0];
  return context.MakeText("", Origin::kScaffold);
}

absl::StatusOr<Value> String(Context& context, const Value& input, const CallArgs& args) {
  RETURN_IF_ERROR(BindArguments(args, {}).status());
  if (input.text() != nullptr) return input;
  ASSIGN_OR_RETURN(Text text, ToText(context, input));
  return context.MakeText(std::move(text));
}

absl::StatusOr<Value> Trim(Context& context, const Value& input, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"chars"}));
  ASSIGN_OR_RETURN(Value text, String(context, input, {}));
  CallArgs strip;
  if (bound[0].has_value()) strip.positional.push_back(*bound[0]);
  return FindTextMethod("strip")->call(context, text, strip);
}

template <Text (*change)(const Text&)>
absl::StatusOr<Value> Case(Context& context, const Value& input, const CallArgs& args) {
  RETURN_IF_ERROR(BindArguments(args, {}).status());
  ASSIGN_OR_RETURN(const Text text, ToText(context, input));
  RETURN_IF_ERROR(context.ChargeScan(text.size()));
  return context.MakeText(change(text));
}

// Words begin at the start and behind spaces and - ( { [ <, unlike the method of the same name.
Text TitleWords(const Text& text) {
  bool at_start = true;
  return text.Transform([&](std::string_view bytes, std::string* out) {
    for (size_t position = 0; position < bytes.size();) {
      const char32_t c = NextCodePoint(bytes, &position);
      at_start ? AppendUpper(c, out) : AppendLower(c, out);
      at_start = IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    }
  });
}

absl::StatusOr<Value> ReplaceFilter(Context& context, const Value& input, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"old", "new", "count"}, 2));
  ASSIGN_OR_RETURN(const Text text, ToText(context, input));
  ASSIGN_OR_RETURN(const Text from, ToText(context, *bound[0]));
  ASSIGN_OR_RETURN(const Text to, ToText(context, *bound[1]));
  Int limit = -1;
  if (bound[2].has_value() && !bound[2]->is_none()) {
    if (!bound[2]->AsInt().has_value()) return InvalidArgument("a count must be an integer");
    limit = *bound[2]->AsInt();
  }
  return Replace(context, text, from, to, limit);
}

absl::StatusOr<Value> Indent(Context& context, const Value& input, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"width", "first", "blank"}));
  if (input.text() == nullptr) return InvalidArgument("indent needs a string");
  const Text& text = *input.text();
  Text indention("    ", Origin::kScaffold);
  if (bound[0].has_value() && bound[0]->text() != nullptr) {
    indention = *bound[0]->text();
  } else if (bound[0].has_value()) {
    const std::optional<Int> width = bound[0]->AsInt();
    if (!width.has_value()) return InvalidArgument("a width must be an integer or a string");
    if (*width > 1000) return InvalidArgument("a width must be at most 1000");
    indention =
        Text(std::string(static_cast<size_t>(std::max(*width, Int{0})), ' '), Origin::kScaffold);
  }
  const bool first = bound[1].has_value() && Truthy(*bound[1]);
  const bool blank = bound[2].has_value() && Truthy(*bound[2]);
  RETURN_IF_ERROR(context.ChargeScan(text.size()));
  Text ended = text;
  ended.Append("\n", Origin::kScaffold);  // so that an empty last line counts
  const std::vector<Text> lines = SplitLines(ended);
  Text out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.Append("\n", Origin::kScaffold);
    const bool indents = i == 0 ? first : (blank || !lines[i].empty());
    if (indents) out.Append(indention);
    out.Append(lines[i]);
    RETURN_IF_ERROR(context.CheckTextSize(out.size()));
  }
  return context.MakeText(std::move(out));
}

absl::StatusOr<Value> Safe(Context& context, const Value& input, const CallArgs& args) {
  RETURN_IF_ERROR(BindArguments(args, {}).status());
  ASSIGN_OR_RETURN(Text text, ToText(context, input));
  text.set_markup(true);
  return context.MakeText(std::move(text));
}

absl::StatusOr<Value> Escape(Context& context, const Value& input, const CallArgs& args) {
  RETURN_IF_ERROR(BindArguments(args, {}).status());
  ASSIGN_OR_RETURN(const Text text, ToText(context, input));
  return context.MakeText(text.markup() ? text : EscapeHtml(text));
}

absl::StatusOr<Value> Format(Context& context, const Value& input, const CallArgs& args) {
  ASSIGN_OR_RETURN(const Text text, ToText(context, input));
  if (args.named.empty()) {
    ASSIGN_OR_RETURN(const Value values, context.MakeTuple(args.positional));
    return FormatPercent(context, text, values);
  }
  if (!args.positional.empty())
    return InvalidArgument("takes positional or named values, not both");
  ASSIGN_OR_RETURN(Dict * dict, context.MakeDict());
  for (const auto& [name, value] : args.named) {
    dict->SetText(std::make_shared<const Text>(name, Origin::kScaffold), value);
  }
  return FormatPercent(context, text, Value::Of(dict));
}

// A decimal number with white space around it, as float() reads it.
std::optional<double> ReadFloat(const Text& text) {
  const Text stripped = Strip(text, Side::kBoth, nullptr);
  std::string_view digits = stripped.bytes();
  if (digits.starts_with('+') && !digits.starts_with("+-")) digits.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

std::optional<Int> ToInt(const Value& value) {
  if (const std::optional<Int> integer = value.AsInt()) return integer;
  std::optional<double> number = value.AsDouble();
  if (const Text* text = value.text()) {
    const Text stripped = Strip(*text, Side::kBoth, nullptr);
    if (const std::optional<Int> integer = ParseInt(stripped.bytes())) return integer;
    number = ReadFloat(*text);
  }
  if (!number.has_value() || !std::isfinite(*number) || std::fabs(*number) >= 0x1p126) {
    return std::nullopt;
  }
  return static_cast<Int>(*number);
}

absl::StatusOr<Value> IntFilter(Context& context, const Value& input, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"default"}));
  if (input.is_undefined()) return UndefinedError(input);
  RETURN_IF_ERROR(context.ChargeScan(input.text() == nullptr ? 0 : input.text()->size()));
  if (const std::optional<Int> integer = ToInt(input)) return Value::Integer(*integer);
  return bound[0].value_or(Value::Integer(0));
}

absl::StatusOr<Value> FloatFilter(Context& context, const Value& input, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"default"}));
  if (input.is_undefined()) return UndefinedError(input);
  RETURN_IF_ERROR(context.ChargeScan(input.text() == nullptr ? 0 : input.text()->size()));
  std::optional<double> number = input.AsDouble();
  if (input.text() != nullptr) number = ReadFloat(*input.text());
  if (number.has_value()) return Value::Float(*number);
  return bound[0].value_or(Value::Float(0));
}

absl::StatusOr<Value> Abs(Context&, const Value& input, const CallArgs& args) {
  RETURN_IF_ERROR(BindArguments(args, {}).status());
  ASSIGN_OR_RETURN(const Value negated, Negate(input));
  if (input.is_float()) return Value::Float(std::fabs(*input.AsDouble()));
  return *input.AsInt() < 0 ? negated : Value::Integer(*input.AsInt());
}

absl::StatusOr<Value> Round(Context&, const Value& input, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound, BindArguments(args, {"precision", "method"}));
  if (input.is_undefined()) return UndefinedError(input);
  const std::optional<double> number = input.AsDouble();
  std::optional<Int> precision = 0;
  if (bound[0].has_value()) precision = bound[0]->AsInt();
  if (!number.has_value()) return InvalidArgument("round needs a number");
  if (!precision.has_value() || *precision < 0 || *precision > 100) {
    return InvalidArgument("the precision must be 0 to 100");
  }
  std::string_view method = "common";
  if (bound[1].has_value() && bound[1]->text() != nullptr) method = bound[1]->text()->bytes();
  if (method == "common") {
    if (!input.is_float()) return Value::Integer(*input.AsInt());
    // Printing rounds the exact binary value, ties to even, as Python's round does.
    const std::string rounded = absl::StrFormat("%.*f", static_cast<int>(*precision), *number);
    return Value::Float(ReadFloat(Text(rounded, Origin::kScaffold)).value_or(*number));
  }
  if (method != "ceil" && method != "floor") {
    return InvalidArgument("the method must be common, ceil or floor");
  }
  const double scale = std::pow(10.0, static_cast<double>(*precision));
  const double scaled = *number * scale;
  return Value::Float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

absl::StatusOr<Value> ToJsonFilter(Context& context, const Value& input, const CallArgs& args) {
  ASSIGN_OR_RETURN(const auto bound,
                   BindArguments(args, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonFormat format;
  format.ensure_ascii = bound[0].has_value() && Truthy(*bound[0]);
  format.sort_keys = bound[3].has_value() && Truthy(*bound[3]);
  if (bound[1].has_value() && !bound[1]->is_none()) {
    if (const Text* text = bound[1]->text()) {
      if (text->size() > 1000) return InvalidArgument("indent must be at most 1000 bytes");
      format.indent = std::string(text->bytes());
    } else {
      const std::optional<Int> width = bound[1]->AsInt();
      if (!width.has_value()) return InvalidArgument("indent must be an integer or a string");
      if (*width > 1000) return InvalidArgument("indent must be at most 1000");
      format.indent = std::string(static_cast<size_t>(std::max(*width, Int{0})), ' ');
    }
  }
  if (bound[2].has_value() && !bound[2]->is_none()) {
    const Sequence* pair = bound[2]->sequence();
    if (pair == nullptr || pair->items.size() != 2 || pair->items[0].text() == nullptr ||
        pair->items[1].text() == nullptr) {
      return InvalidArgument("separators must be two strings");
    }
    format.item_separator = std::string(pair->items[0].text()->bytes());
    format.key_separator = std::string(pair->items[1].text()->bytes());
  }
  ASSIGN_OR_RETURN(Text json, ToJson(context, input, format));
  return context.MakeText(std::move(json));
}

absl::StatusOr<Value> FromJsonFilter(Context& context, const Value& input, const CallArgs& args) {
  RETURN_IF_ERROR(BindArguments(args, {}).status());
  if (input.is_undefined()) return UndefinedError(input);
  if (input.text() == nullptr) return InvalidArgument("from_json needs a string");
  return ParseJson(context, *input.text());
}

constexpr FilterEntry kFilters[] = {
    {"abs", Abs},
    {"capitalize", Case<Capitalize>},
    {"d", Default},
    {"default", Default},
    {"e", Escape},
    {"escape", Escape},
    {"float", FloatFilter},
    {"format", Format},
    {"from_json", FromJsonFilter},
    {"indent", Indent},
    {"int", IntFilter},
    {"lower", Case<ToLower>},
    {"replace", ReplaceFilter},
    {"round", Round},
    {"safe", Safe},
    {"string", String},
    {"title", Case<TitleWords>},
    {"tojson", ToJsonFilter},
    {"trim", Trim},
    {"upper", Case<ToUpper>},
};

}  // namespace

const FilterEntry* FindTextFilter(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFilters), std::end(kFilters),
                                   [&](const FilterEntry& entry) { return entry.name == name; });
  return found == std::end(kFilters) ? nullptr : found;
}

}  // namespace tandem::jinja
