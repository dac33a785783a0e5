#include "services/text/openai/text_offsets.h"

#include <gmock/gmock.h>

#include <string>
#include <string_view>
#include <vector>

namespace tandem::text {
namespace {

using testing::ElementsAre;

struct Part {
  std::string_view text;
  std::vector<std::string_view> tokens;
};

std::vector<int64_t> OffsetsOf(const std::vector<Part>& parts) {
  TextOffsets offsets;
  std::vector<int64_t> out;
  for (const Part& part : parts) {
    offsets.BeginText(part.text);
    for (const std::string_view token : part.tokens) out.push_back(offsets.AddToken(token));
    offsets.EndText();
  }
  return out;
}

TEST(TextOffsets, CountCharactersNotBytes) {
  EXPECT_THAT(OffsetsOf({{"\xC3\xA9t\xC3\xA9", {"\xC3\xA9", "t", "\xC3\xA9"}}, {"!", {"!"}}}),
              ElementsAre(0, 1, 2, 3));
}

TEST(TextOffsets, TextThatComesLaterIsWaitedFor) {
  // A stop string may begin with "ab"; then it does not.
  EXPECT_THAT(OffsetsOf({{"", {"a"}}, {"", {"b"}}, {"abc", {"c"}}, {"d", {"d"}}}),
              ElementsAre(0, 1, 2, 3));
}

TEST(TextOffsets, PartsOfACharacterBeginAtIt) {
  EXPECT_THAT(
      OffsetsOf({{"x", {"x"}}, {"", {"\xE6"}}, {"\xE6\x97\xA5", {"\x97\xA5"}}, {"y", {"y"}}}),
      ElementsAre(0, 1, 1, 2));
}

TEST(TextOffsets, BytesThatAreNoCharacterAreOneReplacement) {
  EXPECT_THAT(OffsetsOf({{"", {"\xE6"}}, {"\xEF\xBF\xBDz", {"z"}}, {"y", {"y"}}}),
              ElementsAre(0, 1, 2));
}

TEST(TextOffsets, ASpecialTokenHasNoText) {
  EXPECT_THAT(OffsetsOf({{"a", {"a"}}, {"", {"<s>"}}, {"b", {"b"}}, {"c", {"c"}}}),
              ElementsAre(0, 1, 1, 2));
  EXPECT_THAT(OffsetsOf({{"abc", {"a", "<s>", "b", "</s>", "c"}}}), ElementsAre(0, 1, 1, 2, 2));
}

TEST(TextOffsets, WhatNoTokenHasIsSkipped) {
  // A space that the first token loses, and the replacement at an end.
  EXPECT_THAT(
      OffsetsOf({{"Once", {" Once"}}, {" up", {" up"}}, {"\xEF\xBF\xBD", {}}, {"!", {"!"}}}),
      ElementsAre(0, 4, 8));
}

TEST(TextOffsets, SpecialTokensWithoutEndAreNotKept) {
  TextOffsets offsets;
  offsets.BeginText("ab");
  EXPECT_EQ(offsets.AddToken("ab"), 0);
  offsets.EndText();
  for (int i = 0; i < 100'000; ++i) {
    offsets.BeginText("");
    ASSERT_LE(offsets.AddToken("<special>"), 2 + 4096 + 9);
    offsets.EndText();
  }
}

TEST(TextOffsets, AFirstTokenThatIsNotKnownHasWhatTheOthersLeave) {
  TextOffsets offsets;
  int64_t offset = -1;
  offsets.BeginText(
      "\xC3\xA9"
      "bc");
  EXPECT_EQ(offsets.AddUnknown("bc", &offset), "\xC3\xA9");
  EXPECT_EQ(offset, 0);
  EXPECT_EQ(offsets.AddToken("b"), 1);
  EXPECT_EQ(offsets.AddToken("c"), 2);
  offsets.EndText();
  TextOffsets special;
  special.BeginText("bc");
  EXPECT_EQ(special.AddUnknown("bc", &offset), "");
  EXPECT_EQ(special.AddToken("bc"), 0);
  special.EndText();
}

}  // namespace
}  // namespace tandem::text
