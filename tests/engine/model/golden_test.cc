// The default model against transformers in fp32 (tests/golden/model/make_goldens.py): 10 prompts,
// 64 greedy steps each.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/model/model.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/reference/reference_ops.h"
#include "tests/support/golden.h"
#include "tests/support/model_runner.h"

namespace tandem {
namespace {

using test::ModelRunner;

// A gap between first and second logit below this is a tie: rounding may decide it either way.
constexpr float kTie = 1e-3f;
// Of the range of a row's logits.
constexpr float kTolerance = 1e-3f;
constexpr int32_t kChunk = 256;

struct GoldenPrompt {
  std::string name;
  std::vector<int32_t> prompt_ids;
  std::vector<int32_t> token;  // [steps]
  std::vector<float> gap, log_sum_exp, min, max;
  std::vector<int32_t> top_ids;     // [steps, 10]
  std::vector<float> top_logits;    // [steps, 10]
  std::vector<float> fixed_logits;  // [steps, 64]
  float smallest_gap = 0.0f;
};

class GoldenTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* path = std::getenv("TANDEM_TEST_MODEL");
    if (path == nullptr) GTEST_SKIP() << "TANDEM_TEST_MODEL does not name the default model's file";
    model_path_ = path;
    const nlohmann::json golden = test::ReadJson("tests/golden/model/default_model.json");
    fixed_ids_ = golden["fixed_ids"].get<std::vector<int32_t>>();
    num_steps_ = golden["num_steps"];
    for (const nlohmann::json& entry : golden["prompts"]) {
      prompts_.push_back({entry["name"], test::Ints(entry["prompt_ids"]),
                          test::Ints(entry["token"]), test::Floats(entry["gap"]),
                          test::Floats(entry["log_sum_exp"]), test::Floats(entry["min"]),
                          test::Floats(entry["max"]), test::Ints(entry["top_ids"]),
                          test::Floats(entry["top_logits"]), test::Floats(entry["fixed_logits"]),
                          entry["smallest_gap"]});
    }
    ASSERT_EQ(prompts_.size(), 10u);
  }

  // In the backend's default KV format.
  void Load(std::unique_ptr<kernels::Ops> ops) {
    ops_ = std::move(ops);
    const auto checkpoint = OpenCheckpoint(model_path_);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    auto model = Model::Load(**checkpoint, ops_->info().default_kv,
                             {.max_rows = kChunk, .context_length = 2048}, *ops_, nullptr);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }
  void LoadOnCpu() {
    auto ops = kernels::MakeCpuOps({});
    ASSERT_TRUE(ops.ok()) << ops.status();
    Load(*std::move(ops));
  }
  std::unique_ptr<ModelRunner> Runner(int32_t num_slots, size_t tokens_per_slot) {
    auto runner = ModelRunner::Make(
        {.num_slots = num_slots,
         .tokens_per_slot = static_cast<int32_t>(tokens_per_slot),
         .kv_format = ops_->info().default_kv},
        *model_, *ops_);
    EXPECT_TRUE(runner.ok()) << runner.status();
    return *std::move(runner);
  }

  // Logits rows of every step, the golden tokens as input.
  std::vector<std::vector<float>> TeacherForced(const GoldenPrompt& prompt) {
    std::vector<int32_t> tokens = prompt.prompt_ids;
    tokens.insert(tokens.end(), prompt.token.begin(), prompt.token.end() - 1);
    auto logits = Runner(1, tokens.size())->Run(0, tokens, kChunk, num_steps_);
    EXPECT_TRUE(logits.ok()) << logits.status();
    return *std::move(logits);
  }

  void CompareStep(const GoldenPrompt& prompt, size_t step, const std::vector<float>& logits) {
    const float tolerance = kTolerance * (prompt.max[step] - prompt.min[step]);
    const auto [min, max] = std::minmax_element(logits.begin(), logits.end());
    EXPECT_NEAR(*min, prompt.min[step], tolerance);
    EXPECT_NEAR(*max, prompt.max[step], tolerance);
    for (size_t i = 0; i < 10; ++i) {
      const auto id = static_cast<size_t>(prompt.top_ids[step * 10 + i]);
      ASSERT_NEAR(logits[id], prompt.top_logits[step * 10 + i], tolerance) << "id " << id;
    }
    for (size_t i = 0; i < fixed_ids_.size(); ++i) {
      const auto id = static_cast<size_t>(fixed_ids_[i]);
      ASSERT_NEAR(logits[id], prompt.fixed_logits[step * fixed_ids_.size() + i], tolerance)
          << "id " << id;
    }
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(double{logit} - double{*max});
    EXPECT_NEAR(*max + std::log(sum), prompt.log_sum_exp[step], tolerance);
    if (prompt.gap[step] > kTie) {
      EXPECT_EQ(test::ArgMax(logits), prompt.token[step]);
    }
  }

