#include "services/text/openai/json_writer.h"

#include <charconv>
#include <cmath>

#include "engine/text/utf8.h"

namespace tandem::text {
namespace {

constexpr char kHex[] = "0123456789abcdef";

// What JSON cannot hold as it is, of ASCII.
bool NeedsEscape(char c) { return static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\'; }

void AppendEscape(char c, std::string* out) {
  out->push_back('\\');
  switch (c) {
    case '"':
    case '\\':
      return out->push_back(c);
    case '\n':
      return out->push_back('n');
    case '\r':
      return out->push_back('r');
    case '\t':
      return out->push_back('t');
    case '\b':
      return out->push_back('b');
    case '\f':
      return out->push_back('f');
    default:
      out->append("u00");
      out->push_back(kHex[static_cast<unsigned char>(c) >> 4]);
      out->push_back(kHex[c & 15]);
  }
}

}  // namespace

void AppendJsonEscaped(std::string_view text, std::string* out) {
  if (FindInvalidUtf8(text) >= 0) return AppendJsonEscaped(ReplaceInvalidUtf8(text), out);
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!NeedsEscape(text[i])) continue;
    out->append(text, begin, i - begin);
    AppendEscape(text[i], out);
    begin = i + 1;
  }
  out->append(text, begin, text.size() - begin);
}

void AppendJsonString(std::string_view text, std::string* out) {
  out->push_back('"');
  AppendJsonEscaped(text, out);
  out->push_back('"');
}

void AppendInteger(int64_t value, std::string* out) {
  char digits[24];
  out->append(digits, std::to_chars(digits, std::end(digits), value).ptr);
}

void AppendLogprob(float logprob, std::string* out) {
  if (!std::isfinite(logprob) || logprob < kMinLogprob) logprob = kMinLogprob;
  char digits[32];
  out->append(digits, std::to_chars(digits, std::end(digits), logprob).ptr);
}

void AppendProbability(float probability, std::string* out) {
  if (!(probability >= 0 && probability <= 1)) probability = 0;
  char digits[32];
  out->append(digits, std::to_chars(digits, std::end(digits), probability).ptr);
}

void AppendMilliseconds(int64_t nanos, std::string* out) {
  const int64_t micros = (nanos + 500) / 1000;
  AppendInteger(micros / 1000, out);
  const int64_t rest = micros % 1000;
  const char digits[] = {'.', static_cast<char>('0' + rest / 100),
                         static_cast<char>('0' + rest / 10 % 10),
                         static_cast<char>('0' + rest % 10)};
  out->append(digits, sizeof(digits));
}

}  // namespace tandem::text
