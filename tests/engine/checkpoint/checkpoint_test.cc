#include "engine/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_checkpoint.h"
#include "kernels/reference/dequantize.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/tiny_model.h"

namespace tandem {
namespace {

using kernels::DType;
using test::GgufWriter;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CheckpointTest : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Checkpoint>> Make(const GgufWriter& writer) {
    bytes_ = writer.Build();
    auto file = GgufFile::Parse({reinterpret_cast<const uint8_t*>(bytes_.data()), bytes_.size()});
    if (!file.ok()) return file.status();
    return MakeGgufCheckpoint(*std::move(file));
  }
  // The model must be sound.
  const Checkpoint& Open(const GgufWriter& writer) {
    auto made = Make(writer);
    EXPECT_TRUE(made.ok()) << made.status();
    checkpoint_ = *std::move(made);
    return *checkpoint_;
  }

  std::string bytes_;
  std::unique_ptr<Checkpoint> checkpoint_;
};

TEST_F(CheckpointTest, ReadsTheConfigurationOfALlama) {
  const ModelConfig& config =
      Open(test::TinyModelWriter({.num_layers = 3, .norm_epsilon = 0.01f})).config();
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.name, "tiny random model");
  EXPECT_EQ(config.num_layers, 3);
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.ffn_size, 96);
  EXPECT_EQ(config.vocab_size, test::TinyVocabSize());
  EXPECT_EQ(config.context_length, 512);
  EXPECT_EQ(config.attention.num_heads, 4);
  EXPECT_EQ(config.attention.num_kv_heads, 2);
  EXPECT_EQ(config.attention.head_dim, 64);
  EXPECT_EQ(config.attention_scale, 0.125f);
  EXPECT_EQ(config.rotary_dim, 64);
  EXPECT_EQ(config.rope_base, 10000.0);
  EXPECT_EQ(config.rope_pairs, kernels::RopePairs::kInterleaved);
  EXPECT_EQ(config.rope_scaling.kind, RopeScaling::Kind::kNone);
  EXPECT_THAT(config.layer_windows, ElementsAre(0, 0, 0));
  EXPECT_FALSE(config.tied_output);
}

TEST_F(CheckpointTest, B105_TakesTheEpsilonOfTheFile) {
  EXPECT_EQ(Open(test::TinyModelWriter({.norm_epsilon = 1e-6f})).config().norm_epsilon, 1e-6f);
  EXPECT_EQ(Open(test::TinyModelWriter({.norm_epsilon = 0.01f})).config().norm_epsilon, 0.01f);
}

TEST_F(CheckpointTest, TakesHeadDimFromTheWidthWhereTheFileHasNone) {
  GgufWriter writer = test::TinyModelWriter({.head_dim = 16});
  writer.Remove("llama.attention.key_length").Remove("llama.attention.value_length");
  EXPECT_EQ(Open(writer).config().attention.head_dim, 16);
}

TEST_F(CheckpointTest, TakesOneKvHeadPerHeadWhereTheFileNamesNone) {
  GgufWriter writer = test::TinyModelWriter({.num_kv_heads = 4});
  writer.Remove("llama.attention.head_count_kv");
  EXPECT_EQ(Open(writer).config().attention.num_kv_heads, 4);
}

TEST_F(CheckpointTest, TakesTheVocabularySizeFromTheTokenizerWhereTheFileHasNoOther) {
  GgufWriter writer = test::TinyModelWriter({});
  EXPECT_EQ(Open(writer.Remove("llama.vocab_size")).config().vocab_size, test::TinyVocabSize());
  EXPECT_THAT(std::string(Make(writer.Remove("tokenizer.ggml.tokens")).status().message()),
              HasSubstr("size of the vocabulary is missing"));
}

TEST_F(CheckpointTest, B101_TurnsAsManyDimensionsAsTheFileSays) {
  GgufWriter writer = test::TinyModelWriter({});
  writer.Remove("llama.rope.dimension_count").Uint32("llama.rope.dimension_count", 32);
  EXPECT_EQ(Open(writer).config().rotary_dim, 32);
}