  void CompareTeacherForced(const GoldenPrompt& prompt) {
    SCOPED_TRACE(prompt.name);
    const std::vector<std::vector<float>> logits = TeacherForced(prompt);
    ASSERT_EQ(logits.size(), static_cast<size_t>(num_steps_));
    for (size_t step = 0; step < logits.size(); ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      CompareStep(prompt, step, logits[step]);
    }
  }

  std::string model_path_;
  std::vector<GoldenPrompt> prompts_;
  std::vector<int32_t> fixed_ids_;
  int32_t num_steps_ = 0;
  std::unique_ptr<kernels::Ops> ops_;
  std::unique_ptr<Model> model_;
};

TEST_F(GoldenTest, CpuLogitsAgreeWithTheOracleAlongItsTokens) {
  LoadOnCpu();
  for (const GoldenPrompt& prompt : prompts_) CompareTeacherForced(prompt);
}

TEST_F(GoldenTest, CpuGreedyTokensEqualTheOracles) {
  LoadOnCpu();
  std::vector<const GoldenPrompt*> clear;
  size_t longest = 0;
  for (const GoldenPrompt& prompt : prompts_) {
    if (prompt.smallest_gap <= kTie) continue;
    clear.push_back(&prompt);
    longest = std::max(longest, prompt.prompt_ids.size());
  }
  ASSERT_GE(clear.size(), 8u) << "the golden file has too many ties to say anything";
  const auto runner =
      Runner(static_cast<int32_t>(clear.size()), longest + static_cast<size_t>(num_steps_));
  std::vector<std::vector<int32_t>> tokens(clear.size());
  for (size_t i = 0; i < clear.size(); ++i) {
    const auto logits = runner->Run(static_cast<int32_t>(i), clear[i]->prompt_ids, kChunk, 1);
    ASSERT_TRUE(logits.ok()) << logits.status();
    tokens[i].push_back(test::ArgMax((*logits)[0]));
  }
  for (int32_t step = 1; step < num_steps_; ++step) {
    std::vector<ModelRunner::Work> work;
    for (size_t i = 0; i < clear.size(); ++i) {
      work.push_back(
          {.slot = static_cast<int32_t>(i), .tokens = {tokens[i].back()}, .num_logits = 1});
    }
    const auto logits = runner->Step(work);
    ASSERT_TRUE(logits.ok()) << logits.status();
    for (size_t i = 0; i < clear.size(); ++i) tokens[i].push_back(test::ArgMax((*logits)[i]));
  }
  for (size_t i = 0; i < clear.size(); ++i) EXPECT_EQ(tokens[i], clear[i]->token) << clear[i]->name;
}

// bf16 weights, activations and cache: the same token wherever the oracle is clear, nearly
// everywhere else.
TEST_F(GoldenTest, CudaTokensAgreeWithTheOracleAlongItsTokens) {
  constexpr float kClear = 0.1f;
  absl::StatusOr<std::unique_ptr<kernels::Ops>> ops = kernels::MakeCudaOps({});
  if (ops.status().code() == absl::StatusCode::kFailedPrecondition) GTEST_SKIP() << ops.status();
  ASSERT_TRUE(ops.ok()) << ops.status();
  Load(*std::move(ops));
  int32_t num_rows = 0;
  int32_t num_equal = 0;
  float largest = 0.0f;
  for (const GoldenPrompt& prompt : prompts_) {
    SCOPED_TRACE(prompt.name);
    const std::vector<std::vector<float>> logits = TeacherForced(prompt);
    ASSERT_EQ(logits.size(), static_cast<size_t>(num_steps_));
    for (size_t step = 0; step < logits.size(); ++step) {
      const bool is_equal = test::ArgMax(logits[step]) == prompt.token[step];
      ++num_rows;
      num_equal += is_equal;
      EXPECT_TRUE(is_equal || prompt.gap[step] <= kClear)
          << "step " << step << ", gap " << prompt.gap[step];
      for (size_t i = 0; i < 10; ++i) {
        const auto id = static_cast<size_t>(prompt.top_ids[step * 10 + i]);
        largest =
            std::max(largest, std::abs(logits[step][id] - prompt.top_logits[step * 10 + i]));
      }
    }
  }
  EXPECT_GE(num_equal, num_rows * 98 / 100);
  std::cout << num_equal << " of " << num_rows << " tokens equal; the largest difference of a logit"
            << " among the ten best is " << largest << "\n";
}

TEST_F(GoldenTest, ReferenceLogitsAgreeWithTheOracleAlongItsTokens) {
  if (std::getenv("TANDEM_TEST_SLOW") == nullptr)
    GTEST_SKIP() << "takes many minutes; set TANDEM_TEST_SLOW to run it";
  Load(kernels::MakeReferenceOps(kernels::ActDType::kF32));
  const auto shortest = std::min_element(
      prompts_.begin(), prompts_.end(),
      [](const auto& a, const auto& b) { return a.prompt_ids.size() < b.prompt_ids.size(); });
  CompareTeacherForced(*shortest);
}

}  // namespace
}  // namespace tandem
