#include "engine/text/jinja/print.h"

#include <charconv>
#include <cmath>

#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/unicode.h"

namespace tandem::jinja {
namespace {

class Printer final {
 public:
  explicit Printer(Context& context) : context_(context) {}

  absl::Status AppendRepr(const Value& value, int depth) {
    RETURN_IF_ERROR(context_.Charge());
    RETURN_IF_ERROR(context_.CheckTextSize(out_.size()));
    if (depth > kMaxDataDepth) return ResourceExhausted("a value nests too deep to be printed");
    if (const Text* text = value.text()) {
      RETURN_IF_ERROR(context_.ChargeScan(text->size()));
      if (text->markup()) Add("Markup(");
      AppendQuoted(*text);
      if (text->markup()) Add(")");
    } else if (value.sequence() != nullptr) {
      return AppendSequence(*value.sequence(), depth);
    } else if (value.dict() != nullptr) {
      return AppendDict(*value.dict(), depth);
    } else {
      Add(value.is_undefined() ? "Undefined" : Plain(value));
    }
    return absl::OkStatus();
  }

  // Values that are not strings and hold none.
  static std::string Plain(const Value& value) {
    if (value.is_undefined()) return "";
    if (value.is_none()) return "None";
    if (value.is_bool()) return *value.AsInt() != 0 ? "True" : "False";
    if (value.is_integer()) return IntToString(*value.AsInt());
    if (value.is_float()) return FloatToString(*value.AsDouble());
    if (value.ns() != nullptr) return "<Namespace>";
    if (value.loop() != nullptr) {
      return absl::StrCat("<LoopContext ", value.loop()->index0 + 1, "/", value.loop()->length,
                          ">");
    }
    return absl::StrCat("<function ", value.callable()->name, ">");
  }

  Text Take() { return std::move(out_); }

 private:
  void Add(std::string_view bytes) { out_.Append(bytes, Origin::kScaffold); }

  void AppendQuoted(const Text& text) {
    const bool has_single = text.bytes().find('\'') != std::string_view::npos;
    const bool has_double = text.bytes().find('"') != std::string_view::npos;
    const char quote = has_single && !has_double ? '"' : '\'';
    Add(std::string(1, quote));
    out_.Append(text.Transform([quote](std::string_view bytes, std::string* out) {
      for (size_t position = 0; position < bytes.size();) {
        AppendReprOf(NextCodePoint(bytes, &position), quote, out);
      }
    }));
    Add(std::string(1, quote));
  }

  static void AppendReprOf(char32_t c, char quote, std::string* out) {
    if (c == '\\' || c == static_cast<unsigned char>(quote)) {
      out->push_back('\\');
      out->push_back(static_cast<char>(c));
    } else if (c == '\n') {
      out->append("\\n");
    } else if (c == '\r') {
      out->append("\\r");
    } else if (c == '\t') {
      out->append("\\t");
    } else if (IsPrintable(c)) {
      AppendUtf8(c, out);
    } else if (c < 0x100) {
      absl::StrAppendFormat(out, "\\x%02x", static_cast<uint32_t>(c));
    } else if (c < 0x10000) {
      absl::StrAppendFormat(out, "\\u%04x", static_cast<uint32_t>(c));
    } else {
      absl::StrAppendFormat(out, "\\U%08x", static_cast<uint32_t>(c));
    }
  }

  absl::Status AppendItems(const std::vector<Value>& items, int depth) {
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) Add(", ");
      RETURN_IF_ERROR(AppendRepr(items[i], depth + 1));
    }
    return absl::OkStatus();
  }