TEST_F(CheckpointTest, B101_LlamaTurnsWholeHeadsWhereTheFileSaysNothing) {
  GgufWriter writer = test::TinyModelWriter({});
  EXPECT_EQ(Open(writer.Remove("llama.rope.dimension_count")).config().rotary_dim, 64);
}

TEST_F(CheckpointTest, ReadsLinearRopeScaling) {
  GgufWriter writer = test::TinyModelWriter({});
  writer.Text("llama.rope.scaling.type", "linear").Float32("llama.rope.scaling.factor", 4.0f);
  const RopeScaling scaling = Open(writer).config().rope_scaling;
  EXPECT_EQ(scaling.kind, RopeScaling::Kind::kLinear);
  EXPECT_EQ(scaling.factor, 4.0);
}

TEST_F(CheckpointTest, ReadsTheLinearFactorOfOldFiles) {
  GgufWriter writer = test::TinyModelWriter({});
  const RopeScaling scaling =
      Open(writer.Float32("llama.rope.scale_linear", 2.0f)).config().rope_scaling;
  EXPECT_EQ(scaling.kind, RopeScaling::Kind::kLinear);
  EXPECT_EQ(scaling.factor, 2.0);
}

TEST_F(CheckpointTest, ReadsYarnScaling) {
  GgufWriter writer = test::TinyModelWriter({});
  writer.Text("llama.rope.scaling.type", "yarn").Float32("llama.rope.scaling.factor", 4.0f);
  EXPECT_THAT(std::string(Make(writer).status().message()),
              HasSubstr("original_context_length\" is missing"));
  writer.Uint32("llama.rope.scaling.original_context_length", 128);
  const RopeScaling scaling = Open(writer).config().rope_scaling;
  EXPECT_EQ(scaling.kind, RopeScaling::Kind::kYarn);
  EXPECT_EQ(scaling.original_context, 128);
  EXPECT_EQ(scaling.beta_fast, 32.0);
  EXPECT_EQ(scaling.beta_slow, 1.0);
}

TEST_F(CheckpointTest, B093_RefusesAnUnknownRopeScalingTypeByName) {
  for (const char* type : {"longrope", "dynamic", "llama3", ""}) {
    GgufWriter writer = test::TinyModelWriter({});
    writer.Text("llama.rope.scaling.type", type).Float32("llama.rope.scaling.factor", 4.0f);
    const absl::Status status = Make(writer).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(std::string("RoPE scaling type \"") + type + "\""));
  }
}

TEST_F(CheckpointTest, B093_RefusesScalingWithoutAFactorAndOptionsThatItDoesNotKnow) {
  GgufWriter writer = test::TinyModelWriter({});
  writer.Text("llama.rope.scaling.type", "linear");
  EXPECT_THAT(std::string(Make(writer).status().message()),
              HasSubstr("\"llama.rope.scaling.factor\" is missing"));
  writer.Float32("llama.rope.scaling.factor", 4.0f).Float32("llama.rope.scaling.attn_factor", 1.5f);
  EXPECT_THAT(std::string(Make(writer).status().message()),
              HasSubstr("key \"llama.rope.scaling.attn_factor\" is not supported"));
}

TEST_F(CheckpointTest, B093_ReadsLlama3ScalingFromItsTensor) {
  GgufWriter writer = test::TinyModelWriter({.head_dim = 8});
  writer.Tensor("rope_freqs.weight", DType::kF32, {4},
                GgufWriter::Number32(0x3f800000) +      // 1
                    GgufWriter::Number32(0x40000000) +  // 2
                    GgufWriter::Number32(0x40800000) +  // 4
                    GgufWriter::Number32(0x41000000));  // 8
  EXPECT_THAT(Open(writer).config().rope_scaling.freq_factors, ElementsAre(1.0f, 2.0f, 4.0f, 8.0f));
}

