// The bits contract for whole models: the logits of a position depend on the tokens before it and
// on nothing else. Every comparison is of bits, over every row, and none has a tolerance; planted
// violations show that it finds what it looks for.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/checkpoint/gguf_checkpoint.h"
#include "engine/checkpoint/random_checkpoint.h"
#include "engine/model/model.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/reference/reference_ops.h"
#include "tests/engine/model/bits_matrix.h"
#include "tests/engine/model/host_violations.h"
#include "tests/kernels/cuda/separate_ops.h"
#include "tests/support/model_runner.h"
#include "tests/support/tiny_model.h"

namespace tandem {
namespace {

using kernels::DType;
using kernels::SeparateOptions;
using kernels::SimdLevel;
using test::BitsPlan;
using test::BitsVariant;
using test::HostViolation;
using test::ModelRunner;

using MakeOps = std::function<absl::StatusOr<std::unique_ptr<kernels::Ops>>()>;

constexpr char kDefaultModel[] = "default";

struct BitsCase {
  std::string name;
  MakeOps ops;
  std::string model;  // "random:..", "default", or empty: a tiny file of `dtype`
  DType dtype = DType::kF32;
  BitsPlan plan;
};
void PrintTo(const BitsCase& bits, std::ostream* out) { *out << bits.name; }

BitsPlan TinyPlan() {
  return {.length = 180,
          .chunks = {7, 64, 100},
          .rewinds = {1, 63, 64, 65},
          .prefixes = {64, 100, 128},
          .batches = {2, 7, 64}};
}
// The default model takes tenths of a second a step on few CPU cores.
BitsPlan CpuPlan() {
  return {.length = 130, .chunks = {64}, .rewinds = {1, 65}, .prefixes = {67}, .batches = {2, 7}};
}
BitsPlan GpuPlan() {
  return {.length = 2048,
          .chunks = {64, 512, 2048},
          .rewinds = {1, 63, 64, 65},
          .prefixes = {512, 1000, 1984},
          .batches = {2, 7, 64, 256}};
}
// Of violations on the GPU: long enough for two splits of the attention.
BitsPlan ShortGpuPlan() {
  return {.length = 700, .chunks = {64}, .rewinds = {63}, .prefixes = {100}, .batches = {7}};
}

MakeOps Cpu(int32_t num_threads, SimdLevel level) {
  return [=] { return kernels::MakeCpuOps({.num_threads = num_threads, .simd = level}); };
}
absl::StatusOr<std::unique_ptr<kernels::Ops>> Reference() {
  return kernels::MakeReferenceOps(kernels::ActDType::kF32);
}

// A model on a backend.
class LoadedModel {
 public:
  // FAILED_PRECONDITION: this machine lacks the device, or the default model's file.
  absl::Status Load(const BitsCase& bits) {
    const char* path = std::getenv("TANDEM_TEST_MODEL");
    if (bits.model == kDefaultModel && path == nullptr) {
      return absl::FailedPreconditionError(
          "TANDEM_TEST_MODEL does not name the default model's file");
    }
    auto ops = bits.ops();
    if (!ops.ok()) return ops.status();
    ops_ = *std::move(ops);
    absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint;
    std::string bytes;
    if (bits.model == kDefaultModel) {
      checkpoint = OpenCheckpoint(path);
    } else if (!bits.model.empty()) {
      checkpoint = OpenCheckpoint(bits.model);
    } else {
      bytes = test::TinyModel(
          {.num_layers = 3, .matrix_dtype = bits.dtype, .embedding_dtype = bits.dtype});
      auto file = GgufFile::Parse({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
      if (!file.ok()) return file.status();
      checkpoint = MakeGgufCheckpoint(*std::move(file));
    }
    if (!checkpoint.ok()) return checkpoint.status();
    auto model = Model::Load(**checkpoint, ops_->info().default_kv,
                             {.max_rows = bits.plan.length, .context_length = bits.plan.length},
                             *ops_, nullptr);
    if (!model.ok()) return model.status();
    model_ = *std::move(model);
    return absl::OkStatus();
  }

  kernels::Ops& ops() { return *ops_; }
  Model& model() { return *model_; }

 private:
  std::unique_ptr<kernels::Ops> ops_;
  std::unique_ptr<Model> model_;
};

class BitsTest : public testing::TestWithParam<BitsCase> {
 protected:
  void SetUp() override {
    const absl::Status status = loaded_.Load(GetParam());
    if (status.code() == absl::StatusCode::kFailedPrecondition) GTEST_SKIP() << status;
    ASSERT_TRUE(status.ok()) << status;
  }
  std::vector<BitsVariant> Compare() {
    BitsPlan plan = GetParam().plan;
    if (auto* separable = dynamic_cast<kernels::SeparableOps*>(&loaded_.ops())) {
      plan.use_separate = [separable](bool separate) { separable->UseSeparate(separate); };
    }
    auto variants = test::CompareBits(plan, loaded_.model(), loaded_.ops());
    EXPECT_TRUE(variants.ok()) << variants.status();
    if (!variants.ok()) return {};
    std::printf("%s on %s\n%s", GetParam().name.c_str(), loaded_.ops().info().device.c_str(),
                test::BitsTable(*variants).c_str());
    return *std::move(variants);
  }

  LoadedModel loaded_;
};

class BitsOfEveryRow : public BitsTest {};

TEST_P(BitsOfEveryRow, AreThoseOfTheSequenceAlone) {
  const std::vector<BitsVariant> variants = Compare();
  EXPECT_GT(variants.size(), 4u);
  for (const BitsVariant& variant : variants) {
    EXPECT_GT(variant.rows, 0) << variant.name;
    EXPECT_EQ(variant.differing, 0) << variant.name << ", first " << variant.first;
  }
}

// If equal bits were found for different histories too, the comparisons would say nothing.
TEST_P(BitsOfEveryRow, ChangeWithATokenFarBack) {
  std::vector<int32_t> tokens(40);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 7 % 200);
  std::vector<float> logits[2];
  for (std::vector<float>& of : logits) {
    const auto runner =
        ModelRunner::Make({.tokens_per_slot = 64, .kv_format = loaded_.ops().info().default_kv},
                          loaded_.model(), loaded_.ops());
    ASSERT_TRUE(runner.ok()) << runner.status();
    const ModelRunner::Work work = {.slot = 0, .tokens = tokens, .num_logits = 1};
    ASSERT_TRUE((*runner)->StepInto({&work, 1}, false, &of).ok());
    tokens[0] = 5;
  }
  EXPECT_NE(std::memcmp(logits[0].data(), logits[1].data(), logits[0].size() * sizeof(float)), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Tiny, BitsOfEveryRow,
    testing::Values(
        BitsCase{"ReferenceF32",
                 Reference,
                 "",
                 DType::kF32,
                 {.length = 70, .chunks = {64}, .rewinds = {63}, .prefixes = {66}, .batches = {7}}},
        BitsCase{"CpuF32", Cpu(2, kernels::DetectSimdLevel()), "", DType::kF32, TinyPlan()},
        BitsCase{"CpuF16", Cpu(2, kernels::DetectSimdLevel()), "", DType::kF16, TinyPlan()},
        BitsCase{"CpuBF16", Cpu(2, kernels::DetectSimdLevel()), "", DType::kBF16, TinyPlan()},
        BitsCase{"CpuQ8_0", Cpu(2, kernels::DetectSimdLevel()), "", DType::kQ8_0, TinyPlan()},
        BitsCase{"CpuQ4_0", Cpu(2, kernels::DetectSimdLevel()), "", DType::kQ4_0, TinyPlan()},
        BitsCase{"CpuQ4_1", Cpu(3, kernels::DetectSimdLevel()), "", DType::kQ4_1, TinyPlan()},
        BitsCase{"CpuPortableQ4_1", Cpu(2, SimdLevel::kPortable), "", DType::kQ4_1, TinyPlan()},
        BitsCase{"CpuAvx2Q4_1", Cpu(2, SimdLevel::kAvx2), "", DType::kQ4_1, TinyPlan()},
        BitsCase{"CpuRandom", Cpu(2, kernels::DetectSimdLevel()), "random:tiny", DType::kBF16,
                 TinyPlan()},
        BitsCase{"CudaF32", kernels::MakeSeparableCudaOps, "", DType::kF32, TinyPlan()},
        BitsCase{"CudaQ4_1", kernels::MakeSeparableCudaOps, "", DType::kQ4_1, TinyPlan()}),
    [](const testing::TestParamInfo<BitsCase>& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Whole, BitsOfEveryRow,
                         testing::Values(BitsCase{"CpuDefault", Cpu(0, kernels::DetectSimdLevel()),
                                                  kDefaultModel, DType::kF32, CpuPlan()},
                                         BitsCase{"CudaDefault", kernels::MakeSeparableCudaOps,
                                                  kDefaultModel, DType::kF32, GpuPlan()},
                                         BitsCase{"CudaLlama3_8B", kernels::MakeSeparableCudaOps,
                                                  "random:llama3-8b", DType::kBF16, GpuPlan()},
                                         BitsCase{"CudaQwen2_1_5B", kernels::MakeSeparableCudaOps,
                                                  "random:qwen2-1.5b", DType::kBF16, GpuPlan()}),
                         [](const testing::TestParamInfo<BitsCase>& info) {
                           return info.param.name;
                         });

// ---- planted violations
// --------------------------------------------------------------------------

class BitsViolation : public BitsTest {};

TEST_P(BitsViolation, IsFound) { EXPECT_GT(test::NumDiffering(Compare()), 0); }

MakeOps Host(HostViolation violation) {
  return [violation]() -> absl::StatusOr<std::unique_ptr<kernels::Ops>> {
    auto ops = kernels::MakeCpuOps({.num_threads = 2});
    if (!ops.ok()) return ops.status();
    return std::make_unique<test::HostViolationOps>(*std::move(ops), violation);
  };
}
MakeOps Cuda(SeparateOptions::Product product, SeparateOptions::Attention attention) {
  return [product, attention] { return kernels::MakeSeparateCudaOps({product, attention}); };
}

using Product = SeparateOptions::Product;
using Attention = SeparateOptions::Attention;
constexpr char kSmallShape[] = "random:smollm2-135m";

INSTANTIATE_TEST_SUITE_P(
    Host, BitsViolation,
    testing::Values(
        BitsCase{"SplitK", Host(HostViolation::kSplitK), "", DType::kF32, TinyPlan()},
        BitsCase{"SecondAccumulator", Host(HostViolation::kSecondAccumulator), "", DType::kF32,
                 TinyPlan()},
        BitsCase{"LengthTile", Host(HostViolation::kLengthTile), "", DType::kF32, TinyPlan()},
        BitsCase{"StaleValues", Host(HostViolation::kStaleValues), "", DType::kF32, TinyPlan()}),
    [](const testing::TestParamInfo<BitsCase>& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Cuda, BitsViolation,
    testing::Values(BitsCase{"SplitK", Cuda(Product::kSplitK, Attention::kBackend), kSmallShape,
                             DType::kBF16, ShortGpuPlan()},
                    BitsCase{"SecondAccumulator",
                             Cuda(Product::kSecondAccumulator, Attention::kBackend), kSmallShape,
                             DType::kBF16, ShortGpuPlan()},
                    BitsCase{"LengthTile", Cuda(Product::kChain, Attention::kSplitsByLength),
                             kSmallShape, DType::kBF16, ShortGpuPlan()},
                    BitsCase{"StaleValues", Cuda(Product::kChain, Attention::kStaleValues),
                             kSmallShape, DType::kBF16, ShortGpuPlan()}),
    [](const testing::TestParamInfo<BitsCase>& info) { return info.param.name; });

// The planted kernels keep the contract where nothing is planted, so that what the tests above find
// is the violation.
INSTANTIATE_TEST_SUITE_P(
    PlantedKernelsAsTheyShouldBe, BitsOfEveryRow,
    testing::Values(BitsCase{"CudaProducts", Cuda(Product::kOneAccumulator, Attention::kBackend),
                             kSmallShape, DType::kBF16, ShortGpuPlan()},
                    BitsCase{"CudaAttention", Cuda(Product::kChain, Attention::kConstantSplits),
                             kSmallShape, DType::kBF16, ShortGpuPlan()}),
    [](const testing::TestParamInfo<BitsCase>& info) { return info.param.name; });

// ---- threads
// -------------------------------------------------------------------------------------

TEST(BitsAcrossThreads, OneThreadAndFourGiveTheSameLogits) {
  const std::string bytes =
      test::TinyModel({.matrix_dtype = DType::kQ4_1, .embedding_dtype = DType::kQ8_0});
  std::vector<std::vector<float>> first;
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
