#include "engine/text/utf8.h"

#include <algorithm>

#include "engine/base/check.h"

namespace tandem {
namespace {

// Table 3-7 of the Unicode standard: only the second byte has narrower bounds, and only behind four
// of the lead bytes.
struct Lead {
  int32_t length = 0;  // of the whole character; 0: no character begins so
  uint8_t second_min = 0x80;
  uint8_t second_max = 0xBF;
};

Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {.length = 1};
  if (byte < 0xC2) return {.length = 0};
  if (byte < 0xE0) return {.length = 2};
  if (byte == 0xE0) return {.length = 3, .second_min = 0xA0};
  if (byte == 0xED) return {.length = 3, .second_max = 0x9F};
  if (byte < 0xF0) return {.length = 3};
  if (byte == 0xF0) return {.length = 4, .second_min = 0x90};
  if (byte < 0xF4) return {.length = 4};
  if (byte == 0xF4) return {.length = 4, .second_max = 0x8F};
  return {.length = 0};
}

}  // namespace

Utf8Step NextUtf8(std::string_view text) {
  TANDEM_CHECK(!text.empty());
  const auto byte_at = [&](int32_t i) { return static_cast<uint8_t>(text[i]); };
  const Lead lead = LeadOf(byte_at(0));
  if (lead.length == 0) return {Utf8State::kInvalid, 1, kReplacementCharacter};
  if (lead.length == 1) return {Utf8State::kComplete, 1, byte_at(0)};
  char32_t code_point = byte_at(0) & (0x7F >> lead.length);
  for (int32_t i = 1; i < lead.length; ++i) {
    if (i == static_cast<int32_t>(text.size()))
      return {Utf8State::kIncomplete, i, kReplacementCharacter};
    const uint8_t byte = byte_at(i);
    const uint8_t low = i == 1 ? lead.second_min : 0x80;
    const uint8_t high = i == 1 ? lead.second_max : 0xBF;
    if (byte < low || byte > high) return {Utf8State::kInvalid, i, kReplacementCharacter};
    code_point = (code_point << 6) | (byte & 0x3F);
  }
  return {Utf8State::kComplete, lead.length, code_point};
}

int64_t FindInvalidUtf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (static_cast<uint8_t>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const Utf8Step step = NextUtf8(text.substr(at));
    if (step.state != Utf8State::kComplete) return static_cast<int64_t>(at);
    at += step.length;
  }
  return -1;
}

int32_t IncompleteUtf8Suffix(std::string_view text) {
  // The last byte that is no continuation byte decides; further back than three bytes an incomplete
  // character cannot begin.
  const size_t reach = std::min<size_t>(3, text.size());
  for (size_t back = 1; back <= reach; ++back) {
    const auto byte = static_cast<uint8_t>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    const Utf8Step step = NextUtf8(text.substr(text.size() - back));
    return step.state == Utf8State::kIncomplete ? step.length : 0;
  }
  return 0;
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = NextUtf8(text);
    out.append(step.state == Utf8State::kComplete ? text.substr(0, step.length)
                                                  : kReplacementBytes);
    text.remove_prefix(step.length);
  }
  return out;
}

void AppendUtf8(char32_t code_point, std::string* out) {
  TANDEM_CHECK(code_point <= 0x10FFFF && (code_point < 0xD800 || code_point > 0xDFFF))
      << static_cast<uint32_t>(code_point);
  const auto push = [&](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  const auto tail = [&](int shift) { push(0x80 | ((code_point >> shift) & 0x3F)); };
  if (code_point < 0x80) {
    push(code_point);
  } else if (code_point < 0x800) {
    push(0xC0 | (code_point >> 6));
    tail(0);
  } else if (code_point < 0x10000) {
    push(0xE0 | (code_point >> 12));
    tail(6);
    tail(0);
  } else {
    push(0xF0 | (code_point >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

bool IsWhiteSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

}  // namespace tandem
