#include "engine/text/jinja/lexer.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "engine/base/status.h"
#include "engine/text/jinja/unicode.h"

namespace tandem::jinja {
namespace {

using Kind = Token::Kind;

constexpr size_t kMaxSourceBytes = size_t{1} << 20;
constexpr size_t kMaxNameBytes = 1000;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsNameChar(char c) { return IsNameStart(c) || IsDigit(c); }

// "\r\n" and "\r" become "\n"; one newline at the end goes.
std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer final {
 public:
  explicit Lexer(std::string_view source) : source_(NormalizeNewlines(source)) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (position_ < source_.size()) RETURN_IF_ERROR(LexDataAndTag());
    Add(Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  bool At(std::string_view what) const { return Rest().substr(0, what.size()) == what; }
  std::string_view Rest() const { return std::string_view(source_).substr(position_); }

  void Advance(size_t bytes) {
    line_ += static_cast<int>(
        std::count(source_.begin() + position_, source_.begin() + position_ + bytes, '\n'));
    position_ += bytes;
  }
  size_t SpacesAt(size_t from) const {
    size_t position = from;
    while (position < source_.size()) {
      size_t next = position;
      if (!IsSpace(NextCodePoint(source_, &next))) break;
      position = next;
    }
    return position - from;
  }
  void SkipSpaces() { Advance(SpacesAt(position_)); }

  void Add(Kind kind, std::string value) {
    Token token;
    token.kind = kind;
    token.value = std::move(value);
    token.line = line_;
    tokens_.push_back(std::move(token));
  }

  // Text up to the next tag, then that tag.
  absl::Status LexDataAndTag() {
    size_t tag = position_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        AddData(source_.substr(position_));
        Advance(source_.size() - position_);
        return absl::OkStatus();
      }
      const char kind = source_[tag + 1];
      if (kind == '{' || kind == '%' || kind == '#') break;
      ++tag;
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    AddData(
        TrimBeforeTag(std::string_view(source_).substr(position_, tag - position_), kind, sign));
    Advance(tag - position_ + 2);
    if (sign == '-' || sign == '+') Advance(1);
    if (kind == '#') return LexComment();
    if (kind == '%' && AtRaw()) return LexRaw();
    return LexTag(kind);
  }

  void AddData(std::string text) {
    if (!text.empty()) Add(Kind::kData, std::move(text));
  }

  // `text` ends where a tag of that kind and sign begins.
  std::string TrimBeforeTag(std::string_view text, char kind, char sign) const {
    if (sign == '-') {
      while (!text.empty()) {
        const size_t last = PreviousCodePoint(text, text.size());
        size_t position = last;
        if (!IsSpace(NextCodePoint(text, &position))) break;
        text = text.substr(0, last);
      }
    } else if (sign != '+' && kind != '{') {
      const size_t newline = text.rfind('\n');
      const size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
      const bool starts_line = newline != std::string_view::npos || after_newline_;
      if (starts_line && SpacesAt(position_ + line_start) >= text.size() - line_start) {
        text = text.substr(0, line_start);
      }
    }
    return std::string(text);
  }

  // Behind the end of a tag with the given sign. `trims` tells the tags that take the newline.
  void FinishTag(char sign, bool trims) {
    if (sign == '-') {
      SkipSpaces();
    } else if (sign != '+' && trims && At("\n")) {
      Advance(1);
    }
    after_newline_ = position_ == 0 || source_[position_ - 1] == '\n';
  }

  absl::Status LexComment() {
    const size_t end = source_.find("#}", position_);
    if (end == std::string::npos) return SyntaxError(line_, "the comment is not closed");
    const char sign = end > position_ ? source_[end - 1] : '\0';
    Advance(end + 2 - position_);
    FinishTag(sign, /*trims=*/true);
    return absl::OkStatus();
  }

  // `{%` was read: does `raw %}` follow?
  bool AtRaw() const { return FindWordTag(position_, "raw").has_value(); }

  struct TagEnd {
    char sign;
    size_t position;
  };
  // At `from`: spaces, `word`, spaces, `%}` with an optional sign.
  std::optional<TagEnd> FindWordTag(size_t from, std::string_view word) const {
    size_t position = from + SpacesAt(from);
    if (source_.compare(position, word.size(), word) != 0) return std::nullopt;
    position += word.size();
    position += SpacesAt(position);
    char sign = '\0';
    if (position < source_.size() && (source_[position] == '-' || source_[position] == '+')) {
      sign = source_[position++];
    }
    if (source_.compare(position, 2, "%}") != 0) return std::nullopt;
    return TagEnd{sign, position + 2};
  }

  absl::Status LexRaw() {
    const int first_line = line_;
    const TagEnd begin = *FindWordTag(position_, "raw");
    Advance(begin.position - position_);
    FinishTag(begin.sign, /*trims=*/false);
    for (size_t tag = position_;; tag += 2) {
      tag = source_.find("{%", tag);
      if (tag == std::string::npos) break;
      size_t inner = tag + 2;
      char sign = '\0';
      if (inner < source_.size() && (source_[inner] == '-' || source_[inner] == '+')) {
        sign = source_[inner++];
      }
      const std::optional<TagEnd> end = FindWordTag(inner, "endraw");
      if (!end.has_value()) continue;
      AddData(
          TrimBeforeTag(std::string_view(source_).substr(position_, tag - position_), '%', sign));
      Advance(end->position - position_);
      FinishTag(end->sign, /*trims=*/true);
      return absl::OkStatus();
    }
    return SyntaxError(first_line, "the raw block is not closed");
  }

  // The inside of {{ }} or {% %}, up to and with its end.
  absl::Status LexTag(char kind) {
    const int first_line = line_;
    const std::string_view closing = kind == '{' ? "}}" : "%}";
    Add(kind == '{' ? Kind::kVariableBegin : Kind::kBlockBegin, "");
    brackets_.clear();
    while (position_ < source_.size()) {
      SkipSpaces();
      // Inside brackets the end of the tag is not one: {{ {'a': {}} }}.
      if (brackets_.empty()) {
        char sign = '\0';
        std::string_view rest = Rest();
        if (!rest.empty() && (rest[0] == '-' || (rest[0] == '+' && kind == '%'))) {
          sign = rest[0];
          rest.remove_prefix(1);
        }
        if (rest.substr(0, 2) == closing) {
          Add(kind == '{' ? Kind::kVariableEnd : Kind::kBlockEnd, "");
          Advance((sign == '\0' ? 0 : 1) + 2);
          FinishTag(sign, /*trims=*/kind == '%');
          return absl::OkStatus();
        }
      }
      if (position_ < source_.size()) RETURN_IF_ERROR(LexToken());
    }
    return SyntaxError(first_line, "the tag is not closed");
  }

  absl::Status LexToken() {
    const char c = source_[position_];
    if (IsDigit(c)) return LexNumber();
    if (IsNameStart(c)) {
      size_t end = position_;
      while (end < source_.size() && IsNameChar(source_[end])) ++end;
      if (end - position_ > kMaxNameBytes) return SyntaxError(line_, "a name is too long");
      Add(Kind::kName, source_.substr(position_, end - position_));
      Advance(end - position_);
      return absl::OkStatus();
    }
    if (c == '"' || c == '\'') return LexString();
    return LexOperator();
  }

  absl::Status LexNumber();
  absl::Status LexString();
  absl::Status LexOperator();

  const std::string source_;
  size_t position_ = 0;
  int line_ = 1;
  bool after_newline_ = true;  // the token before ended with a newline, or there is none
  std::vector<char> brackets_;
  std::vector<Token> tokens_;
};

absl::Status Lexer::LexNumber() {
  // Digits may be grouped with single underscores: 1_000.
  std::string digits;
  size_t end = position_;
  const auto take_digits = [&] {
    while (end < source_.size() &&
           (IsDigit(source_[end]) || (source_[end] == '_' && end + 1 < source_.size() &&
                                      IsDigit(source_[end + 1]) && IsDigit(source_[end - 1])))) {
      if (source_[end] != '_') digits.push_back(source_[end]);
      ++end;
    }
  };
  take_digits();
  bool is_float = false;
  const bool after_dot = position_ > 0 && source_[position_ - 1] == '.';  // a.0.1 has no float
  if (!after_dot && end + 1 < source_.size() && source_[end] == '.' && IsDigit(source_[end + 1])) {
    is_float = true;
    digits.push_back(source_[end++]);
    take_digits();
  }
  if (!after_dot && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
    size_t exponent = end + 1;
    if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) {
      ++exponent;
    }
    if (exponent < source_.size() && IsDigit(source_[exponent])) {
      is_float = true;
      digits.push_back('e');
      if (source_[end + 1] == '-') digits.push_back('-');
      end = exponent;
      take_digits();
    }
  }
  Add(is_float ? Kind::kFloat : Kind::kInteger, digits);
  if (is_float) {
    double& number = tokens_.back().number;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (result.ec != std::errc()) return SyntaxError(line_, "a number is out of range");
  } else {
    const std::optional<Int> integer = ParseInt(digits);
    if (!integer.has_value()) return SyntaxError(line_, "an integer is out of range");
    if (digits.size() > 1 && digits[0] == '0' && *integer != 0) {
      return SyntaxError(line_, "an integer starts with 0");
    }
    tokens_.back().integer = *integer;
  }
  Advance(end - position_);
  return absl::OkStatus();
}

// Appends what the escape at `text[*i]` (just behind the backslash) stands for and moves behind it.
// False for one that cannot be: bad digits, a surrogate, a named character.
bool AppendEscape(std::string_view text, size_t* i, std::string* out) {
  static constexpr std::string_view kLetters = "abfnrtv\\'\"";
  static constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
  const char c = text[*i];
  if (const size_t found = kLetters.find(c); found != std::string_view::npos) {
    out->push_back(kMeanings[found]);
    ++*i;
    return true;
  }
  if (c == '\n') {  // a backslash before a newline joins the lines
    ++*i;
    return true;
  }
  const auto append = [&](size_t digits_begin, size_t max_digits, int base, bool exact) {
    uint32_t code_point = 0;
    const size_t limit = std::min(text.size(), digits_begin + max_digits);
    const auto [end, error] =
        std::from_chars(text.data() + digits_begin, text.data() + limit, code_point, base);
    const auto length = static_cast<size_t>(end - (text.data() + digits_begin));
    if (error != std::errc() || (exact && length != max_digits)) return false;
    if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point < 0xE000)) return false;
    AppendUtf8(code_point, out);
    *i = digits_begin + length;
    return true;
  };
  if (c >= '0' && c <= '7') return append(*i, 3, 8, false);
  if (c == 'x') return append(*i + 1, 2, 16, true);
  if (c == 'u') return append(*i + 1, 4, 16, true);
  if (c == 'U') return append(*i + 1, 8, 16, true);
  if (c == 'N') return false;
  out->push_back('\\');  // as in Python, an unknown escape stays as it is
  return true;
}

