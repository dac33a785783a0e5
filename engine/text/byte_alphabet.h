// GPT-2's byte alphabet: one printable character for each byte, in which vocabularies of byte-level
// BPE spell their tokens.
//
// Bytes that print ('!' to '~', 0xA1 to 0xAC, 0xAE to 0xFF) stand for themselves as code points;
// the other 68 are, in order, U+0100, U+0101, ... So a space is U+0120 and a newline U+010A.
// Source: `bytes_to_unicode` of the GPT-2 encoder, OpenAI 2019.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tandem {

// The bytes that spelling stands for; nullopt if it has a character outside the alphabet or is not
// UTF-8.
std::optional<std::string> BytesOfSpelling(std::string_view spelling);

std::string SpellingOfBytes(std::string_view bytes);

// The byte that a byte token stands for: "<0x00>" to "<0xFF>" with exactly two hex digits. -1 for
// any other spelling.
int ParseByteToken(std::string_view spelling);

}  // namespace tandem
