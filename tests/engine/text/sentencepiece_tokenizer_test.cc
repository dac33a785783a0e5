#include "engine/text/sentencepiece_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/text/detokenizer.h"
#include "engine/text/sentencepiece_model.h"
#include "engine/text/utf8.h"
#include "tests/support/tokenizer_files.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int32_t kBos = 1, kEos = 2, kInst = 3;

class MistralTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { tokenizer_ = MakeTokenizer(MistralData()).value().release(); }
  static void TearDownTestSuite() { delete tokenizer_; }

  static std::vector<int32_t> Ids(const std::string& text, const EncodeOptions& options = {}) {
    const absl::StatusOr<Encoding> encoding = tokenizer_->Encode(text, options);
    EXPECT_TRUE(encoding.ok()) << encoding.status();
    return encoding->ids;
  }
  static std::string Streamed(const std::vector<int32_t>& ids, bool has_prompt) {
    Detokenizer detokenizer(*tokenizer_, false, has_prompt);
    std::string out;
    for (const int32_t id : ids) {
      const std::string part = detokenizer.Add(id);
      EXPECT_EQ(FindInvalidUtf8(part), -1);
      out += part;
    }
    return out + detokenizer.Flush();
  }
  static Tokenizer* tokenizer_;
};
Tokenizer* MistralTest::tokenizer_ = nullptr;

TEST_F(MistralTest, B057_GivesTheReferenceIdsOfHardTexts) {
  int compared = 0;
  for (const nlohmann::json& row : GoldenLines("cases.jsonl")) {
    const std::vector<int32_t> expected = row.at("mistral");
    ASSERT_EQ(Ids(row.at("text")), expected) << row.at("text");
    ++compared;
  }
  EXPECT_GE(compared, 2000);
}

TEST_F(MistralTest, B001_DecodingAtOnceAndStreamingGiveTheReferenceText) {
  for (const nlohmann::json& row : GoldenLines("cases.jsonl")) {
    const std::vector<int32_t> ids = row.at("mistral");
    const std::string expected = row.value("mistral_text", row.at("text").get<std::string>());
    ASSERT_EQ(tokenizer_->Decode(ids, false).value(), expected) << row.at("text");
    ASSERT_EQ(Streamed(ids, /*has_prompt=*/false), expected) << row.at("text");
  }
}

TEST_F(MistralTest, OffsetsCoverTheTextInOrder) {
  for (const nlohmann::json& row : GoldenLines("cases.jsonl")) {
    const std::string text = row.at("text");
    const Encoding encoding = tokenizer_->Encode(text, {}).value();
    int64_t done = 0;
    for (size_t i = 0; i < encoding.ids.size(); ++i) {
      const auto [begin, end] = encoding.offsets[i];
      ASSERT_EQ(begin, done) << row.at("text");
      // U+2581 in the text is spelt like a space, and comes back as one.
      if (text.find("▁") == std::string::npos) {
        ASSERT_EQ(tokenizer_->TokenBytes(encoding.ids[i], i == 0, false),
                  text.substr(begin, end - begin))
            << row.at("text");
      }
      done = end;
    }
    ASSERT_EQ(done, static_cast<int64_t>(text.size())) << row.at("text");
  }
}

TEST_F(MistralTest, B011_ACharacterOutsideTheVocabularyIsItsBytesAndComesBack) {
  const std::vector<int32_t> ids = Ids("\uAE70");  // a Hangul syllable: EA B9 B0
  ASSERT_GE(ids.size(), 3u);
  EXPECT_EQ(tokenizer_->Piece(ids[ids.size() - 3]), "<0xEA>");
  EXPECT_EQ(tokenizer_->Piece(ids[ids.size() - 2]), "<0xB9>");
  EXPECT_EQ(tokenizer_->Piece(ids[ids.size() - 1]), "<0xB0>");
  EXPECT_EQ(tokenizer_->Decode(ids, false).value(), "\uAE70");
}

