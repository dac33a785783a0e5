#include "engine/model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/checkpoint/gguf_checkpoint.h"
#include "kernels/reference/reference_ops.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/golden.h"
#include "tests/support/model_runner.h"
#include "tests/support/tiny_model.h"

namespace tandem {
namespace {

using kernels::DType;
using kernels::KvFormat;
using test::ModelRunner;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ModelTest : public testing::Test {
 protected:
  void OpenBytes(std::string bytes) {
    bytes_ = std::move(bytes);
    auto file = GgufFile::Parse({reinterpret_cast<const uint8_t*>(bytes_.data()), bytes_.size()});
    ASSERT_TRUE(file.ok()) << file.status();
    auto checkpoint = MakeGgufCheckpoint(*std::move(file));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    checkpoint_ = *std::move(checkpoint);
  }
  void Load(const Model::Options& options = {.max_rows = 64}) {
    auto model = Model::Load(*checkpoint_, KvFormat::kF32, options, *ops_, nullptr);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }
  void MakeRunner(const ModelRunner::Options& options) {
    auto runner = ModelRunner::Make(options, *model_, *ops_);
    ASSERT_TRUE(runner.ok()) << runner.status();
    runner_ = *std::move(runner);
  }
  std::vector<std::vector<float>> Run(int32_t slot, std::span<const int32_t> tokens, int32_t chunk,
                                      int32_t num_logits) {
    auto logits = runner_->Run(slot, tokens, chunk, num_logits);
    EXPECT_TRUE(logits.ok()) << logits.status();
    return *std::move(logits);
  }
  std::vector<int32_t> Greedy(std::vector<int32_t> tokens, int32_t steps) {
    std::vector<int32_t> out;
    for (int32_t i = 0; i < steps; ++i) {
      out.push_back(test::ArgMax(Run(0, tokens, 64, 1).back()));
      tokens = {out.back()};
    }
    return out;
  }

  std::unique_ptr<kernels::Ops> ops_ = kernels::MakeReferenceOps(kernels::ActDType::kF32);
  std::string bytes_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<ModelRunner> runner_;
};

TEST(LayerGroups, LayersOfOneWindowAreOneGroup) {
  ModelConfig config;
  config.num_layers = 5;
  config.layer_windows = {512, 512, 0, 512, 0};
  const std::vector<LayerGroup> groups = LayerGroups(config);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].window, 512);
  EXPECT_THAT(groups[0].layers, ElementsAre(0, 1, 3));
  EXPECT_EQ(groups[1].window, 0);
  EXPECT_THAT(groups[1].layers, ElementsAre(2, 4));
}

TEST_F(ModelTest, ReportsProgressFromNothingToAllBytes) {
  OpenBytes(test::TinyModel({.matrix_dtype = DType::kQ4_1}));
  std::vector<std::pair<int64_t, int64_t>> reports;
  const auto model =
      Model::Load(*checkpoint_, KvFormat::kF32, {}, *ops_,
                  [&](int64_t done, int64_t total) { reports.emplace_back(done, total); });
  ASSERT_TRUE(model.ok()) << model.status();
  // Per layer (256 + 128 + 128) * 64 + 64 * 256 + 3 * 96 * 64 elements in blocks of 32, 20 bytes
  // each; two tables in fp32.
  const int64_t total = 2 * (67584 / 32 * 20) + 2 * int64_t{test::TinyVocabSize()} * 64 * 4;
  ASSERT_GT(reports.size(), 5u);
  EXPECT_EQ(reports.front(), std::pair(int64_t{0}, total));
  EXPECT_EQ(reports.back(), std::pair(total, total));
  for (size_t i = 1; i < reports.size(); ++i) EXPECT_GT(reports[i].first, reports[i - 1].first);
}

