#include "engine/text/jinja/unicode.h"

#include <string>

#include <gtest/gtest.h>

namespace tandem::jinja {
namespace {

template <typename Append>
std::string Map(char32_t code_point, Append append) {
  std::string out;
  append(code_point, &out);
  return out;
}

TEST(Utf8, IsValidOnlyInItsShortestForm) {
  for (const char* good : {"", "a", "é", "€", "🙂", "\xF4\x8F\xBF\xBF", "\xEE\x80\x80"}) {
    EXPECT_TRUE(IsValidUtf8(good)) << good;
  }
  for (const char* bad :
       {"\x80", "\xC3", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE2\x82", "\xED\xA0\x80",
        "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "a\xE2\x28\xA1"}) {
    EXPECT_FALSE(IsValidUtf8(bad));
  }
}

TEST(Utf8, EveryCodePointSurvivesEncodingAndDecoding) {
  for (char32_t c = 0; c <= 0x10FFFF; c += c < 0x3000 ? 1 : 97) {
    if (c >= 0xD800 && c < 0xE000) continue;
    const std::string bytes = Map(c, AppendUtf8);
    ASSERT_TRUE(IsValidUtf8(bytes)) << static_cast<uint32_t>(c);
    size_t position = 0;
    ASSERT_EQ(NextCodePoint(bytes, &position), c);
    ASSERT_EQ(position, bytes.size());
    ASSERT_EQ(PreviousCodePoint(bytes, bytes.size()), 0);
  }
}

TEST(Utf8, CountsAndFindsCodePoints) {
  const std::string text = "aé€🙂z";
  EXPECT_EQ(CountCodePoints(text), 5);
  EXPECT_EQ(OffsetOfCodePoint(text, 0), 0);
  EXPECT_EQ(OffsetOfCodePoint(text, 3), 6);
  EXPECT_EQ(OffsetOfCodePoint(text, 4), 10);
  EXPECT_EQ(OffsetOfCodePoint(text, 9), text.size());
}

TEST(Case, MapsAsPythonDoes) {
  EXPECT_EQ(Map(U'a', AppendUpper), "A");
  EXPECT_EQ(Map(U'ß', AppendUpper), "SS");
  EXPECT_EQ(Map(U'ß', AppendTitle), "Ss");
  EXPECT_EQ(Map(U'ÿ', AppendUpper), "Ÿ");
  EXPECT_EQ(Map(U'ā', AppendUpper), "Ā");
  EXPECT_EQ(Map(U'Ā', AppendUpper), "Ā");
  EXPECT_EQ(Map(U'Ж', AppendLower), "ж");
  EXPECT_EQ(Map(U'\u0130', AppendLower), "i\u0307");
  EXPECT_EQ(Map(U'\u01C6', AppendTitle), "\u01C5");
  EXPECT_EQ(Map(U'\U00010428', AppendUpper), "\U00010400");
  EXPECT_EQ(Map(U'好', AppendUpper), "好");
  EXPECT_TRUE(IsCased(U'a') && IsCased(U'Ж') && IsCased(U'ß'));
  EXPECT_FALSE(IsCased(U'1') || IsCased(U'好'));
}

TEST(Properties, AreThoseOfPythonsStringMethods) {
  for (const char32_t c : {U' ', U'\t', U'\x1c', U'\x85', U'\xa0', U'\u2003', U'\u3000'}) {
    EXPECT_TRUE(IsSpace(c));
  }
  for (const char32_t c : {U'a', U'\u200b', U'\ufeff', U'\u180e'}) EXPECT_FALSE(IsSpace(c));
  for (const char32_t c : {U'\n', U'\r', U'\v', U'\x1d', U'\u2028'}) EXPECT_TRUE(IsLineBreak(c));
  EXPECT_FALSE(IsLineBreak(U'\t'));
  for (const char32_t c : {U' ', U'a', U'é', U'🙂', U'\u0301'}) EXPECT_TRUE(IsPrintable(c));
  for (const char32_t c :
       {U'\x00', U'\x7f', U'\xa0', U'\xad', U'\u200d', U'\ue000', U'\U000e0001'}) {
    EXPECT_FALSE(IsPrintable(c));
  }
}

}  // namespace
}  // namespace tandem::jinja