TEST_F(MistralTest, B009_OnlyTheFirstTokenOfATextLosesItsSpace) {
  const std::vector<int32_t> ids = Ids("I am testing");
  EXPECT_EQ(Streamed(ids, /*has_prompt=*/false), "I am testing");
  EXPECT_EQ(Streamed(ids, /*has_prompt=*/true), " I am testing");
  std::vector<int32_t> with_bos = Ids("I am testing");
  with_bos.insert(with_bos.begin(), kBos);
  EXPECT_EQ(tokenizer_->Decode(with_bos, false).value(), "I am testing");
}

TEST_F(MistralTest, B053_ControlTokensAreIdsOnlyWhereTheyAreParsed) {
  for (const nlohmann::json& row : GoldenLines("cases.jsonl")) {
    for (const int32_t id : Ids(row.at("text")))
      ASSERT_FALSE(tokenizer_->IsSpecial(id)) << row.at("text");
  }
  const std::vector<int32_t> ids = Ids("[INST] hi</s>", {.parse_special = true});
  EXPECT_EQ(ids.front(), kInst);
  EXPECT_EQ(ids.back(), kEos);
  EXPECT_EQ(std::vector<int32_t>(ids.begin() + 1, ids.end() - 1), Ids(" hi"));
  const std::vector<TextPiece> pieces = {{"[INST]", true}, {"a</s>b", false}, {"</s>", true}};
  const std::vector<int32_t> mixed = tokenizer_->EncodePieces(pieces, {}).value().ids;
  EXPECT_EQ(std::count(mixed.begin(), mixed.end(), kEos), 1);
  EXPECT_EQ(mixed.back(), kEos);
}

TEST_F(MistralTest, WordsFormAcrossThePiecesOfAText) {
  const std::vector<TextPiece> pieces = {{"wonder", true}, {"ful day", false}};
  EXPECT_EQ(tokenizer_->EncodePieces(pieces, {}).value().ids, Ids("wonderful day"));
}

TEST_F(MistralTest, B061_TextThatIsNotUtf8IsRefused) {
  for (const char* bad : {"\xC2", "\xE0", "\xF0"}) {
    const absl::Status status = tokenizer_->Encode(bad, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("byte 0"));
  }
}

TEST_F(MistralTest, B059_LongRunsAreEncodedAndTheTokenLimitIsExact) {
  const std::string run(1 << 20, 'a');
  EXPECT_EQ(tokenizer_->Decode(Ids(run), false).value(), run);
  EXPECT_EQ(tokenizer_->Encode(run, {.max_tokens = 10}).status().code(),
            absl::StatusCode::kResourceExhausted);
  const int64_t count = static_cast<int64_t>(Ids("three plain words").size());
  EXPECT_TRUE(tokenizer_->Encode("three plain words", {.max_tokens = count}).ok());
  EXPECT_EQ(tokenizer_->Encode("three plain words", {.max_tokens = count - 1}).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(MistralTest, TheVocabularyIsTheModels) {
  EXPECT_EQ(tokenizer_->vocab_size(), 32768);
  EXPECT_EQ(tokenizer_->Piece(kInst), "[INST]");
  EXPECT_TRUE(tokenizer_->IsSpecial(0));
  EXPECT_TRUE(tokenizer_->IsSpecial(kEos));
  EXPECT_FALSE(tokenizer_->IsSpecial(32767));
  EXPECT_EQ(tokenizer_->data().tokens.size(), 32768u);
  EXPECT_EQ(tokenizer_->TokenBytes(kEos, false, true), "</s>");
  EXPECT_EQ(tokenizer_->TokenBytes(kEos, false, false), "");
}

TEST(SentencePiece, BosAndAddedTokensBeyondTheModel) {
  TokenizerData data = MistralData();
  data.add_bos = data.add_eos = true;
  data.tokens = MakeTokenizer(data).value()->data().tokens;
  data.tokens.push_back("<tool>");
  data.types.assign(data.tokens.size(), TokenType::kNormal);
  data.types.back() = TokenType::kUserDefined;
  const std::unique_ptr<Tokenizer> tokenizer = MakeTokenizer(data).value();
  EXPECT_EQ(tokenizer->vocab_size(), 32769);
  EXPECT_THAT(tokenizer->Encode("<tool>", {.add_special = true})->ids,
              ElementsAre(kBos, 32768, kEos));
  EXPECT_EQ(tokenizer->TokenBytes(32768, true, false), "<tool>");
}

TEST(SentencePiece, DataThatContradictsTheModelIsRefused) {
  const absl::StatusCode invalid = absl::StatusCode::kInvalidArgument;
  TokenizerData data = MistralData();
  data.tokens = {"<unk>"};
  EXPECT_EQ(MakeTokenizer(data).status().code(), invalid);
  data.tokens.assign(32768, "x");
  EXPECT_EQ(MakeTokenizer(data).status().code(), invalid);
  data = MistralData();
  data.types = {TokenType::kNormal};
  EXPECT_EQ(MakeTokenizer(data).status().code(), invalid);
  data = MistralData();
  data.bos_id = 32768;
  EXPECT_EQ(MakeTokenizer(data).status().code(), invalid);
}

TEST(SentencePiece, BrokenModelsAreRefused) {
  const std::string whole = MistralData().sentencepiece_model;
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{100}, whole.size() / 2, whole.size() - 1}) {
    TokenizerData data;
    data.kind = TokenizerKind::kSentencePiece;
    data.sentencepiece_model = whole.substr(0, size);
    EXPECT_FALSE(MakeTokenizer(data).ok()) << size;
  }
}

