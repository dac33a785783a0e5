#include "engine/text/byte_alphabet.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace tandem {
namespace {

TEST(ByteAlphabet, EveryByteHasItsOwnCharacter) {
  std::set<std::string> spellings;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text(1, static_cast<char>(byte));
    const std::string spelling = SpellingOfBytes(text);
    EXPECT_TRUE(spellings.insert(spelling).second);
    EXPECT_EQ(BytesOfSpelling(spelling), text);
  }
}

TEST(ByteAlphabet, SpellsAsGpt2Does) {
  EXPECT_EQ(SpellingOfBytes(" the"), "Ġthe");
  EXPECT_EQ(SpellingOfBytes("\n\t\r"), "Ċĉč");
  EXPECT_EQ(SpellingOfBytes("é"), "Ã©");
  EXPECT_EQ(SpellingOfBytes("\xAD\x7F"), "Ńġ");
}

TEST(ByteAlphabet, OtherCharactersAreNotInIt) {
  EXPECT_EQ(BytesOfSpelling("a b"), std::nullopt);
  EXPECT_EQ(BytesOfSpelling("中"), std::nullopt);
  EXPECT_EQ(BytesOfSpelling("\xFF"), std::nullopt);
  EXPECT_EQ(BytesOfSpelling("\u0144"), std::nullopt);  // one behind the last stand-in
}

TEST(ByteToken, B067_TakesExactlyTwoHexDigits) {
  EXPECT_EQ(ParseByteToken("<0x00>"), 0);
  EXPECT_EQ(ParseByteToken("<0xfF>"), 255);
  for (const char* bad : {"<0x-1>", "<0x+1>", "<0x 1>", "<0x1>", "<0x100>", "<0xG0>", "0x00",
                          "<0x00", "<0X00>", ""}) {
    EXPECT_EQ(ParseByteToken(bad), -1) << bad;
  }
}

}  // namespace
}  // namespace tandem
