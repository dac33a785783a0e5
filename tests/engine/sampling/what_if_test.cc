// What another temperature, seed or cut would have drawn: from lists it is what the whole row
// draws, or undecided.
#include "engine/sampling/what_if.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "kernels/draw/decide.h"
#include "kernels/draw/weight.h"
#include "tests/engine/sampling/random_rows.h"

namespace tandem::test {
namespace {

// The case with lists of its own sizes, and of the whole row.
struct Listed {
  explicit Listed(const RandomCase& it)
      : decider(MakeDecider(it)), lists(decider.CandidatesFromRow(it.logits)) {}
  bool empty() const { return lists.summary.num_in_row == 0; }
  Decider decider;
  Candidates lists;
};

// Draw parameters of another case, where `which` says so.
enum Change { kTemperature = 1, kSeed = 2, kTopK = 4, kTopP = 8, kMinP = 16 };
RandomCase Changed(const RandomCase& it, uint32_t which, std::mt19937_64& random) {
  RandomCase out = it;
  const RandomCase from = MakeRandomCase(random, it.vocab_size);
  SamplingParameters& p = out.parameters;
  if (which & kTemperature) p.temperature = from.parameters.temperature;
  if (which & kSeed) p.seed = from.parameters.seed;
  if (which & kTopK) p.top_k = from.parameters.top_k;
  if (which & kTopP) p.top_p = from.parameters.top_p;
  if (which & kMinP) p.min_p = from.parameters.min_p;
  return out;
}

// The number of ids that are left after each rule, by the rules as they read.
ListedRow::Kept KeptByRow(const RandomCase& it) {
  RandomCase whole = it;
  whole.parameters.num_top = it.vocab_size;
  const Listed row(whole);
  const kernels::DrawParams& params = row.decider.params();
  const int32_t n = row.lists.summary.num_in_row;
  const int32_t num_top_k = params.top_k == 0 ? n : std::min(params.top_k, n);
  std::vector<uint64_t> weights;
  for (const kernels::TopEntry& entry : row.lists.top) {
    weights.push_back(kernels::DrawWeight(
        kernels::ScaledLogit(entry.adjusted, row.lists.summary.row_max, params)));
  }
  uint64_t total = 0, above = 0;
  for (int32_t i = 0; i < num_top_k; ++i) total += weights[i];
  int32_t num_top_p = 0, num_min_p = 0;
  for (int32_t i = 0; i < num_top_k; ++i) {
    const bool first = i == 0;
    if (num_top_p == i && (first || kernels::PassesTopP(params.top_p_fixed, above, total))) {
      ++num_top_p;
      if (num_min_p == i && (first || weights[i] >= params.min_p_weight)) ++num_min_p;
    }
    above += weights[i];
  }
  return {{num_top_k, num_top_k}, {num_top_p, num_top_p}, {num_min_p, num_min_p}};
}

TEST(WhatIf, IsNeverAnotherTokenThanTheWholeRows) {
  std::mt19937_64 random(41);
  int64_t num_cases = 0, num_decided = 0, num_in_doubt = 0;
  for (int64_t i = 0; i < 60000; ++i) {
    const RandomCase it = MakeRandomCase(random, 1024);
    const Listed listed(it);
    if (listed.empty()) continue;
    const RandomCase other = Changed(it, static_cast<uint32_t>(random() % 32), random);
    const Decider decider = MakeDecider(other);
    const ListedRow row(listed.decider, listed.lists);
    const Decision answer = row.Decide(decider.params());
    ++num_cases;
    if (answer.kind == Decision::Kind::kUndecided) {
      ASSERT_FALSE(answer.why.empty()) << "case " << i;
      continue;
    }
    ++num_decided;
    num_in_doubt += !row.Keeps(decider.params()).after_min_p.known();
    ASSERT_EQ(answer.token, decider.DecideFromRow(other.logits).token) << "case " << i;
  }
  std::printf("%ld of %ld decided, of these %ld with the number of kept ids in doubt\n",
              static_cast<long>(num_decided), static_cast<long>(num_cases),
              static_cast<long>(num_in_doubt));
  EXPECT_GT(num_decided, num_cases * 8 / 10);
  EXPECT_GT(num_in_doubt, 100);
}

TEST(WhatIf, TheNumberOfKeptIdsIsWithinItsBounds) {
  std::mt19937_64 random(42);
  int64_t num_known = 0;
  for (int64_t i = 0; i < 30000; ++i) {
    const RandomCase it = MakeRandomCase(random, 1024);
    const Listed listed(it);
    if (listed.empty()) continue;
    const RandomCase other = Changed(it, static_cast<uint32_t>(random() % 32), random);
    const ListedRow::Kept bounds =
        ListedRow(listed.decider, listed.lists).Keeps(MakeDecider(other).params());
    const ListedRow::Kept is = KeptByRow(other);
    const auto within = [](const CountRange& bound, const CountRange& value) {
      return bound.low >= 1 && bound.low <= value.low && value.low <= bound.high;
    };
    ASSERT_TRUE(within(bounds.after_top_k, is.after_top_k)) << "case " << i;
    ASSERT_TRUE(within(bounds.after_top_p, is.after_top_p))
        << "case " << i << ": " << is.after_top_p.low << " not in " << bounds.after_top_p.low
        << " to " << bounds.after_top_p.high;
    ASSERT_TRUE(within(bounds.after_min_p, is.after_min_p)) << "case " << i;
    num_known += bounds.after_min_p.known();
  }
  EXPECT_GT(num_known, 15000);
}

TEST(WhatIf, TheWholeRowAsTopListLeavesNothingUndecided) {
  std::mt19937_64 random(43);
  for (int i = 0; i < 10000; ++i) {
    RandomCase it = MakeRandomCase(random, 200);
    it.parameters.num_top = it.vocab_size;
    const Listed listed(it);
    if (listed.empty()) continue;
    const RandomCase other = Changed(it, static_cast<uint32_t>(random() % 32), random);
    const Decider decider = MakeDecider(other);
    const ListedRow row(listed.decider, listed.lists);
    ASSERT_EQ(row.Decide(decider.params()).token, decider.DecideFromRow(other.logits).token);
    ASSERT_TRUE(row.Keeps(decider.params()).after_min_p.known());
  }
}

TEST(WhatIf, UnchangedParametersDecideWhateverTheListsDecided) {
  std::mt19937_64 random(44);
  for (int i = 0; i < 20000; ++i) {
    const RandomCase it = MakeRandomCase(random, 400);
    const Listed listed(it);
    if (listed.empty()) continue;
    const Decision decision = listed.decider.DecideFromCandidates(listed.lists);
    ASSERT_NE(decision.kind, Decision::Kind::kFault) << decision.why;
    if (decision.kind != Decision::Kind::kToken) continue;
    ASSERT_EQ(ListedRow(listed.decider, listed.lists).Decide(listed.decider.params()).token,
              decision.token);
  }
}

// 2,000 ids that fall off evenly, as lists of the default sizes.
RandomCase SmoothCase(float temperature) {
  RandomCase it;
  it.vocab_size = 2000;
  for (int32_t id = 0; id < it.vocab_size; ++id) {
    it.logits.push_back(8.0f - 0.05f * static_cast<float>(id));
  }
  it.tokens = {1, 2, 3};
  it.prompt_length = 3;
  it.parameters.temperature = temperature;
  it.parameters.seed = 5;
  return it;
}

TEST(WhatIf, TopPAtALowerTemperatureIsDecidedThoughTheTotalIsNotKnown) {
  RandomCase it = SmoothCase(1.0f);
  int32_t num_decided = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    it.parameters.seed = seed;
    const Listed listed(it);
    RandomCase other = it;
    other.parameters.temperature = 0.2f;
    other.parameters.top_p = 0.9f;
    const Decider decider = MakeDecider(other);
    const Decision answer = ListedRow(listed.decider, listed.lists).Decide(decider.params());
    if (answer.kind == Decision::Kind::kUndecided) continue;
    ++num_decided;
    ASSERT_EQ(answer.token, decider.DecideFromRow(it.logits).token);
  }
  EXPECT_GT(num_decided, 180);
}

TEST(WhatIf, AnotherSeedOverALongKeptSetIsUndecidedAndSaysWhy) {
  const RandomCase it = SmoothCase(1.0f);
  const Listed listed(it);
  RandomCase other = it;
  int32_t num_undecided = 0;
  for (uint64_t seed = 100; seed < 200; ++seed) {
    other.parameters.seed = seed;
    const Decision answer =
        ListedRow(listed.decider, listed.lists).Decide(MakeDecider(other).params());
    if (answer.kind != Decision::Kind::kUndecided) continue;
    ++num_undecided;
    EXPECT_THAT(answer.why, testing::HasSubstr("not in the trace"));
  }
  EXPECT_GT(num_undecided, 10);
}

TEST(WhatIf, AnotherTopKWithinTheTopListIsAlwaysDecided) {
  RandomCase it = SmoothCase(1.0f);
  for (uint64_t seed = 0; seed < 100; ++seed) {
    RandomCase other = it;
    other.parameters.top_k = 1 + static_cast<int32_t>(seed % 20);
    other.parameters.seed = seed;
    other.parameters.temperature = 2.0f;
    const Listed listed(it);
    const Decider decider = MakeDecider(other);
    EXPECT_EQ(ListedRow(listed.decider, listed.lists).Decide(decider.params()).token,
              decider.DecideFromRow(it.logits).token);
  }
}

}  // namespace
}  // namespace tandem::test
