// The bits contract for whole models: the logits of a position depend on the tokens before it and
// on nothing else. Every comparison is of bits, none has a tolerance.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/checkpoint/gguf_checkpoint.h"
#include "engine/model/model.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/reference/reference_ops.h"
#include "tests/support/model_runner.h"
#include "tests/support/tiny_model.h"

namespace tandem {
namespace {

using kernels::DType;
using kernels::SimdLevel;
using test::ModelRunner;
using Logits = std::vector<std::vector<float>>;

constexpr int32_t kMaxRows = 512;

struct BitsCase {
  std::string name;
  std::function<absl::StatusOr<std::unique_ptr<kernels::Ops>>()> ops;
  DType dtype = DType::kF32;  // of a tiny model
  bool default_model = false;
  int32_t prompt_tokens = 0;  // of the prompt that is cut into chunks
};
void PrintTo(const BitsCase& bits, std::ostream* out) { *out << bits.name; }

class BitsTest : public testing::TestWithParam<BitsCase> {
 protected:
  void SetUp() override {
    const char* path = std::getenv("TANDEM_TEST_MODEL");
    if (GetParam().default_model && path == nullptr) {
      GTEST_SKIP() << "TANDEM_TEST_MODEL does not name the default model's file";
    }
    auto ops = GetParam().ops();
    if (ops.status().code() == absl::StatusCode::kFailedPrecondition) GTEST_SKIP() << ops.status();
    ASSERT_TRUE(ops.ok()) << ops.status();
    ops_ = *std::move(ops);
    absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint;
    std::string bytes;
    if (GetParam().default_model) {
      checkpoint = OpenCheckpoint(path);
    } else {
      bytes = test::TinyModel(
          {.num_layers = 3, .matrix_dtype = GetParam().dtype, .embedding_dtype = GetParam().dtype});
      auto file = GgufFile::Parse({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
      ASSERT_TRUE(file.ok()) << file.status();
      checkpoint = MakeGgufCheckpoint(*std::move(file));
    }
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    auto model = Model::Load(**checkpoint, ops_->info().default_kv,
                             {.max_rows = kMaxRows, .context_length = 512}, *ops_, nullptr);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }

  std::unique_ptr<ModelRunner> Runner(int32_t num_slots, int32_t tokens_per_slot,
                                      uint64_t page_seed) {
    auto runner = ModelRunner::Make(
        {.num_slots = num_slots,
         .tokens_per_slot = tokens_per_slot,
         .kv_format = ops_->info().default_kv,
         .page_seed = page_seed},
        *model_, *ops_);
    EXPECT_TRUE(runner.ok()) << runner.status();
    return *std::move(runner);
  }
  // Seeded, different for every index.
  std::vector<int32_t> Prompt(int32_t index, int32_t length) const {
    std::mt19937 random(static_cast<uint32_t>(index + 1));
    std::vector<int32_t> tokens(static_cast<size_t>(length));
    for (int32_t& token : tokens)
      token = static_cast<int32_t>(random() % static_cast<uint32_t>(model_->config().vocab_size));
    return tokens;
  }
  Logits Alone(const std::vector<int32_t>& tokens, int32_t chunk, int32_t num_logits,
               uint64_t page_seed = 0) {
    auto logits = Runner(1, static_cast<int32_t>(tokens.size()), page_seed)
                      ->Run(0, tokens, chunk, num_logits);
    EXPECT_TRUE(logits.ok()) << logits.status();
    return *std::move(logits);
  }
  static void ExpectSameBits(const Logits& a, const Logits& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t row = 0; row < a.size(); ++row) {
      ASSERT_EQ(std::memcmp(a[row].data(), b[row].data(), a[row].size() * sizeof(float)), 0)
          << "row " << row;
    }
  }

  std::unique_ptr<kernels::Ops> ops_;
  std::unique_ptr<Model> model_;
};

TEST_P(BitsTest, APromptInAnyChunksEqualsThePromptTokenByToken) {
  const int32_t length = GetParam().prompt_tokens;
  const std::vector<int32_t> tokens = Prompt(0, length);
  const int32_t num_logits = std::min(length, 40);
  const Logits by_token = Alone(tokens, 1, num_logits);
  for (const int32_t chunk : {7, 64, 256}) {
    SCOPED_TRACE("chunk " + std::to_string(chunk));
    ExpectSameBits(Alone(tokens, chunk, num_logits, /*page_seed=*/static_cast<uint64_t>(chunk)),
                   by_token);
  }
}

// Prompts of many lengths begin together, each with a part of its tokens in one step, and go on
// together token by token.
TEST_P(BitsTest, ASequenceInABatchEqualsTheSequenceAlone) {
  constexpr int32_t kTogether = 4;  // decode steps
  for (const int32_t batch : {2, 7, 32}) {
    SCOPED_TRACE("batch " + std::to_string(batch));
    const auto runner = Runner(batch, 64, static_cast<uint64_t>(batch));
    std::vector<std::vector<int32_t>> prompts;
    std::vector<Logits> in_batch(static_cast<size_t>(batch));
    for (int32_t i = 0; i < batch; ++i) prompts.push_back(Prompt(i, kTogether + 1 + i * 5 % 14));
    for (int32_t step = 0; step <= kTogether; ++step) {
      std::vector<ModelRunner::Work> work;
      for (int32_t i = 0; i < batch; ++i) {
        const std::vector<int32_t>& tokens = prompts[static_cast<size_t>(i)];
        const auto first = tokens.end() - kTogether;
        const std::vector<int32_t> part =
            step == 0 ? std::vector(tokens.begin(), first) : std::vector{*(first + step - 1)};
        work.push_back(
            {.slot = i, .tokens = part, .num_logits = 1, .continues = step > 0 && i % 2 == 0});
      }
      auto logits = runner->Step(work);
      ASSERT_TRUE(logits.ok()) << logits.status();
      for (size_t i = 0; i < logits->size(); ++i) in_batch[i].push_back(std::move((*logits)[i]));
    }
    for (int32_t i = 0; i < batch; ++i) {
      SCOPED_TRACE("sequence " + std::to_string(i));
      const auto index = static_cast<size_t>(i);
      ExpectSameBits(Alone(prompts[index], 256, kTogether + 1), in_batch[index]);
    }
  }
}

// A planted violation: if equal bits were found for different histories too, the comparisons above
// would say nothing.
TEST_P(BitsTest, AnotherTokenFarBackChangesTheBits) {
  std::vector<int32_t> tokens = Prompt(0, 40);
  const Logits first = Alone(tokens, 64, 1);
  tokens[0] = tokens[0] == 5 ? 6 : 5;
  const Logits second = Alone(tokens, 64, 1);
  EXPECT_NE(std::memcmp(first[0].data(), second[0].data(), first[0].size() * sizeof(float)), 0);
}

std::function<absl::StatusOr<std::unique_ptr<kernels::Ops>>()> Cpu(int32_t num_threads,
                                                                   SimdLevel level) {
  return [=] { return kernels::MakeCpuOps({.num_threads = num_threads, .simd = level}); };
}
absl::StatusOr<std::unique_ptr<kernels::Ops>> Reference() {
  return kernels::MakeReferenceOps(kernels::ActDType::kF32);
}

absl::StatusOr<std::unique_ptr<kernels::Ops>> Cuda() { return kernels::MakeCudaOps({}); }

INSTANTIATE_TEST_SUITE_P(
    TinyModels, BitsTest,
    testing::Values(
        BitsCase{"ReferenceF32", Reference, DType::kF32, false, 70},
        BitsCase{"CpuF32", Cpu(2, kernels::DetectSimdLevel()), DType::kF32, false, 300},
        BitsCase{"CpuF16", Cpu(2, kernels::DetectSimdLevel()), DType::kF16, false, 300},
        BitsCase{"CpuBF16", Cpu(2, kernels::DetectSimdLevel()), DType::kBF16, false, 300},
        BitsCase{"CpuQ8_0", Cpu(2, kernels::DetectSimdLevel()), DType::kQ8_0, false, 300},
        BitsCase{"CpuQ4_0", Cpu(2, kernels::DetectSimdLevel()), DType::kQ4_0, false, 300},
        BitsCase{"CpuQ4_1", Cpu(3, kernels::DetectSimdLevel()), DType::kQ4_1, false, 300},
        BitsCase{"CpuPortableQ4_1", Cpu(2, SimdLevel::kPortable), DType::kQ4_1, false, 300},
        BitsCase{"CpuAvx2Q4_1", Cpu(2, SimdLevel::kAvx2), DType::kQ4_1, false, 300},
        BitsCase{"CudaF32", Cuda, DType::kF32, false, 300},
        BitsCase{"CudaQ4_1", Cuda, DType::kQ4_1, false, 300}),
    [](const testing::TestParamInfo<BitsCase>& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    DefaultModel, BitsTest,
    testing::Values(BitsCase{"Cpu", Cpu(0, kernels::DetectSimdLevel()), DType::kF32, true, 300},
                    BitsCase{"Cuda", Cuda, DType::kF32, true, 300}),
    [](const testing::TestParamInfo<BitsCase>& info) { return info.param.name; });

TEST(BitsAcrossThreads, OneThreadAndFourGiveTheSameLogits) {
  const std::string bytes =
      test::TinyModel({.matrix_dtype = DType::kQ4_1, .embedding_dtype = DType::kQ8_0});
  Logits first;
  for (const int32_t num_threads : {1, 2, 4}) {
    auto ops = kernels::MakeCpuOps({.num_threads = num_threads});
    ASSERT_TRUE(ops.ok()) << ops.status();
    auto file = GgufFile::Parse({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    ASSERT_TRUE(file.ok()) << file.status();
    const auto checkpoint = MakeGgufCheckpoint(*std::move(file));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    const auto model =
        Model::Load(**checkpoint, kernels::KvFormat::kF32, {.max_rows = 128}, **ops, nullptr);
    ASSERT_TRUE(model.ok()) << model.status();
    const auto runner = ModelRunner::Make({.tokens_per_slot = 100}, **model, **ops);
    ASSERT_TRUE(runner.ok()) << runner.status();
    std::vector<int32_t> tokens(100);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 7 % 200);
    const auto logits = (*runner)->Run(0, tokens, 100, 50);
    ASSERT_TRUE(logits.ok()) << logits.status();
    if (first.empty()) first = *logits;
    EXPECT_EQ(*logits, first) << num_threads << " threads";
  }
}

}  // namespace
}  // namespace tandem