TEST_F(ModelTest, ServesAtMostTheContextOfTheCheckpoint) {
  OpenBytes(test::TinyModel({.context_length = 100}));
  const auto load = [&](int32_t context_length) {
    return Model::Load(*checkpoint_, KvFormat::kF32,
                       {.max_rows = 8, .context_length = context_length}, *ops_, nullptr);
  };
  EXPECT_EQ((*load(0))->context_length(), 100);
  EXPECT_EQ((*load(64))->context_length(), 64);
  EXPECT_EQ((*load(100))->context_length(), 100);
  EXPECT_THAT(std::string(load(101).status().message()),
              HasSubstr("context_length is 101: it must be 1 to 100"));
  EXPECT_EQ(load(-1).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ModelTest, NeedsRoomForARow) {
  OpenBytes(test::TinyModel({}));
  const auto model = Model::Load(*checkpoint_, KvFormat::kF32, {.max_rows = 0}, *ops_, nullptr);
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
}

// The checkpoint may go after Load.
TEST_F(ModelTest, KeepsNothingOfTheCheckpoint) {
  OpenBytes(test::TinyModel({}));
  Load();
  checkpoint_.reset();
  bytes_.assign(bytes_.size(), '\xff');
  MakeRunner({});
  const std::vector<std::vector<float>> logits = Run(0, std::vector<int32_t>{5, 6, 7}, 64, 1);
  for (const float value : logits[0]) ASSERT_TRUE(std::isfinite(value));
}

// A checkpoint with another configuration.
class AlteredCheckpoint final : public Checkpoint {
 public:
  AlteredCheckpoint(const Checkpoint& base, ModelConfig config)
      : base_(base), config_(std::move(config)) {}
  const ModelConfig& config() const override { return config_; }
  bool Has(TensorRole role, int32_t layer) const override { return base_.Has(role, layer); }
  absl::StatusOr<kernels::HostMatrix> Matrix(TensorRole role, int32_t layer) const override {
    return base_.Matrix(role, layer);
  }
  absl::StatusOr<std::vector<float>> Vector(TensorRole role, int32_t layer) const override {
    return base_.Vector(role, layer);
  }
  absl::StatusOr<TokenizerData> Tokenizer() const override { return base_.Tokenizer(); }
  std::string WeightsFingerprint() const override { return base_.WeightsFingerprint(); }

 private:
  const Checkpoint& base_;
  const ModelConfig config_;
};

// A random llama made by transformers: Q and K rows permuted for GGUF's pairs, a head_dim that is
// not hidden / heads, grouped queries, an epsilon that matters, an untied output. Whole prompts,
// over page edges.
class TransformersLlama : public ModelTest {
 protected:
  // The largest distance of a logit from the golden one, over every position of every prompt.
  double LargestError(const std::function<void(ModelConfig&)>& change) {
    const nlohmann::json golden = test::ReadJson("tests/golden/model/tiny_llama.json");
    const auto original = OpenCheckpoint("tests/golden/model/tiny_llama.gguf");
    EXPECT_TRUE(original.ok()) << original.status();
    ModelConfig config = (*original)->config();
    change(config);
    checkpoint_ = std::make_unique<AlteredCheckpoint>(**original, config);
    Load({.max_rows = 65});
    EXPECT_EQ(golden["prompts"].size(), 3u);
    double largest = 0.0;
    for (const nlohmann::json& prompt : golden["prompts"]) {
      const std::vector<int32_t> ids = test::Ints(prompt["prompt_ids"]);
      const std::vector<float> wanted = test::Floats(prompt["logits"]);
      EXPECT_EQ(ids.size() * 96, wanted.size());
      MakeRunner({.tokens_per_slot = 192});
      size_t next = 0;
      for (size_t i = 0; i < ids.size(); i += 65) {
        const std::span<const int32_t> part =
            std::span(ids).subspan(i, std::min<size_t>(65, ids.size() - i));
        for (const std::vector<float>& row : Run(0, part, 65, static_cast<int32_t>(part.size()))) {
          for (const float logit : row)
            largest = std::max(largest, std::abs(double{logit} - wanted[next++]));
        }
      }
      EXPECT_EQ(next, wanted.size());
    }
    return largest;
  }
};

TEST_F(TransformersLlama, B099_B103_LogitsAgreeAtEveryPosition) {
  EXPECT_LT(LargestError([](ModelConfig&) {}), 1e-4);
}

// What went wrong elsewhere would be seen: rows of Q and K in the other order, pairs of the other
// kind, another base, epsilon, scale.
TEST_F(TransformersLlama, B099_B103_LogitsOfAModelReadWronglyDoNot) {
  EXPECT_GT(LargestError([](ModelConfig& c) { c.rope_pairs = kernels::RopePairs::kHalves; }), 0.1);
  EXPECT_GT(LargestError([](ModelConfig& c) { c.rotary_dim = 8; }), 0.1);
  EXPECT_GT(LargestError([](ModelConfig& c) { c.rope_base = 10000.0; }), 0.1);
  EXPECT_GT(LargestError([](ModelConfig& c) { c.norm_epsilon = 1e-5f; }), 0.1);
  EXPECT_GT(LargestError([](ModelConfig& c) { c.attention_scale *= 1.1f; }), 0.1);
}

TEST_F(ModelTest, B105_TheEpsilonOfTheFileChangesTheLogits) {
  std::vector<float> first;
  for (const float epsilon : {1e-6f, 1e-2f}) {
    OpenBytes(test::TinyModel({.norm_epsilon = epsilon}));
    Load();
    MakeRunner({});
    const std::vector<float> logits = Run(0, std::vector<int32_t>{40, 41}, 64, 1)[0];
    EXPECT_NE(logits, first);
    first = logits;
  }
}

TEST_F(ModelTest, RunsEveryFormatOfWeightsWithLogitsNearTheFloatOnes) {
  std::vector<float> exact;
  for (const DType dtype :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_1, DType::kQ4_0}) {
    OpenBytes(test::TinyModel({.matrix_dtype = dtype, .embedding_dtype = dtype}));
    Load();
    MakeRunner({});
    const std::vector<float> logits = Run(0, std::vector<int32_t>{40, 41, 42}, 64, 1)[0];
    if (exact.empty()) exact = logits;
    double error = 0.0, energy = 0.0;
    for (size_t i = 0; i < logits.size(); ++i) {
      error += (logits[i] - exact[i]) * (logits[i] - exact[i]);
      energy += exact[i] * exact[i];
    }
    // Blocks of 4 bits have an error of about a tenth of the weights' spread, and it adds up over
    // layers.
    const double limit = dtype == DType::kQ4_0 || dtype == DType::kQ4_1 ? 0.5 : 0.03;
    EXPECT_LT(std::sqrt(error / energy), limit) << kernels::Info(dtype).name;
  }
}