TEST_F(CheckpointTest, GivesMatricesAsTheyLieInTheFile) {
  const Checkpoint& checkpoint = Open(test::TinyModelWriter({.matrix_dtype = DType::kQ4_1}));
  const auto down = checkpoint.Matrix(TensorRole::kDown, 1);
  ASSERT_TRUE(down.ok()) << down.status();
  EXPECT_EQ(down->dtype, DType::kQ4_1);
  EXPECT_EQ(down->rows, 64);
  EXPECT_EQ(down->cols, 96);
  const GgufTensor* tensor = nullptr;
  const auto file =
      GgufFile::Parse({reinterpret_cast<const uint8_t*>(bytes_.data()), bytes_.size()});
  tensor = (*file)->FindTensor("blk.1.ffn_down.weight");
  EXPECT_EQ(down->data, tensor->bytes.data());
}

TEST_F(CheckpointTest, NamesWhatItDoesNotHave) {
  const Checkpoint& checkpoint = Open(test::TinyModelWriter({}));
  EXPECT_FALSE(checkpoint.Has(TensorRole::kQBias, 0));
  EXPECT_TRUE(checkpoint.Has(TensorRole::kQ, 1));
  EXPECT_FALSE(checkpoint.Has(TensorRole::kQ, 2));
  const absl::Status bias = checkpoint.Vector(TensorRole::kQBias, 1).status();
  EXPECT_EQ(bias, absl::NotFoundError("the checkpoint has no vector q_bias in layer 1"));
  EXPECT_EQ(checkpoint.Matrix(TensorRole::kAttentionNorm, 0).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(checkpoint.Vector(TensorRole::kQ, 0).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CheckpointTest, IgnoresTheLayerForRolesThatHaveNone) {
  const Checkpoint& checkpoint = Open(test::TinyModelWriter({}));
  EXPECT_TRUE(checkpoint.Matrix(TensorRole::kTokenEmbedding, 17).ok());
  EXPECT_TRUE(checkpoint.Vector(TensorRole::kOutputNorm, -1).ok());
}

TEST_F(CheckpointTest, TiesTheOutputToTheEmbeddingWhereTheFileHasNone) {
  const Checkpoint& checkpoint = Open(test::TinyModelWriter({.tied_output = true}));
  EXPECT_TRUE(checkpoint.config().tied_output);
  EXPECT_FALSE(checkpoint.Has(TensorRole::kOutput, 0));
}

TEST_F(CheckpointTest, ReadsOptionalBiases) {
  GgufWriter writer = test::TinyModelWriter({});
  writer.Tensor("blk.1.attn_k.bias", DType::kF32, {128}, std::string(512, '\0'));
  const Checkpoint& checkpoint = Open(writer);
  EXPECT_FALSE(checkpoint.Has(TensorRole::kKBias, 0));
  ASSERT_TRUE(checkpoint.Has(TensorRole::kKBias, 1));
  EXPECT_THAT(*checkpoint.Vector(TensorRole::kKBias, 1), Each(0.0f));
}

// Every 16-bit pattern, compared with the reference backend's conversion, which is tested on its
// own.
TEST_F(CheckpointTest, ConvertsVectorsOf16BitFloatsExactly) {
  constexpr int32_t kPatterns = 1 << 16;
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    GgufWriter writer = test::TinyModelWriter({.num_layers = 1,
                                               .hidden_size = 8,
                                               .ffn_size = 8,
                                               .num_heads = 512,
                                               .num_kv_heads = 8,
                                               .head_dim = 128});
    std::string patterns;
    for (int32_t i = 0; i < kPatterns; ++i) {
      patterns.push_back(static_cast<char>(i));
      patterns.push_back(static_cast<char>(i >> 8));
    }
    writer.Tensor("blk.0.attn_q.bias", dtype, {kPatterns}, patterns);
    const auto values = Open(writer).Vector(TensorRole::kQBias, 0);
    ASSERT_TRUE(values.ok()) << values.status();
    for (int32_t i = 0; i < kPatterns; ++i) {
      const auto bits = static_cast<uint16_t>(i);
      const float wanted =
          dtype == DType::kF16 ? kernels::HalfToFloat(bits) : kernels::BFloat16ToFloat(bits);
      const float value = (*values)[static_cast<size_t>(i)];
      ASSERT_TRUE(std::isnan(wanted)
                      ? std::isnan(value)
                      : value == wanted && std::signbit(value) == std::signbit(wanted))
          << i << ": " << value << " " << wanted;
    }
  }
}

TEST_F(CheckpointTest, FingerprintChangesWithAnyByteOfATensorAndWithTheConfiguration) {
  const std::string first = Open(test::TinyModelWriter({})).WeightsFingerprint();
  EXPECT_EQ(first.size(), 32u);
  EXPECT_EQ(Open(test::TinyModelWriter({})).WeightsFingerprint(), first);

  GgufWriter last_byte = test::TinyModelWriter({});
  last_byte.FindTensor("output.weight")->bytes.back() ^= 1;
  EXPECT_NE(Open(last_byte).WeightsFingerprint(), first);

  EXPECT_NE(Open(test::TinyModelWriter({.norm_epsilon = 2e-5f})).WeightsFingerprint(), first);
  EXPECT_NE(Open(test::TinyModelWriter({.rope_base = 20000.0f})).WeightsFingerprint(), first);
}

TEST_F(CheckpointTest, FingerprintDoesNotDependOnTheNameOrTheOrderOfKeys) {
  const std::string first = Open(test::TinyModelWriter({})).WeightsFingerprint();
  GgufWriter renamed = test::TinyModelWriter({});
  EXPECT_EQ(
      Open(renamed.Remove("general.name").Text("general.name", "another")).WeightsFingerprint(),
      first);
}

TEST(OpenCheckpoint, ReadsTheDefaultModel) {
  const char* path = std::getenv("TANDEM_TEST_MODEL");
  if (path == nullptr) GTEST_SKIP() << "TANDEM_TEST_MODEL does not name the default model's file";
  const auto checkpoint = OpenCheckpoint(path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const ModelConfig& config = (*checkpoint)->config();
  EXPECT_EQ(config.num_layers, 30);
  EXPECT_EQ(config.hidden_size, 576);
  EXPECT_EQ(config.ffn_size, 1536);
  EXPECT_EQ(config.attention.num_heads, 9);
  EXPECT_EQ(config.attention.num_kv_heads, 3);
  EXPECT_EQ(config.attention.head_dim, 64);
  EXPECT_EQ(config.vocab_size, 49152);
  EXPECT_EQ(config.context_length, 8192);
  EXPECT_EQ(config.rope_base, 100000.0);
  EXPECT_EQ(config.norm_epsilon, 1e-5f);
  EXPECT_TRUE(config.tied_output);
  EXPECT_EQ((*checkpoint)->Matrix(TensorRole::kTokenEmbedding, 0)->dtype, DType::kQ8_0);
  EXPECT_EQ((*checkpoint)->Matrix(TensorRole::kDown, 29)->dtype, DType::kQ4_1);
  EXPECT_EQ((*checkpoint)->WeightsFingerprint().size(), 32u);

  const auto tokenizer = (*checkpoint)->Tokenizer();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(tokenizer->kind, TokenizerKind::kByteLevelBpe);
  EXPECT_EQ(tokenizer->pre_tokenizer, "smollm");
  EXPECT_EQ(tokenizer->tokens.size(), 49152u);
  EXPECT_EQ(tokenizer->merges.size(), 48900u);
  EXPECT_EQ(tokenizer->added_tokens.size(), 17u);
  EXPECT_THAT(tokenizer->end_ids, ElementsAre(0, 2));
  EXPECT_FALSE(tokenizer->add_bos);
  EXPECT_THAT(tokenizer->chat_template, HasSubstr("SmolLM"));
}

}  // namespace
}  // namespace tandem