  absl::Status AppendSequence(const Sequence& sequence, int depth) {
    switch (sequence.flavor) {
      case Sequence::Flavor::kGenerator:
        Add("<generator>");
        return absl::OkStatus();
      case Sequence::Flavor::kRange:
        AppendRange(sequence.items);
        return absl::OkStatus();
      case Sequence::Flavor::kTuple:
        Add("(");
        RETURN_IF_ERROR(AppendItems(sequence.items, depth));
        Add(sequence.items.size() == 1 ? ",)" : ")");
        return absl::OkStatus();
      case Sequence::Flavor::kList:
        Add("[");
        RETURN_IF_ERROR(AppendItems(sequence.items, depth));
        Add("]");
        return absl::OkStatus();
      case Sequence::Flavor::kKeys:
      case Sequence::Flavor::kValues:
      case Sequence::Flavor::kItems:
        break;
    }
    Add(sequence.flavor == Sequence::Flavor::kKeys     ? "dict_keys(["
        : sequence.flavor == Sequence::Flavor::kValues ? "dict_values(["
                                                       : "dict_items([");
    RETURN_IF_ERROR(AppendItems(sequence.items, depth));
    Add("])");
    return absl::OkStatus();
  }

  // A range that is equal as a sequence: its bounds are not kept.
  void AppendRange(const std::vector<Value>& items) {
    const Int first = items.empty() ? 0 : *items.front().AsInt();
    const Int step = items.size() < 2 ? 1 : *items[1].AsInt() - first;
    const Int stop = first + step * static_cast<Int>(items.size());
    Add(absl::StrCat("range(", IntToString(first), ", ", IntToString(stop)));
    if (step != 1) Add(absl::StrCat(", ", IntToString(step)));
    Add(")");
  }

  absl::Status AppendDict(const Dict& dict, int depth) {
    Add("{");
    bool first = true;
    for (const Dict::Entry& entry : dict.entries()) {
      if (!std::exchange(first, false)) Add(", ");
      RETURN_IF_ERROR(AppendRepr(entry.key, depth + 1));
      Add(": ");
      RETURN_IF_ERROR(AppendRepr(entry.value, depth + 1));
    }
    Add("}");
    return absl::OkStatus();
  }

  Context& context_;
  Text out_;
};

}  // namespace

absl::StatusOr<Text> ToText(Context& context, const Value& value) {
  if (value.text() != nullptr) {
    RETURN_IF_ERROR(context.ChargeBytes(value.text()->size()));
    return *value.text();
  }
  if (value.sequence() != nullptr || value.dict() != nullptr) return ToRepr(context, value);
  return Text(Printer::Plain(value), Origin::kScaffold);
}

absl::StatusOr<Text> ToRepr(Context& context, const Value& value) {
  Printer printer(context);
  RETURN_IF_ERROR(printer.AppendRepr(value, 0));
  return printer.Take();
}

std::string FloatToString(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // to_chars gives the shortest digits that read back, d.ddde±xx; only the layout is Python's.
  char buffer[32];
  const auto [end, error] =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  std::string_view shortest(buffer, static_cast<size_t>(end - buffer));
  std::string out;
  if (shortest[0] == '-') {
    out = "-";
    shortest.remove_prefix(1);
  }
  const size_t e = shortest.find('e');
  int exponent = 0;
  const size_t digits_of_exponent = e + (shortest[e + 1] == '+' ? 2 : 1);
  std::from_chars(shortest.data() + digits_of_exponent, shortest.data() + shortest.size(),
                  exponent);
  std::string digits(shortest.substr(0, 1));
  if (e > 2) digits += shortest.substr(2, e - 2);
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (count > 1) absl::StrAppend(&out, ".", digits.substr(1));
    absl::StrAppendFormat(&out, "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
  } else if (exponent < 0) {
    absl::StrAppend(&out, "0.", std::string(static_cast<size_t>(-exponent - 1), '0'), digits);
  } else if (count <= exponent + 1) {
    out += digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  } else {
    absl::StrAppend(&out, digits.substr(0, exponent + 1), ".", digits.substr(exponent + 1));
  }
  return out;
}

Text EscapeHtml(const Text& text) {
  Text escaped = text.Transform([](std::string_view bytes, std::string* out) {
    for (const char c : bytes) {
      switch (c) {
        case '&':
          out->append("&amp;");
          break;
        case '<':
          out->append("&lt;");
          break;
        case '>':
          out->append("&gt;");
          break;
        case '\'':
          out->append("&#39;");
          break;
        case '"':
          out->append("&#34;");
          break;
        default:
          out->push_back(c);
      }
    }
  });
  escaped.set_markup(true);
  return escaped;
}

}  // namespace tandem::jinja
