#include "engine/text/jinja/format.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/print.h"
#include "engine/text/jinja/unicode.h"

namespace tandem::jinja {
namespace {

constexpr int kMaxWidth = 1000;  // of a field, and digits behind the point

struct Spec {
  char fill = ' ';
  char align = '\0';  // < > ^ or the default of the type
  bool plus = false;
  bool space = false;
  bool alternate = false;
  int width = 0;
  int precision = -1;
  char type = '\0';
};

// Reads a number at `*i`; nothing there leaves `*number` alone.
absl::Status ReadNumber(std::string_view text, size_t* i, int* number) {
  if (*i >= text.size() || text[*i] < '0' || text[*i] > '9') return absl::OkStatus();
  *number = 0;
  for (; *i < text.size() && text[*i] >= '0' && text[*i] <= '9'; ++*i) {
    *number = *number * 10 + (text[*i] - '0');
    if (*number > kMaxWidth) return InvalidArgument("a format is wider than ", kMaxWidth);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> FormatInteger(const Value& value, const Spec& spec) {
  std::optional<Int> integer = value.AsInt();
  const bool in_base_10 = spec.type != 'x' && spec.type != 'X' && spec.type != 'o';
  if (!integer.has_value() && value.is_float() && in_base_10) {
    const double number = *value.AsDouble();
    if (number > -0x1p126 && number < 0x1p126) integer = static_cast<Int>(number);
  }
  if (!integer.has_value()) {
    return InvalidArgument("a format needs a number, not '", std::string(value.TypeName()), "'");
  }
  if (in_base_10) return IntToString(*integer);
  const unsigned base = spec.type == 'o' ? 8 : 16;
  auto magnitude = static_cast<unsigned __int128>(*integer);
  if (*integer < 0) magnitude = -magnitude;
  std::string digits;
  do {
    digits.push_back("0123456789abcdef"[static_cast<unsigned>(magnitude % base)]);
    magnitude /= base;
  } while (magnitude != 0);
  if (spec.alternate) digits += base == 8 ? "o0" : "x0";
  if (*integer < 0) digits.push_back('-');
  std::reverse(digits.begin(), digits.end());
  if (spec.type == 'X') {
    std::transform(digits.begin(), digits.end(), digits.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  }
  return digits;
}

absl::StatusOr<std::string> FormatFloat(const Value& value, const Spec& spec) {
  const std::optional<double> number = value.AsDouble();
  if (!number.has_value()) {
    return InvalidArgument("a format needs a number, not '", std::string(value.TypeName()), "'");
  }
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  switch (spec.type) {
    case 'e':
      return absl::StrFormat("%.*e", precision, *number);
    case 'E':
      return absl::StrFormat("%.*E", precision, *number);
    case 'g':
      return absl::StrFormat("%.*g", precision, *number);
    case 'G':
      return absl::StrFormat("%.*G", precision, *number);
    default:
      return absl::StrFormat("%.*f", precision, *number);
  }
}

// `body` within spec.width code points.
Text Pad(Text body, const Spec& spec, char default_align) {
  const int64_t missing = spec.width - CountCodePoints(body.bytes());
  if (missing <= 0) return body;
  const char align = spec.align != '\0' ? spec.align : default_align;
  if (align == '=') {  // between the sign and the digits
    const bool has_sign = !body.empty() && (body.bytes()[0] == '-' || body.bytes()[0] == '+');
    Text padded = body.Slice(0, has_sign ? 1 : 0);
    padded.Append(std::string(missing, spec.fill), Origin::kScaffold);
    padded.Append(body, has_sign ? 1 : 0, body.size());
    return padded;
  }
  const int64_t left = align == '<' ? 0 : align == '>' ? missing : missing / 2;
  Text padded;
  padded.Append(std::string(left, spec.fill), Origin::kScaffold);
  padded.Append(body);
  padded.Append(std::string(missing - left, spec.fill), Origin::kScaffold);
  return padded;
}

Text Truncate(const Text& text, int precision) {
  if (precision < 0) return text;
  return text.Slice(0, OffsetOfCodePoint(text.bytes(), precision));
}

absl::StatusOr<Text> FormatNumber(const Value& value, const Spec& spec, char default_align) {
  const bool is_float = std::string_view("fFeEgG").find(spec.type) != std::string_view::npos;
  ASSIGN_OR_RETURN(std::string digits,
                   is_float ? FormatFloat(value, spec) : FormatInteger(value, spec));
  if (digits[0] != '-' && (spec.plus || spec.space)) {
    digits = absl::StrCat(spec.plus ? "+" : " ", digits);
  }
  return Pad(Text(digits, Origin::kScaffold), spec, default_align);
}

// Hands out the values of FormatPercent.
class PercentValues final {
 public:
  explicit PercentValues(const Value& args) : args_(args) {
    const Sequence* sequence = args.sequence();
    is_tuple_ = sequence != nullptr && sequence->flavor == Sequence::Flavor::kTuple;
  }
  absl::StatusOr<Value> Next() {
    const size_t count = is_tuple_ ? args_.sequence()->items.size() : 1;
    if (used_ >= count) return InvalidArgument("a format has too few values");
    return is_tuple_ ? args_.sequence()->items[used_++] : (++used_, args_);
  }
  absl::StatusOr<Value> Named(Context& context, std::string_view name) {
    RETURN_IF_ERROR(context.ChargeScan(name.size()));
    named_ = true;
    if (args_.dict() == nullptr) return InvalidArgument("%(name) needs a dict");
    const Value* found = args_.dict()->FindText(name);
    if (found == nullptr) {
      return InvalidArgument("a format names '", std::string(name), "', which is not there");
    }
    return *found;
  }
  absl::Status CheckAllUsed() const {
    const bool lenient = named_ || args_.dict() != nullptr || args_.list() != nullptr;
    if (is_tuple_ ? used_ == args_.sequence()->items.size() : (used_ == 1 || lenient)) {
      return absl::OkStatus();
    }
    return InvalidArgument("a format has too many values");
  }

 private:
  const Value& args_;
  bool is_tuple_ = false;
  bool named_ = false;
  size_t used_ = 0;
};

absl::StatusOr<Spec> ReadPercentFlags(std::string_view bytes, size_t* i) {
  Spec spec;
  for (; *i < bytes.size(); ++*i) {
    const char c = bytes[*i];
    if (c == '-') {
      spec.align = '<';
    } else if (c == '0') {
      spec.fill = '0';
    } else if (c == '+') {
      spec.plus = true;
    } else if (c == ' ') {
      spec.space = true;
    } else if (c == '#') {
      spec.alternate = true;
    } else {
      break;
    }
  }
  RETURN_IF_ERROR(ReadNumber(bytes, i, &spec.width));
  if (*i < bytes.size() && bytes[*i] == '.') {
    ++*i;
    spec.precision = 0;
    RETURN_IF_ERROR(ReadNumber(bytes, i, &spec.precision));
  }
  return spec;
}

absl::StatusOr<Text> FormatOnePercent(Context& context, const Value& value, Spec spec) {
  switch (spec.type) {
    case 's':
    case 'r': {
      spec.fill = ' ';
      ASSIGN_OR_RETURN(const Text text,
                       spec.type == 's' ? ToText(context, value) : ToRepr(context, value));
      return Pad(Truncate(text, spec.precision), spec, '>');
    }
    case 'c': {
      if (const Text* text = value.text(); text != nullptr && CountCodePoints(text->bytes()) == 1) {
        return Pad(*text, spec, '>');
      }
      return InvalidArgument("%c needs one character");
    }
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
    case 'f':
    case 'F':
    case 'e':
    case 'E':
    case 'g':
    case 'G':
      if (value.is_undefined()) return UndefinedError(value);
      if (spec.align == '<') spec.fill = ' ';
      return FormatNumber(value, spec, spec.fill == '0' ? '=' : '>');
    default:
      return InvalidArgument("unknown conversion '%", std::string(1, spec.type), "' in a format");
  }
}

}  // namespace

absl::StatusOr<Value> FormatPercent(Context& context, const Text& format, const Value& args) {
  const std::string_view bytes = format.bytes();
  PercentValues values(args);
  Text out;
  for (size_t i = 0; i < bytes.size();) {
    const size_t percent = std::min(bytes.find('%', i), bytes.size());
    out.Append(format, i, percent);
    RETURN_IF_ERROR(context.Charge());
    RETURN_IF_ERROR(context.CheckTextSize(out.size()));
    if (percent == bytes.size()) break;
    i = percent + 1;
    std::optional<std::string_view> name;
    if (i < bytes.size() && bytes[i] == '(') {
      const size_t close = bytes.find(')', i);
      if (close == std::string_view::npos) return InvalidArgument("a format has '%(' without ')'");
      name = bytes.substr(i + 1, close - i - 1);
      i = close + 1;
    }
    ASSIGN_OR_RETURN(Spec spec, ReadPercentFlags(bytes, &i));
    if (i >= bytes.size()) return InvalidArgument("a format ends behind '%'");
    spec.type = bytes[i++];
    if (spec.type == '%') {
      out.Append("%", Origin::kScaffold);
      continue;
    }
    ASSIGN_OR_RETURN(const Value value,
                     name.has_value() ? values.Named(context, *name) : values.Next());
    ASSIGN_OR_RETURN(const Text text, FormatOnePercent(context, value, spec));
    out.Append(text);
  }
  RETURN_IF_ERROR(values.CheckAllUsed());
  return context.MakeText(std::move(out));
}

namespace {

absl::StatusOr<Spec> ReadBraceSpec(std::string_view text) {
  Spec spec;
  size_t i = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (text.size() > 1 && is_align(text[1])) {
    spec.fill = text[0];
    spec.align = text[1];
    i = 2;
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[0];
    i = 1;
  }
  if (i < text.size() && (text[i] == '+' || text[i] == '-' || text[i] == ' ')) {
    spec.plus = text[i] == '+';
    spec.space = text[i] == ' ';
    ++i;
  }
  if (i < text.size() && text[i] == '#') {
    spec.alternate = true;
    ++i;
  }
  if (i < text.size() && text[i] == '0' && spec.align == '\0') {
    spec.fill = '0';
    spec.align = '=';
  }
  RETURN_IF_ERROR(ReadNumber(text, &i, &spec.width));
  if (i < text.size() && text[i] == '.') {
    ++i;
    RETURN_IF_ERROR(ReadNumber(text, &i, &spec.precision));
    if (spec.precision < 0) return InvalidArgument("a format has no digits behind '.'");
  }
  if (i < text.size()) spec.type = text[i++];
  const bool known = spec.type == '\0' ||
                     std::string_view("sdxXoeEfFgG").find(spec.type) != std::string_view::npos;
  if (i != text.size() || !known || static_cast<unsigned char>(spec.fill) >= 0x80) {
    return InvalidArgument("the format specification '", std::string(text), "' is not supported");
  }
  return spec;
}

// The value of a field name: `0`, `name`, then any of `.attribute` and `[item]`.
absl::StatusOr<Value> FindField(Context& context, std::string_view field, const CallArgs& args,
                                size_t* next) {
  const size_t end = std::min(field.find_first_of(".["), field.size());
  const std::string_view name = field.substr(0, end);
  Value value;
  std::optional<Int> index = ParseInt(name);
  if (name.empty()) index = static_cast<Int>((*next)++);
  if (index.has_value()) {
    if (*index < 0 || *index >= static_cast<Int>(args.positional.size())) {
      return InvalidArgument("a format has too few values");
    }
    value = args.positional[static_cast<size_t>(*index)];
  } else {
    const auto found = std::find_if(args.named.begin(), args.named.end(),
                                    [&](const auto& arg) { return arg.first == name; });
    if (found == args.named.end()) {
      return InvalidArgument("a format names '", std::string(name), "', which is not there");
    }
    value = found->second;
  }
  for (size_t i = end; i < field.size();) {
    const bool is_item = field[i] == '[';
    const size_t begin = i + 1;
    const size_t stop =
        is_item ? field.find(']', begin) : std::min(field.find_first_of(".[", begin), field.size());
    if (stop == std::string_view::npos) return InvalidArgument("a format has '[' without ']'");
    const std::string_view part = field.substr(begin, stop - begin);
    if (const std::optional<Int> item = ParseInt(part); is_item && item.has_value()) {
      ASSIGN_OR_RETURN(value, GetItem(context, value, Value::Integer(*item)));
    } else {
      ASSIGN_OR_RETURN(value, GetAttribute(context, value, part));
    }
    i = is_item ? stop + 1 : stop;
  }
  return value;
}

absl::StatusOr<Text> FormatField(Context& context, std::string_view field, const CallArgs& args,
                                 size_t* next) {
  const size_t colon = std::min(field.find(':'), field.size());
  std::string_view name = field.substr(0, colon);
  char conversion = '\0';
  if (name.size() >= 2 && name[name.size() - 2] == '!') {
    conversion = name.back();
    name.remove_suffix(2);
    if (conversion != 's' && conversion != 'r') {
      return InvalidArgument("the conversion '!", std::string(1, conversion), "' is not supported");
    }
  }
  ASSIGN_OR_RETURN(const Value value, FindField(context, name, args, next));
  ASSIGN_OR_RETURN(const Spec spec, ReadBraceSpec(field.substr(std::min(colon + 1, field.size()))));
  const bool as_number = conversion == '\0' && value.is_number() && spec.type != 's' &&
                         (spec.type != '\0' || spec.width != 0 || spec.plus || spec.space);
  if (as_number && (spec.type != '\0' || value.is_integer())) {
    if (spec.type == 'd' && value.is_float()) {
      return InvalidArgument("the format 'd' does not take a float");
    }
    return FormatNumber(value, spec, '>');
  }
  if (spec.type != '\0' && spec.type != 's') {
    return InvalidArgument("the format '", std::string(1, spec.type), "' does not take '",
                           std::string(value.TypeName()), "'");
  }
  ASSIGN_OR_RETURN(const Text text,
                   conversion == 'r' ? ToRepr(context, value) : ToText(context, value));
  const bool is_number = conversion == '\0' && value.is_number();
  return Pad(Truncate(text, is_number ? -1 : spec.precision), spec, is_number ? '>' : '<');
}

}  // namespace

absl::StatusOr<Value> FormatBraces(Context& context, const Text& format, const CallArgs& args) {
  const std::string_view bytes = format.bytes();
  Text out;
  size_t next = 0;
  for (size_t i = 0; i < bytes.size();) {
    const size_t brace = std::min(bytes.find_first_of("{}", i), bytes.size());
    out.Append(format, i, brace);
    RETURN_IF_ERROR(context.Charge());
    RETURN_IF_ERROR(context.CheckTextSize(out.size()));
    if (brace == bytes.size()) break;
    const bool doubled = brace + 1 < bytes.size() && bytes[brace + 1] == bytes[brace];
    if (doubled) {
      out.Append(format, brace, brace + 1);
      i = brace + 2;
      continue;
    }
    const size_t close = bytes.find('}', brace);
    if (bytes[brace] == '}' || close == std::string_view::npos) {
      return InvalidArgument("a format has a single '", std::string(1, bytes[brace]), "'");
    }
    ASSIGN_OR_RETURN(const Text field,
                     FormatField(context, bytes.substr(brace + 1, close - brace - 1), args, &next));
    out.Append(field);
    i = close + 1;
  }
  return context.MakeText(std::move(out));
}

}  // namespace tandem::jinja