TEST_F(ModelTest, ATiedOutputUsesTheEmbedding) {
  test::GgufWriter tied = test::TinyModelWriter({.tied_output = true});
  test::GgufWriter separate = tied;
  const auto* embedding = tied.FindTensor("token_embd.weight");
  separate.Tensor("output.weight", DType::kF32, embedding->dims, embedding->bytes);
  std::vector<std::vector<float>> logits;
  for (const test::GgufWriter* writer : {&tied, &separate}) {
    OpenBytes(writer->Build());
    Load();
    MakeRunner({});
    logits.push_back(Run(0, std::vector<int32_t>{40, 41, 42}, 64, 1)[0]);
  }
  EXPECT_EQ(logits[0], logits[1]);
}

TEST_F(ModelTest, BiasesAreAdded) {
  const auto logits_with = [&](const char* name, uint64_t rows, const std::string& value) {
    test::GgufWriter writer = test::TinyModelWriter({});
    std::string bytes;
    for (uint64_t i = 0; i < rows; ++i) bytes += value;
    if (rows > 0) writer.Tensor(name, DType::kF32, {rows}, bytes);
    OpenBytes(writer.Build());
    Load();
    MakeRunner({});
    return Run(0, std::vector<int32_t>{40, 41, 42}, 64, 1)[0];
  };
  const std::string zero = test::GgufWriter::Number32(0);
  const std::string half = test::GgufWriter::Number32(0x3f000000);
  const std::vector<float> plain = logits_with("", 0, "");
  for (const auto& [name, rows] :
       {std::pair("blk.1.attn_q.bias", 256), std::pair("blk.1.attn_k.bias", 128),
        std::pair("blk.0.attn_v.bias", 128), std::pair("blk.1.attn_output.bias", 64)}) {
    EXPECT_EQ(logits_with(name, static_cast<uint64_t>(rows), zero), plain) << name;
    EXPECT_NE(logits_with(name, static_cast<uint64_t>(rows), half), plain) << name;
  }
}

TEST_F(ModelTest, TheTinyModelWandersWhenDecodedGreedily) {
  for (const uint64_t seed : {1, 2, 3}) {
    OpenBytes(test::TinyModel({.seed = seed}));
    Load();
    MakeRunner({});
    const std::vector<int32_t> tokens = Greedy({40, 41, 42}, 64);
    EXPECT_GE(std::set<int32_t>(tokens.begin(), tokens.end()).size(), 12u) << "seed " << seed;
  }
}

TEST_F(ModelTest, RowsThatContinueFindTheirOwnPosition) {
  OpenBytes(test::TinyModel({}));
  Load();
  MakeRunner({.num_slots = 2});
  const std::vector<int32_t> prompt = {40, 41, 42};
  Run(0, prompt, 64, 0);
  Run(1, prompt, 64, 0);
  const std::vector<ModelRunner::Work> work = {
      {.slot = 0, .tokens = {50}, .num_logits = 1},
      {.slot = 1, .tokens = {50}, .num_logits = 1, .continues = true}};
  const auto logits = runner_->Step(work);
  ASSERT_TRUE(logits.ok()) << logits.status();
  EXPECT_EQ((*logits)[0], (*logits)[1]);
}

TEST_F(ModelTest, IdleRowsChangeNothing) {
  OpenBytes(test::TinyModel({}));
  Load();
  MakeRunner({.num_slots = 3});
  const std::vector<ModelRunner::Work> alone = {{.slot = 0, .tokens = {40, 41}, .num_logits = 2}};
  const auto expected = runner_->Step(alone);
  ASSERT_TRUE(expected.ok()) << expected.status();
  const std::vector<ModelRunner::Work> beside_idle = {
      {.slot = 2}, {.slot = 1, .tokens = {40, 41}, .num_logits = 2}, {.slot = 2}};
  const auto logits = runner_->Step(beside_idle);
  ASSERT_TRUE(logits.ok()) << logits.status();
  EXPECT_EQ(*logits, *expected);
}

using ModelDeathTest = ModelTest;
TEST_F(ModelDeathTest, AbortsOnMoreRowsThanPlanned) {
  OpenBytes(test::TinyModel({}));
  Load({.max_rows = 4});
  ForwardArgs args;
  args.rows.num_rows = 5;
  EXPECT_DEATH(model_->Forward(args), "5 rows, at most 4");
}

}  // namespace
}  // namespace tandem
