// UTF-8: checking it, cutting it and repairing it. Definitions are those of the Unicode standard,
// chapter 3.9 (table 3-7).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tandem {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;
inline constexpr std::string_view kReplacementBytes = "\xEF\xBF\xBD";

enum class Utf8State : uint8_t {
  kComplete,    // a whole character
  kIncomplete,  // a proper prefix of a character, and the text ends there
  kInvalid,     // bytes that no character can begin with, or that the next byte cannot continue
};

// What stands at the beginning of a text.
struct Utf8Step {
  Utf8State state = Utf8State::kComplete;
  // Bytes of the character or, of bad bytes, of the maximal subpart: the longest run that begins
  // some character, at least 1.
  int32_t length = 0;
  char32_t code_point = kReplacementCharacter;  // the character iff kComplete
};

// REQUIRES a text that is not empty.
Utf8Step NextUtf8(std::string_view text);

// The offset of the first byte that does not belong to a whole character; -1 if there is none.
int64_t FindInvalidUtf8(std::string_view text);

// How many bytes at the end are a proper prefix of a character: 0 to 3. Looks at raw bytes alone,
// so a U+FFFD that stands in the text is a character like any other.
int32_t IncompleteUtf8Suffix(std::string_view text);

// text with one U+FFFD for each maximal subpart of bad bytes; an incomplete end is one too.
std::string ReplaceInvalidUtf8(std::string_view text);

// REQUIRES a Unicode scalar value: at most 0x10FFFF and no surrogate.
void AppendUtf8(char32_t code_point, std::string* out);

// Unicode's White_Space property, which has not changed since Unicode 6.3.
bool IsWhiteSpace(char32_t code_point);

}  // namespace tandem
