#include "engine/text/added_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/tokenizer_files.h"

namespace tandem {
namespace {

using testing::ElementsAre;

AddedTokenMatcher MatcherOf(std::vector<AddedToken> tokens) {
  absl::StatusOr<AddedTokenMatcher> matcher = AddedTokenMatcher::Make(std::move(tokens));
  EXPECT_TRUE(matcher.ok()) << matcher.status();
  return *std::move(matcher);
}

// Splits as "id:text" or "text", so that an expectation reads like the text.
std::vector<std::string> Split(const AddedTokenMatcher& matcher, const std::string& text,
                               const std::vector<ParseRange>& ranges) {
  std::vector<std::string> out;
  for (const AddedSplit& split : matcher.Split(text, ranges)) {
    const std::string part = text.substr(split.range.begin, split.range.end - split.range.begin);
    out.push_back(split.id < 0 ? part : std::to_string(split.id) + ":" + part);
  }
  return out;
}

std::vector<std::string> Split(const AddedTokenMatcher& matcher, const std::string& text,
                               bool parse_special = true) {
  return Split(matcher, text, {{{0, static_cast<int64_t>(text.size())}, parse_special}});
}

TEST(AddedTokens, TheLeftmostThenTheLongestMatches) {
  const AddedTokenMatcher matcher = MatcherOf(
      {{.id = 1, .content = "ab"}, {.id = 2, .content = "abc"}, {.id = 3, .content = "bcd"}});
  EXPECT_THAT(Split(matcher, "xabcdab"), ElementsAre("x", "2:abc", "d", "1:ab"));
}

TEST(AddedTokens, B063_StrippingIsAConsequenceAndNoCondition) {
  const AddedTokenMatcher rstrip =
      MatcherOf({{.id = 7, .content = "<|user|>", .special = true, .rstrip = true}});
  EXPECT_THAT(Split(rstrip, "<|user|>Hello"), ElementsAre("7:<|user|>", "Hello"));
  EXPECT_THAT(Split(rstrip, " <|user|>\u3000\n Hello"),
              ElementsAre(" ", "7:<|user|>\u3000\n ", "Hello"));
  const AddedTokenMatcher lstrip =
      MatcherOf({{.id = 7, .content = "<|user|>", .special = true, .lstrip = true}});
  EXPECT_THAT(Split(lstrip, "a<|user|> b \t<|user|>"),
              ElementsAre("a", "7:<|user|>", " b", "7: \t<|user|>"));
}

TEST(AddedTokens, SingleWordsStandBetweenNoWordCharacters) {
  const AddedTokenMatcher matcher = MatcherOf({{.id = 1, .content = "<m>", .single_word = true}});
  EXPECT_THAT(Split(matcher, "<m> é<m> <m>_ -<m>."),
              ElementsAre("1:<m>", " é<m> <m>_ -", "1:<m>", "."));
}

TEST(AddedTokens, AnUnparsedSpecialTokenHidesWhatIsInsideOfIt) {
  const AddedTokenMatcher matcher =
      MatcherOf({{.id = 1, .content = "<|a|>", .special = true}, {.id = 2, .content = "|a|"}});
  EXPECT_THAT(Split(matcher, "<|a|>|a|", false), ElementsAre("<|a|>", "2:|a|"));
  EXPECT_THAT(Split(matcher, "<|a|>|a|", true), ElementsAre("1:<|a|>", "2:|a|"));
}

TEST(AddedTokens, NoTokenIsMadeAcrossTheBorderOfTwoRanges) {
  const AddedTokenMatcher matcher = MatcherOf(
      {{.id = 1, .content = "<b>", .special = true}, {.id = 2, .content = "x<", .special = true}});
  EXPECT_THAT(Split(matcher, "x<b>", {{{0, 1}, false}, {{1, 4}, true}}), ElementsAre("x", "1:<b>"));
  EXPECT_THAT(Split(matcher, "<b>", {{{0, 2}, true}, {{2, 3}, false}}), ElementsAre("<b>"));
}

TEST(AddedTokens, ContentsThatAreEmptyEqualOrNotUtf8AreRefused) {
  EXPECT_EQ(AddedTokenMatcher::Make({{.id = 1, .content = "\xE4\xBD"}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(AddedTokenMatcher::Make({{.id = 1}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(AddedTokenMatcher::Make({{.id = 1, .content = "a"}, {.id = 2, .content = "a"}})
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(AddedTokens, B063_EveryMixOfFlagsGivesTheReferenceIds) {
  TokenizerData base = SmolLm2Data();
  base.pre_tokenizer = "gpt-2";
  base.types.clear();
  int compared = 0;
  for (const nlohmann::json& row : GoldenLines("added_tokens.jsonl")) {
    TokenizerData data = base;
    for (const nlohmann::json& token : row.at("tokens")) {
      const int32_t id = token.at("id");
      if (id >= static_cast<int32_t>(data.tokens.size())) data.tokens.resize(id + 1);
      if (data.tokens[id].empty()) data.tokens[id] = token.at("content");
      data.added_tokens.push_back({.id = id,
                                   .content = token.at("content"),
                                   .special = token.at("special"),
                                   .lstrip = token.at("lstrip"),
                                   .rstrip = token.at("rstrip"),
                                   .single_word = token.at("single_word"),
                                   .normalized = token.at("normalized")});
    }
    const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = MakeTokenizer(std::move(data));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (const nlohmann::json& example : row.at("texts")) {
      const std::string text = example.at("text");
      for (const bool parse : {false, true}) {
        const absl::StatusOr<Encoding> encoding =
            (*tokenizer)->Encode(text, {.parse_special = parse});
        ASSERT_TRUE(encoding.ok()) << encoding.status();
        const std::vector<int32_t> expected = example.at(parse ? "parsed" : "plain");
        ASSERT_EQ(encoding->ids, expected)
            << row.at("tokens") << " in " << example.at("text") << " parsed: " << parse;
        ++compared;
      }
    }
  }
  EXPECT_GE(compared, 900);
}

}  // namespace
}  // namespace tandem
