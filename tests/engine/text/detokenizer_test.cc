#include "engine/text/detokenizer.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/text/utf8.h"
#include "tests/support/tokenizer_files.h"

namespace tandem {
namespace {

// Tokens of given bytes. The last one is special; those that begin with a space lose it as the
// first of a text.
class ScriptedTokenizer final : public Tokenizer {
 public:
  explicit ScriptedTokenizer(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {}

  absl::StatusOr<Encoding> Encode(std::string_view, const EncodeOptions&) const override {
    return Encoding();
  }
  std::string TokenBytes(int32_t id, bool first, bool include_special) const override {
    if (IsSpecial(id) && !include_special) return "";
    return first && tokens_[id].starts_with(' ') ? tokens_[id].substr(1) : tokens_[id];
  }
  int32_t vocab_size() const override { return static_cast<int32_t>(tokens_.size()); }
  std::string Piece(int32_t id) const override { return tokens_[id]; }
  bool IsSpecial(int32_t id) const override { return id + 1 == vocab_size(); }
  bool IsDefined(int32_t) const override { return true; }
  const TokenizerData& data() const override { return data_; }

 private:
  std::vector<std::string> tokens_;
  TokenizerData data_;
};

std::unique_ptr<Tokenizer> SmolLm() { return MakeTokenizer(SmolLm2Data()).value(); }

std::vector<std::string> Stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                                bool has_prompt = false, bool include_special = false) {
  Detokenizer detokenizer(tokenizer, include_special, has_prompt);
  std::vector<std::string> parts;
  for (const int32_t id : ids) parts.push_back(detokenizer.Add(id));
  parts.push_back(detokenizer.Flush());
  return parts;
}

std::string Join(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) out += part;
  return out;
}

TEST(Detokenizer, B001_PartsJoinedAreTheWholeTextForEveryHardText) {
  const std::unique_ptr<Tokenizer> tokenizer = SmolLm();
  for (const nlohmann::json& row : GoldenLines("cases.jsonl")) {
    const std::vector<int32_t> ids = row.at("smollm");
    const std::vector<std::string> parts = Stream(*tokenizer, ids);
    ASSERT_EQ(Join(parts), tokenizer->Decode(ids, false).value());
    ASSERT_EQ(Join(parts), row.value("smollm_text", row.at("text").get<std::string>()));
    for (const std::string& part : parts) ASSERT_EQ(FindInvalidUtf8(part), -1) << row.at("text");
  }
}

TEST(Detokenizer, B001_ChineseArrivesWithoutReplacementCharacters) {
  const std::unique_ptr<Tokenizer> tokenizer = SmolLm();
  const std::vector<int32_t> ids = tokenizer->Encode("你是谁？", {}).value().ids;
  ASSERT_GT(ids.size(), 4u);  // some characters take several tokens
  for (const std::string& part : Stream(*tokenizer, ids))
    EXPECT_EQ(part.find(kReplacementBytes), std::string::npos);
}

TEST(Detokenizer, B003_ALoneByteIsStillUtf8AtTheEnd) {
  const ScriptedTokenizer tokenizer({"\xE3", "\x81", "a", "</s>"});
  EXPECT_EQ(Stream(tokenizer, {0}), (std::vector<std::string>{"", "\uFFFD"}));
  EXPECT_EQ(Stream(tokenizer, {0, 1}), (std::vector<std::string>{"", "", "\uFFFD"}));
  EXPECT_EQ(Stream(tokenizer, {0, 2}), (std::vector<std::string>{"", "\uFFFDa", ""}));
  EXPECT_EQ(Stream(tokenizer, {1}), (std::vector<std::string>{"\uFFFD", ""}));
}

TEST(Detokenizer, B005_ACharacterBegunInThePromptCountsFromItsGeneratedBytesAlone) {
  const ScriptedTokenizer tokenizer({"\xE4\xBD", "\xA0", "b", "</s>"});
  // The prompt ended with token 0. Its text does not appear, and the continuation byte alone is no
  // character.
  EXPECT_EQ(Stream(tokenizer, {1, 2}, /*has_prompt=*/true),
            (std::vector<std::string>{"\uFFFD", "b", ""}));
}

TEST(Detokenizer, B007_StreamsThatBeginAtAnyTokenRecover) {
  const std::unique_ptr<Tokenizer> tokenizer = SmolLm();
  for (const nlohmann::json& row : GoldenLines("cases.jsonl")) {
    const std::vector<int32_t> ids = row.at("smollm");
    for (size_t begin = 0; begin < ids.size() && begin < 24; ++begin) {
      const std::vector<int32_t> window(ids.begin() + begin, ids.end());
      std::string bytes;
      for (const int32_t id : window) bytes += tokenizer->TokenBytes(id, false, false);
      const std::vector<std::string> parts = Stream(*tokenizer, window, /*has_prompt=*/true);
      ASSERT_EQ(Join(parts), ReplaceInvalidUtf8(bytes)) << row.at("text") << " from " << begin;
      for (const std::string& part : parts) ASSERT_EQ(FindInvalidUtf8(part), -1);
    }
  }
}

TEST(Detokenizer, B007_RandomBytesSplitAnywhereGiveTheTextOfTheWhole) {
  const unsigned char bytes[] = {0x41, 0x80, 0x9F, 0xA0, 0xBF, 0xC2, 0xE0, 0xE4,
                                 0xED, 0xF0, 0xF1, 0xF4, 0xFF, 0x90, 0x8F, 0x20};
  std::mt19937 random(11);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> tokens(random() % 8 + 1);
    std::vector<int32_t> ids;
    std::string whole;
    for (std::string& token : tokens) {
      for (int i = random() % 4; i >= 0; --i)
        token += static_cast<char>(bytes[random() % sizeof(bytes)]);
      ids.push_back(static_cast<int32_t>(ids.size()));
      whole += token;
    }
    tokens.push_back("</s>");
    const ScriptedTokenizer tokenizer(tokens);
    const std::vector<std::string> parts = Stream(tokenizer, ids, /*has_prompt=*/true);
    ASSERT_EQ(Join(parts), ReplaceInvalidUtf8(whole)) << testing::PrintToString(whole);
    for (const std::string& part : parts) ASSERT_EQ(FindInvalidUtf8(part), -1);
  }
}

