// The plan is what is taken afterwards, and says what is missing.
#include "engine/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "engine/checkpoint/random_checkpoint.h"
#include "kernels/reference/reference_ops.h"
#include "tests/kernels/forwarding_ops.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

// Knows what was allocated, and has as much memory as a test says.
class MeasuredOps final : public kernels::ForwardingOps {
 public:
  MeasuredOps() : ForwardingOps(kernels::MakeReferenceOps(kernels::ActDType::kF32)) {}
  absl::StatusOr<kernels::Buffer> Allocate(int64_t bytes, std::string_view what) override {
    allocated += bytes;
    return ForwardingOps::Allocate(bytes, what);
  }
  kernels::MemoryInfo Memory() const override { return memory; }
  int64_t WorkspaceBytes(const kernels::WorkspaceShape&) const override { return 1000; }

  int64_t allocated = 0;
  kernels::MemoryInfo memory;
};

class MemoryPlanTest : public testing::Test {
 protected:
  MemoryPlanTest() {
    options_.max_sessions = 4;
    options_.step_tokens = 64;
    options_.kv_tokens = 1024;
  }
  absl::StatusOr<MemoryPlan> Plan() { return PlanMemory(*checkpoint_, model_, options_, ops_); }

  const std::unique_ptr<Checkpoint> checkpoint_ = *RandomCheckpoint("tiny");
  MeasuredOps ops_;
  const Model::Options model_ = {.max_rows = 64};
  EngineOptions options_;
};

TEST_F(MemoryPlanTest, WhatIsPlannedIsWhatIsTaken) {
  const absl::StatusOr<MemoryPlan> plan = Plan();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(ops_.allocated, 0);
  const auto model = Model::Load(*checkpoint_, options_.kv_format, model_, ops_, nullptr);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(ops_.allocated, plan->activations);  // the reference's weights are not Allocate's
  const auto engine = DecodeEngine::Make(options_, {}, **model, ops_);
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ(ops_.allocated, plan->activations + plan->slots + plan->kv_pages);
  // 2 layers, 2 kv heads of 64, K and V, fp32.
  EXPECT_EQ(plan->kv_pages, 2 * 2 * 64 * 2 * 4 * 1024);
  // Embedding and output of 512 x 64; q, k, v, o with heads 4 and 2 of 64; gate, up, down of 192;
  // bf16.
  EXPECT_EQ(plan->weights, 2 * (2 * 512 * 64 + 2 * (64 * 64 * (4 + 2 + 2 + 4) + 3 * 64 * 192)));
  EXPECT_EQ(plan->workspace, 1000);
}

TEST_F(MemoryPlanTest, WhatDoesNotFitIsRefusedWithNeededAndFree) {
  ops_.memory = {.free = 8'000'000, .total = 9'000'000};
  const absl::StatusOr<MemoryPlan> plan = Plan();
  ASSERT_TRUE(plan.ok()) << plan.status();
  const absl::Status fits = plan->Fits();
  EXPECT_EQ(fits.code(), absl::StatusCode::kOk) << fits;
  options_.kv_tokens = 1 << 20;
  const absl::Status refused = Plan()->Fits();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.ToString(), HasSubstr("8000000 of 9000000 are free"));
  EXPECT_THAT(refused.ToString(), HasSubstr("--kv-tokens"));
}

TEST_F(MemoryPlanTest, ADeviceThatDoesNotSayRefusesNothing) {
  options_.kv_tokens = 1 << 24;
  const absl::StatusOr<MemoryPlan> plan = Plan();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->Fits().ok());
  EXPECT_THAT(plan->Table(), HasSubstr("KV pages         32768.0 MiB"));
  EXPECT_THAT(plan->Table(), HasSubstr("262144 pages * 64 = 16777216 tokens"));
  EXPECT_THAT(plan->Table(), HasSubstr("4 sessions of up to 1024 tokens"));
}

TEST_F(MemoryPlanTest, WhatTheEngineRefusesIsRefusedHere) {
  options_.max_sessions = 0;
  EXPECT_THAT(Plan().status().ToString(), HasSubstr("max_sessions is 0"));
}

}  // namespace
}  // namespace tandem