absl::Status Lexer::LexString() {
  const int first_line = line_;
  const char quote = source_[position_];
  size_t end = position_ + 1;
  while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
  if (end >= source_.size()) return SyntaxError(first_line, "a string is not closed");
  const std::string_view text =
      std::string_view(source_).substr(position_ + 1, end - position_ - 1);
  std::string value;
  for (size_t i = 0; i < text.size();) {
    if (text[i] != '\\') {
      value.push_back(text[i++]);
      continue;
    }
    ++i;
    if (!AppendEscape(text, &i, &value)) {
      return SyntaxError(first_line, "a string has an escape that is no character");
    }
  }
  Add(Kind::kString, std::move(value));
  Advance(end + 1 - position_);
  return absl::OkStatus();
}

absl::Status Lexer::LexOperator() {
  static constexpr std::string_view kOperators[] = {
      "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
      "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
  for (const std::string_view op : kOperators) {
    if (!At(op)) continue;
    const char c = op[0];
    if (c == '(' || c == '[' || c == '{') {
      brackets_.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (brackets_.empty() || brackets_.back() != c) {
        return SyntaxError(line_, std::string("unexpected '") + c + "'");
      }
      brackets_.pop_back();
    }
    Add(Kind::kOperator, std::string(op));
    Advance(op.size());
    return absl::OkStatus();
  }
  size_t end = position_;
  NextCodePoint(source_, &end);
  return SyntaxError(line_, absl::StrCat("unexpected '", source_.substr(position_, end - position_),
                                         "' in a tag"));
}

}  // namespace

absl::Status SyntaxError(int line, std::string_view message) {
  return InvalidArgument("line ", line, ": ", std::string(message));
}

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return InvalidArgument("the chat template has ", source.size(), " bytes: the limit is ",
                           kMaxSourceBytes);
  }
  if (!IsValidUtf8(source)) return InvalidArgument("the chat template is not valid UTF-8");
  return Lexer(source).Run();
}

}  // namespace tandem::jinja