TEST(Detokenizer, B009_OnlyTheFirstTokenOfATextLosesItsSpace) {
  const ScriptedTokenizer tokenizer({" I", " am", " testing", "</s>"});
  EXPECT_EQ(Join(Stream(tokenizer, {0, 1, 2})), "I am testing");
  EXPECT_EQ(Join(Stream(tokenizer, {0, 1, 2}, /*has_prompt=*/true)), " I am testing");
}

TEST(Detokenizer, B013_AReplacementCharacterInTheTextIsACharacter) {
  const ScriptedTokenizer tokenizer({"a\uFFFD", "b", "\xEF\xBF", "\xBD", "</s>"});
  EXPECT_EQ(Stream(tokenizer, {0, 1}), (std::vector<std::string>{"a\uFFFD", "b", ""}));
  EXPECT_EQ(Stream(tokenizer, {2, 3, 1}), (std::vector<std::string>{"", "\uFFFD", "b", ""}));
}

TEST(Detokenizer, SpecialTokensGiveTextOnlyOnRequestAndAreNoFirstWord) {
  const ScriptedTokenizer tokenizer({" hi", " you", "</s>"});
  EXPECT_EQ(Join(Stream(tokenizer, {2, 0, 1, 2})), "hi you");
  EXPECT_EQ(Join(Stream(tokenizer, {2, 0, 1, 2}, false, /*include_special=*/true)),
            "</s> hi you</s>");
}

TEST(Detokenizer, ACharacterMayGoOnBehindATokenWithoutText) {
  const ScriptedTokenizer tokenizer({"\xC3", "\xA9", "</s>"});
  EXPECT_EQ(Stream(tokenizer, {0, 2, 1}), (std::vector<std::string>{"", "", "é", ""}));
}

TEST(Detokenizer, IsAsNewAfterFlush) {
  const ScriptedTokenizer tokenizer({" a", "\xC3", "</s>"});
  Detokenizer detokenizer(tokenizer, false, false);
  EXPECT_EQ(detokenizer.Add(0), "a");
  EXPECT_EQ(detokenizer.Add(1), "");
  EXPECT_EQ(detokenizer.Flush(), "\uFFFD");
  EXPECT_EQ(detokenizer.Add(0), "a");
  EXPECT_EQ(detokenizer.Flush(), "");
}

}  // namespace
}  // namespace tandem
