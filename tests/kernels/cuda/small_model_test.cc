// Every operation of the backend once at small shapes: the subset that runs under compute-sanitizer
// (tests/gpu.sh --sanitize), where each choice of an algorithm and each large launch costs seconds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_ops.h"
#include "tests/kernels/test_model.h"

namespace tandem::kernels {
namespace {

constexpr int32_t kMaxRows = 8;  // one bucket of row counts to choose algorithms for

class CudaSmallModel : public testing::Test {
 protected:
  void SetUp() override {
    auto ops = MakeCudaOps({.max_rows = kMaxRows});
    if (ops.status().code() == absl::StatusCode::kFailedPrecondition) GTEST_SKIP() << ops.status();
    ASSERT_TRUE(ops.ok()) << ops.status();
    ops_ = *std::move(ops);
  }

  // Logits of every position: a prompt in chunks of kMaxRows and single rows at its end, beside an
  // idle row.
  std::vector<float> AllLogits(const ModelOptions& options, const std::vector<int32_t>& tokens) {
    auto model = TestModel::Make(*ops_, options);
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) return {};
    (*model)->SetTokens(1, tokens);
    std::vector<float> logits;
    const int32_t length = static_cast<int32_t>(tokens.size());
    for (int32_t begin = 0; begin < length;) {
      const int32_t end =
          begin + 4 < length ? std::min(length - 4, begin + kMaxRows - 1) : begin + 1;
      std::vector<TestRow> rows = {{-1, -1}};
      std::vector<int32_t> logits_rows;
      for (; begin < end; ++begin) {
        logits_rows.push_back(static_cast<int32_t>(rows.size()));
        rows.push_back({1, begin});
      }
      const std::vector<float> part = (*model)->Forward(rows, logits_rows);
      logits.insert(logits.end(), part.begin(), part.end());
    }
    return logits;
  }

  std::unique_ptr<Ops> ops_;
};

TEST_F(CudaSmallModel, GivesFiniteLogitsInEveryCacheFormat) {
  for (const KvFormat format : {KvFormat::kBF16, KvFormat::kFp8E4M3, KvFormat::kInt8}) {
    SCOPED_TRACE(std::string(Name(format)));
    ModelOptions options;
    options.kv = format;
    options.dtypes = {DType::kQ4_1, DType::kQ8_0, DType::kF32};
    const std::vector<float> logits = AllLogits(options, RandomData(3).Tokens(90, 101));
    ASSERT_EQ(logits.size(), 90u * 101);
    for (const float logit : logits) ASSERT_TRUE(std::isfinite(logit));
  }
}

TEST_F(CudaSmallModel, GivesFiniteLogitsWithEveryExtra) {
  ModelOptions options;
  options.kv = KvFormat::kBF16;
  options.shape = {4, 1, 80};
  options.has_bias = options.has_qk_norm = options.has_post_norm = true;
  options.soft_cap = 30.0f;
  options.logit_cap = 20.0f;
  options.window = 30;
  options.vocab_size = 104;  // cuBLASLt takes part, and with it the bias as a kernel of its own
  options.gate = GateKind::kGeluTanh;
  const std::vector<float> logits = AllLogits(options, RandomData(4).Tokens(60, 104));
  ASSERT_EQ(logits.size(), 60u * 104);
  for (const float logit : logits) ASSERT_TRUE(std::isfinite(logit));
}

}  // namespace
}  // namespace tandem::kernels
