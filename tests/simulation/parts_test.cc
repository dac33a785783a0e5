// The parts of the simulator, each for itself: what they find has to be wrong, and what is wrong
// has to be found.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "tests/simulation/fake_arithmetic.h"
#include "tests/simulation/fake_checkpoint.h"
#include "tests/simulation/fake_ops.h"
#include "tests/simulation/features.h"
#include "tests/simulation/list_model.h"
#include "tests/simulation/random.h"
#include "tests/simulation/script.h"
#include "tests/support/model_runner.h"

namespace tandem::test {
namespace {

std::vector<int32_t> RandomTokens(uint64_t seed, int32_t count) {
  Random random(seed);
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>(random.Below(kFakeVocab)));
  }
  return tokens;
}

class FakeOpsTest : public testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<Model>> model =
        Model::Load(FakeCheckpoint(), kernels::KvFormat::kF32, {.max_rows = 32}, ops_, nullptr);
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    model_ = *std::move(model);
    absl::StatusOr<std::unique_ptr<ModelRunner>> runner =
        ModelRunner::Make({.num_slots = 2, .page_seed = 5, .poison_cache = false}, *model_, ops_);
    ASSERT_TRUE(runner.ok()) << runner.status().ToString();
    runner_ = *std::move(runner);
  }
  // The rows' hashes behind the last `count` tokens, run in steps of `chunk`.
  std::vector<uint64_t> Rows(int32_t slot, const std::vector<int32_t>& tokens, int32_t chunk,
                             int32_t count) {
    const absl::StatusOr<std::vector<std::vector<float>>> rows =
        runner_->Run(slot, tokens, chunk, count);
    std::vector<uint64_t> hashes;
    if (!rows.ok()) return hashes;
    for (const std::vector<float>& row : *rows) hashes.push_back(LoadHash(row.data()));
    return hashes;
  }

  FakeOps ops_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<ModelRunner> runner_;
};

TEST_F(FakeOpsTest, ComputesWhatTheListModelSaysThroughThePages) {
  const std::vector<int32_t> tokens = RandomTokens(1, 230);
  ListModel model(0, 0, 0);
  model.Push(tokens);
  const std::vector<uint64_t> rows = Rows(1, tokens, 7, 3);
  EXPECT_EQ(rows, (std::vector<uint64_t>{model.Row(228), model.Row(229), model.Row(230)}));
  EXPECT_EQ(ops_.violation(), "");
}

TEST_F(FakeOpsTest, AnotherTokenBeyondTheWindowChangesTheRow) {
  std::vector<int32_t> tokens = RandomTokens(1, 230);
  const std::vector<uint64_t> rows = Rows(0, tokens, 32, 1);
  tokens[0] = (tokens[0] + 1) % kFakeVocab;
  EXPECT_NE(Rows(1, tokens, 32, 1), rows);
}

TEST_F(FakeOpsTest, AWriteIntoASharedPageIsAViolation) {
  ops_.SetOwners([](int32_t, int32_t) { return 2; });
  Rows(0, {1, 2, 3}, 3, 1);
  EXPECT_NE(ops_.violation().find("2 owners"), std::string::npos) << ops_.violation();
}

TEST_F(FakeOpsTest, APageThatIsFreedInFlightIsAViolation) {
  int32_t calls = 0;  // the first two are for the writes, one in each layer
  ops_.SetOwners([&calls](int32_t, int32_t) { return ++calls <= 2 ? 1 : 0; });
  Rows(0, RandomTokens(1, 10), 10, 1);
  EXPECT_NE(ops_.violation().find("no owner"), std::string::npos) << ops_.violation();
}

TEST_F(FakeOpsTest, HostMemoryIsValidAfterFinishOnly) {
  absl::StatusOr<kernels::Buffer> device = ops_.Allocate(4, "test");
  ASSERT_TRUE(device.ok());
  const int32_t value = 7;
  ops_.CopyToDevice(device->data(), &value, sizeof(value));
  int32_t host = 7;
  ops_.CopyToHost(&host, device->data(), sizeof(host));
  EXPECT_NE(host, 7);
  ASSERT_TRUE(ops_.Finish(ops_.Mark()).ok());
  EXPECT_EQ(host, 7);
}

TEST(ListModelTest, WhatWasCutDoesNotMatter) {
  const std::vector<int32_t> tokens = RandomTokens(2, 200);
  ListModel plain(3, 1, 9);
  plain.Push(tokens);
  ListModel cut(3, 1, 9);
  cut.Push(std::vector<int32_t>(tokens.begin(), tokens.begin() + 150));
  cut.Push(RandomTokens(4, 100));
  cut.Truncate(150);
  cut.Push(std::vector<int32_t>(tokens.begin() + 150, tokens.end()));
  EXPECT_EQ(cut.Weight(200), plain.Weight(200));
  EXPECT_EQ(cut.Draw(200), plain.Draw(200));
  EXPECT_NE(plain.Weight(200), plain.Weight(199));
}

TEST(ListModelTest, AboutOneDrawInTwentyIsUndecided) {
  ListModel model(3, 1, 9);
  model.Push(RandomTokens(2, 400));
  int32_t undecided = 0;
  for (int32_t position = 1; position <= 400; ++position) undecided += model.Draw(position) < 0;
  EXPECT_GT(undecided, 5);
  EXPECT_LT(undecided, 60);
}

TEST(ScriptTest, EndsAtTheTargetWithinItsRewinds) {
  int32_t rewinds = 0;
  for (uint64_t id = 1; id <= 200; ++id) {
    SequenceSpec spec;
    spec.id = id;
    spec.prompt = RandomTokens(id, 30);
    spec.target = 60;
    spec.max_back = 8;
    spec.rewinds = true;
    spec.several = true;
    Script script(spec);
    while (!script.done()) {
      const int32_t lowest = script.longest() - spec.max_back;
      const Script::Action action = script.Next(5);
      EXPECT_GE(action.position, std::max(1, lowest));
      rewinds += action.kind == Script::Action::Kind::kRewind;
    }
    EXPECT_EQ(script.size(), 60);
    EXPECT_EQ(FinalList(spec).size(), 60u);
  }
  EXPECT_GT(rewinds, 100);
}

TEST(FeaturesTest, TextAndSetAgree) {
  Features features;
  ASSERT_TRUE(Features::Parse("all,-cache", &features));
  EXPECT_FALSE(features.has(Feature::kCache));
  EXPECT_TRUE(features.has(Feature::kGrow));
  Features again;
  ASSERT_TRUE(Features::Parse(features.ToString(), &again));
  EXPECT_EQ(again, features);
  EXPECT_EQ(Features::All().ToString(), "all");
  EXPECT_FALSE(Features::Parse("cash", &features));
}

}  // namespace
}  // namespace tandem::test