// The wire format: field 3 is NormalizerSpec, 2 TrainerSpec.
TEST(SentencePieceSettings, DefaultsAreThoseOfTheFormat) {
  const SentencePieceSettings settings = ReadSentencePieceSettings("").value();
  EXPECT_TRUE(settings.add_dummy_prefix);
  EXPECT_TRUE(settings.remove_extra_whitespaces);
  EXPECT_TRUE(settings.escape_whitespaces);
  EXPECT_FALSE(settings.has_character_map);
  EXPECT_FALSE(settings.whitespace_as_suffix);
}

TEST(SentencePieceSettings, FieldsAreReadAndOthersSkipped) {
  const std::string normalizer =
      std::string("\x1A\x09\x12\x01x\x18", 6) + std::string("\x00\x20\x00\x28\x00", 5);
  const std::string trainer("\x12\x03\xC0\x01\x01", 5);
  const std::string other("\x25\x00\x00\x00\x00\x31\x00\x00\x00\x00\x00\x00\x00\x00", 14);
  const SentencePieceSettings settings =
      ReadSentencePieceSettings(other + normalizer + trainer).value();
  EXPECT_FALSE(settings.add_dummy_prefix);
  EXPECT_FALSE(settings.remove_extra_whitespaces);
  EXPECT_FALSE(settings.escape_whitespaces);
  EXPECT_TRUE(settings.has_character_map);
  EXPECT_TRUE(settings.whitespace_as_suffix);
}

TEST(SentencePieceSettings, BytesThatAreNoMessageAreRefused) {
  for (const std::string& bad :
       {std::string("\x1A"), std::string("\x1A\x05x"), std::string("\xFF\xFF"), std::string("\x0B"),
        std::string("\x1A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01x"),
        std::string("\x1A\x01\x18")}) {
    EXPECT_EQ(ReadSentencePieceSettings(bad).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(SentencePiece, ModelsThatRemoveWhiteSpaceAreRefusedByName) {
  TokenizerData data = MistralData();
  data.sentencepiece_model +=
      std::string("\x1A\x02\x20\x01", 4);  // a later field of the same message overrides
  const absl::Status status = MakeTokenizer(data).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("remove_extra_whitespaces"));
}

}  // namespace
}  // namespace tandem
