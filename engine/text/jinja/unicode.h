// Code points of UTF-8 strings and the properties that Python's string methods go by
// (Unicode 14.0).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::jinja {

// True iff `bytes` is well-formed UTF-8: shortest forms only, no surrogates, nothing above
// U+10FFFF. Every string inside the interpreter is.
bool IsValidUtf8(std::string_view bytes);

// The code point at `*position`, which moves past it. REQUIRES valid UTF-8, *position < size.
char32_t NextCodePoint(std::string_view bytes, size_t* position);

// The offset of the code point that ends at `position`. REQUIRES valid UTF-8, position > 0.
size_t PreviousCodePoint(std::string_view bytes, size_t position);

int64_t CountCodePoints(std::string_view bytes);

// The byte offset of code point `index`; bytes.size() when there are fewer. REQUIRES index >= 0.
size_t OffsetOfCodePoint(std::string_view bytes, int64_t index);

// REQUIRES a code point that UTF-8 can hold.
void AppendUtf8(char32_t code_point, std::string* out);

bool IsSpace(char32_t code_point);      // as str.isspace
bool IsLineBreak(char32_t code_point);  // as str.splitlines
bool IsPrintable(char32_t code_point);  // as str.isprintable

// Full case mappings (one code point may become up to three), without those that depend on the
// neighbours (the final form of the Greek sigma).
void AppendUpper(char32_t code_point, std::string* out);
void AppendLower(char32_t code_point, std::string* out);
void AppendTitle(char32_t code_point, std::string* out);

// True iff the code point has an upper, lower or title case form.
bool IsCased(char32_t code_point);

}  // namespace tandem::jinja
