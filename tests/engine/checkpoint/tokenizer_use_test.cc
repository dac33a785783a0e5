// What a checkpoint says about its tokenizer makes a tokenizer that works.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_tokenizer.h"
#include "engine/text/tokenizer.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/tiny_model.h"

namespace tandem {
namespace {

using test::GgufWriter;
using ::testing::ElementsAre;

absl::StatusOr<std::unique_ptr<Tokenizer>> TokenizerOf(const GgufWriter& writer,
                                                       int32_t vocab_size) {
  const std::string bytes = writer.Build();
  auto file = GgufFile::Parse({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  if (!file.ok()) return file.status();
  auto data = ReadTokenizer(**file, vocab_size);
  if (!data.ok()) return data.status();
  return MakeTokenizer(*std::move(data));
}

// Ids: 0 <unk>, 1 <s>, 2 </s>, 3 to 258 bytes, then the pieces below.
constexpr int32_t kFirstPiece = 259;
GgufWriter SentencepieceFile() {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", byte);
    tokens.emplace_back(text);
    types.push_back(6);
  }
  std::vector<float> scores(tokens.size(), 0.0f);
  const std::vector<std::pair<std::string, float>> pieces = {
      {"▁", -10.0f}, {"a", -11.0f}, {"b", -12.0f}, {"▁a", -1.0f}, {"ab", -2.0f}, {"▁ab", -3.0f}};
  for (const auto& [piece, score] : pieces) {
    tokens.push_back(piece);
    scores.push_back(score);
    types.push_back(1);
  }
  GgufWriter writer;
  writer.Text("tokenizer.ggml.model", "llama").TextArray("tokenizer.ggml.tokens", tokens);
  writer.FloatArray("tokenizer.ggml.scores", scores).Int32Array("tokenizer.ggml.token_type", types);
  return writer.Uint32("tokenizer.ggml.bos_token_id", 1).Uint32("tokenizer.ggml.eos_token_id", 2);
}

TEST(SentencepieceFromGguf, MergesByScoreAndFallsBackToBytes) {
  const auto tokenizer = TokenizerOf(SentencepieceFile(), kFirstPiece + 6);
  if (tokenizer.status().code() == absl::StatusCode::kUnimplemented)
    GTEST_SKIP() << tokenizer.status();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto ids = [&](const char* text) { return (*tokenizer)->Encode(text, {})->ids; };
  EXPECT_THAT(ids("ab"), ElementsAre(kFirstPiece + 5));  // ▁ab
  EXPECT_THAT(ids("ab ab"), ElementsAre(kFirstPiece + 5, kFirstPiece + 5));
  EXPECT_THAT(ids("bab"), ElementsAre(kFirstPiece, kFirstPiece + 2, kFirstPiece + 4));  // ▁ b ab
  EXPECT_THAT(ids("a  b"), ElementsAre(kFirstPiece + 3, kFirstPiece, kFirstPiece,
                                       kFirstPiece + 2));  // spaces are kept
  EXPECT_THAT(ids("aé"), ElementsAre(kFirstPiece + 3, 3 + 0xC3, 3 + 0xA9));
  const std::vector<int32_t> all = {1, kFirstPiece + 5, 2};
  EXPECT_EQ(*(*tokenizer)->Decode(all, /*include_special=*/false), "ab");
}

TEST(SentencepieceFromGguf, FollowsTheFlagsOfTheFile) {
  GgufWriter writer = SentencepieceFile();
  writer.Bool("tokenizer.ggml.add_space_prefix", false).Bool("tokenizer.ggml.add_eos_token", true);
  const auto tokenizer = TokenizerOf(writer, kFirstPiece + 6);
  if (tokenizer.status().code() == absl::StatusCode::kUnimplemented)
    GTEST_SKIP() << tokenizer.status();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT((*tokenizer)->Encode("ab", {.add_special = true})->ids,
              ElementsAre(1, kFirstPiece + 4, 2));
}

TEST(TinyModelTokenizer, EncodesMergesBytesAndControlTokens) {
  const auto tokenizer =
      TokenizerOf(test::TinyModelWriter({.num_layers = 1}), test::TinyVocabSize());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto the = (*tokenizer)->Encode(" the", {});
  ASSERT_TRUE(the.ok()) << the.status();
  ASSERT_EQ(the->ids.size(), 1u);
  EXPECT_EQ((*tokenizer)->Piece(the->ids[0]), "\u0120the");
  EXPECT_THAT((*tokenizer)->Encode("<|im_start|>", {.parse_special = true})->ids, ElementsAre(1));
  EXPECT_THAT((*tokenizer)->data().end_ids, ElementsAre(0, 2));

  const std::string text =
      "Hello, the world and 12 things\n\xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x9A\x80";
  const auto encoding = (*tokenizer)->Encode(text, {});
  ASSERT_TRUE(encoding.ok()) << encoding.status();
  EXPECT_LT(encoding->ids.size(), text.size());
  EXPECT_EQ(*(*tokenizer)->Decode(encoding->ids, false), text);
}

}  // namespace
}  // namespace tandem
