#include "engine/checkpoint/gguf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/sentencepiece_proto.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/tiny_model.h"

namespace tandem {
namespace {

using test::GgufWriter;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<TokenizerData> Read(const GgufWriter& writer, int32_t vocab_size) {
  const std::string bytes = writer.Build();
  auto file = GgufFile::Parse({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  if (!file.ok()) return file.status();
  return ReadTokenizer(**file, vocab_size);
}

std::string MessageOf(const GgufWriter& writer, int32_t vocab_size,
                      absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const absl::Status status = Read(writer, vocab_size).status();
  EXPECT_EQ(status.code(), code) << status;
  return std::string(status.message());
}

// ---- byte-level BPE ----

GgufWriter Bpe() {
  GgufWriter writer;
  writer.Text("tokenizer.ggml.model", "gpt2").Text("tokenizer.ggml.pre", "gpt-2");
  writer.TextArray("tokenizer.ggml.tokens",
                   {"a", "b", "ab", "<|im_end|>", "<|eot_id|>", "<tool>", "<|end|>"});
  writer.Int32Array("tokenizer.ggml.token_type", {1, 1, 1, 3, 3, 4, 1});
  writer.TextArray("tokenizer.ggml.merges", {"a b"});
  return writer.Uint32("tokenizer.ggml.eos_token_id", 3);
}
constexpr int32_t kBpeSize = 7;

TEST(GgufTokenizer, ReadsAByteLevelVocabulary) {
  const auto data = Read(Bpe(), kBpeSize);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->kind, TokenizerKind::kByteLevelBpe);
  EXPECT_EQ(data->pre_tokenizer, "gpt-2");
  EXPECT_EQ(data->tokens[2], "ab");
  EXPECT_EQ(data->types[5], TokenType::kUserDefined);
  EXPECT_THAT(data->merges, ElementsAre("a b"));
  EXPECT_EQ(data->bos_id, -1);
  EXPECT_EQ(data->eos_id, 3);
  EXPECT_FALSE(data->add_bos);
  EXPECT_FALSE(data->add_space_prefix);
  EXPECT_TRUE(data->chat_template.empty());
}

TEST(GgufTokenizer, ControlTokensAreSpecialAndUserDefinedOnesAreNot) {
  const auto data = Read(Bpe(), kBpeSize);
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ(data->added_tokens.size(), 3u);
  EXPECT_EQ(data->added_tokens[0].content, "<|im_end|>");
  EXPECT_TRUE(data->added_tokens[0].special);
  EXPECT_EQ(data->added_tokens[2].id, 5);
  EXPECT_FALSE(data->added_tokens[2].special);
}

TEST(GgufTokenizer, EndsAreNamedIdsAndControlTokensThatEndATurn) {
  GgufWriter writer = Bpe();
  EXPECT_THAT(Read(writer, kBpeSize)->end_ids,
              ElementsAre(3, 4));  // "<|end|>" is a normal token here
  EXPECT_THAT(Read(writer.Uint32("tokenizer.ggml.eot_token_id", 5), kBpeSize)->end_ids,
              ElementsAre(3, 4, 5));
}

TEST(GgufTokenizer, ReadsBosFlagAndTemplate) {
  GgufWriter writer = Bpe();
  writer.Bool("tokenizer.ggml.add_bos_token", true);
  EXPECT_THAT(MessageOf(writer, kBpeSize), HasSubstr("names no bos token"));
  writer.Uint32("tokenizer.ggml.bos_token_id", 0).Text("tokenizer.chat_template", "{{ messages }}");
  const auto data = Read(writer, kBpeSize);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_TRUE(data->add_bos);
  EXPECT_EQ(data->chat_template, "{{ messages }}");
}

TEST(GgufTokenizer, B055_RefusesAByteLevelVocabularyWithoutAPreTokenizer) {
  GgufWriter writer = Bpe();
  EXPECT_THAT(MessageOf(writer.Remove("tokenizer.ggml.pre"), kBpeSize),
              HasSubstr("\"tokenizer.ggml.pre\" is missing"));
}

TEST(GgufTokenizer, RefusesOtherKindsOfVocabularyByName) {
  for (const char* model : {"bert", "t5", "rwkv", "none"}) {
    GgufWriter writer = Bpe();
    writer.Remove("tokenizer.ggml.model").Text("tokenizer.ggml.model", model);
    EXPECT_THAT(MessageOf(writer, kBpeSize, absl::StatusCode::kUnimplemented), HasSubstr(model));
  }
}

TEST(GgufTokenizer, RefusesArraysOfDifferentLengths) {
  EXPECT_THAT(MessageOf(Bpe(), kBpeSize + 1), HasSubstr("the tokenizer has 7 tokens, the model 8"));
  GgufWriter writer = Bpe();
  writer.Remove("tokenizer.ggml.token_type").Int32Array("tokenizer.ggml.token_type", {1, 1});
  EXPECT_THAT(MessageOf(writer, kBpeSize), HasSubstr("7 tokens and 2 token types"));
}

TEST(GgufTokenizer, RefusesTypesAndIdsOutOfRange) {
  for (const int32_t type : {0, 7, -1}) {
    GgufWriter writer = Bpe();
    writer.Remove("tokenizer.ggml.token_type")
        .Int32Array("tokenizer.ggml.token_type", {1, 1, 1, 3, 3, 4, type});
    EXPECT_THAT(MessageOf(writer, kBpeSize), HasSubstr("types are 1 to 6"));
  }
  GgufWriter writer = Bpe();
  EXPECT_THAT(MessageOf(writer.Uint32("tokenizer.ggml.bos_token_id", 7), kBpeSize),
              HasSubstr("it must be 0 to 6"));
}

TEST(GgufTokenizer, RefusesAFileWithoutOne) {
  EXPECT_THAT(MessageOf(GgufWriter(), 4), HasSubstr("\"tokenizer.ggml.model\" is missing"));
}

// ---- sentencepiece ----

std::string ByteToken(int byte) {
  char text[8];
  std::snprintf(text, sizeof(text), "<0x%02X>", byte);
  return text;
}

struct Pieces {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<float> scores = {0, 0, 0};
  std::vector<int32_t> types = {2, 3, 3};

  void Add(const std::string& token, float score, int32_t type) {
    tokens.push_back(token);
    scores.push_back(score);
    types.push_back(type);
  }
  void AddBytes() {
    for (int byte = 0; byte < 256; ++byte) Add(ByteToken(byte), 0, 6);
  }
  int32_t size() const { return static_cast<int32_t>(tokens.size()); }
  GgufWriter Writer() const {
    GgufWriter writer;
    writer.Text("tokenizer.ggml.model", "llama").TextArray("tokenizer.ggml.tokens", tokens);
    writer.FloatArray("tokenizer.ggml.scores", scores)
        .Int32Array("tokenizer.ggml.token_type", types);
    return writer.Uint32("tokenizer.ggml.bos_token_id", 1).Uint32("tokenizer.ggml.eos_token_id", 2);
  }
};

TEST(GgufTokenizer, WritesASentencepieceModelFromPiecesAndScores) {
  Pieces pieces;
  pieces.AddBytes();
  pieces.Add("▁a", -1.0f, 1);
  const auto data = Read(pieces.Writer(), pieces.size());
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->kind, TokenizerKind::kSentencePiece);
  EXPECT_EQ(data->unknown_id, 0);
  EXPECT_TRUE(data->add_bos);
  EXPECT_TRUE(data->add_space_prefix);
  EXPECT_EQ(data->tokens.size(), 260u);
  // The first piece, byte for byte: field 1 of 14 bytes {piece "<unk>", score 0, type UNKNOWN}.
  const std::string first("\x0a\x0e\x0a\x05<unk>\x15\0\0\0\0\x18\x02", 16);
  EXPECT_EQ(data->sentencepiece_model.substr(0, first.size()), first);
}

TEST(GgufTokenizer, B067_ParsesByteTokensStrictly) {
  for (const char* spelling : {"<0x-1>", "<0x+1>", "<0x 1>", "<0x1>", "<0x100>", "<0xG0>", "0x41",
                               "<0X41>", "<0x41", "<0x4a>"}) {
    Pieces pieces;
    pieces.AddBytes();
    pieces.tokens[3 + 0x41] = spelling;
    EXPECT_THAT(MessageOf(pieces.Writer(), pieces.size()),
                HasSubstr("token 68 is a byte token spelled"))
        << spelling;
  }
}

TEST(GgufTokenizer, B067_WantsEveryByteTokenOnceOrNone) {
  Pieces twice;
  twice.AddBytes();
  twice.tokens[3] = "<0x41>";
  EXPECT_THAT(MessageOf(twice.Writer(), twice.size()), HasSubstr("\"<0x41>\" is there twice"));
  Pieces few;
  few.Add("<0x41>", 0, 6);
  EXPECT_THAT(MessageOf(few.Writer(), few.size()),
              HasSubstr("1 byte tokens: there must be none or 256"));
  Pieces none;
  none.Add("▁a", -1, 1);
  EXPECT_TRUE(Read(none.Writer(), none.size()).ok());
}

TEST(GgufTokenizer, RefusesASentencepieceVocabularyThatContradictsItself) {
  Pieces pieces;
  pieces.Add("▁a", -1, 1);
  GgufWriter no_scores = pieces.Writer();
  EXPECT_THAT(MessageOf(no_scores.Remove("tokenizer.ggml.scores"), 4),
              HasSubstr("scores\" is missing"));
  GgufWriter few_scores = pieces.Writer();
  few_scores.Remove("tokenizer.ggml.scores").FloatArray("tokenizer.ggml.scores", {1.0f});
  EXPECT_THAT(MessageOf(few_scores, 4), HasSubstr("4 tokens and 1 scores"));
  Pieces nan = pieces;
  nan.scores[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(MessageOf(nan.Writer(), 4), HasSubstr("token 3 has the score"));
  Pieces no_unknown = pieces;
  no_unknown.types[0] = 3;
  EXPECT_THAT(MessageOf(no_unknown.Writer(), 4), HasSubstr("no token of the type unknown"));
  Pieces empty = pieces;
  empty.tokens[3] = "";
  EXPECT_THAT(MessageOf(empty.Writer(), 4), HasSubstr("token 3 is an empty piece"));
}

TEST(GgufTokenizer, MakesControlTokensOfAllUnknownTokensButOne) {
  Pieces pieces;
  pieces.Add("<placeholder>", 0, 2);
  GgufWriter writer = pieces.Writer();
  const auto first = Read(writer, pieces.size());
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->unknown_id, 0);
  EXPECT_EQ(first->types[3], TokenType::kControl);
  const auto named = Read(writer.Uint32("tokenizer.ggml.unknown_token_id", 3), pieces.size());
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->unknown_id, 3);
  EXPECT_EQ(named->types[0], TokenType::kControl);
}

// ---- fingerprint ----

TEST(TokenizerFingerprint, ChangesWithEveryField) {
  const auto data = Read(Bpe(), kBpeSize);
  ASSERT_TRUE(data.ok()) << data.status();
  const std::string first = TokenizerFingerprint(*data);
  EXPECT_EQ(first.size(), 32u);
  EXPECT_EQ(TokenizerFingerprint(*data), first);
  const auto changed = [&](auto change) {
    TokenizerData copy = *data;
    change(copy);
    return TokenizerFingerprint(copy) != first;
  };
  EXPECT_TRUE(changed([](TokenizerData& d) { d.kind = TokenizerKind::kSentencePiece; }));
  EXPECT_TRUE(changed([](TokenizerData& d) { d.pre_tokenizer = "smollm"; }));
  EXPECT_TRUE(changed([](TokenizerData& d) { d.tokens[0] = "c"; }));
  EXPECT_TRUE(changed([](TokenizerData& d) { d.types[0] = TokenType::kUnused; }));
  EXPECT_TRUE(changed([](TokenizerData& d) { d.merges.clear(); }));
  EXPECT_TRUE(changed([](TokenizerData& d) { d.added_tokens[0].rstrip = true; }));
  EXPECT_TRUE(changed([](TokenizerData& d) { d.sentencepiece_model = "m"; }));
  EXPECT_TRUE(changed([](TokenizerData& d) { d.bos_id = 1; }));
  EXPECT_TRUE(changed([](TokenizerData& d) { d.add_eos = true; }));
  EXPECT_TRUE(changed([](TokenizerData& d) { d.end_ids.push_back(6); }));
  EXPECT_TRUE(changed([](TokenizerData& d) { d.chat_template = "x"; }));
}

}  // namespace
}  // namespace tandem
