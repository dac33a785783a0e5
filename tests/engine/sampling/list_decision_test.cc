// The decision from lists is the decision from the full row, or none.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/draw/decide.h"
#include "tests/engine/sampling/random_rows.h"

namespace tandem::test {
namespace {

// The ids that the draw keeps, by the rules as they read, in the order of ranks.
std::vector<int32_t> KeptIds(const RandomCase& it, const Decider& decider) {
  std::vector<std::pair<float, int32_t>> row;
  for (int32_t id = 0; id < it.vocab_size; ++id) {
    if (decider.InRow(id)) row.emplace_back(-decider.Adjusted(id, it.logits[id]), id);
  }
  std::sort(row.begin(), row.end());
  const kernels::DrawParams& params = decider.params();
  std::vector<uint64_t> weights;
  for (const auto& [minus_adjusted, id] : row) {
    weights.push_back(
        kernels::DrawWeight(kernels::ScaledLogit(-minus_adjusted, -row[0].first, params)));
  }
  uint64_t total = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (params.top_k == 0 || i < size_t(params.top_k)) total += weights[i];
  }
  std::vector<int32_t> kept;
  uint64_t above = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    const bool passes = (params.top_k == 0 || i < size_t(params.top_k)) &&
                        kernels::PassesTopP(params.top_p_fixed, above, total) &&
                        weights[i] >= params.min_p_weight;
    if (i == 0 || passes) kept.push_back(row[i].second);
    above += weights[i];
  }
  return kept;
}

TEST(ListDecision, EqualsTheFullRowsDecisionOrIsUndecidedWhereItMayBe) {
  std::mt19937_64 random(7);
  int64_t num_decided = 0, num_undecided = 0, num_empty = 0;
  for (int64_t i = 0; i < 100000; ++i) {
    const RandomCase it = MakeRandomCase(random, 1024);
    ASSERT_EQ(Validate(it.parameters, it.vocab_size).ToString(), "OK");
    const Decider decider = MakeDecider(it);
    const Decision full = decider.DecideFromRow(it.logits);
    const Candidates candidates = decider.CandidatesFromRow(it.logits);
    const Decision listed = decider.DecideFromCandidates(candidates);
    ASSERT_NE(listed.kind, Decision::Kind::kFault) << "case " << i << ": " << listed.why;
    if (listed.kind != Decision::Kind::kUndecided) {
      ASSERT_EQ(listed.kind, full.kind) << "case " << i;
      ASSERT_EQ(listed.token, full.token) << "case " << i;
      ASSERT_EQ(listed.token, candidates.summary.drawn) << "case " << i;
      num_empty += full.kind == Decision::Kind::kNoToken;
      ++num_decided;
      continue;
    }
    // None of the perturbed list is kept, and the kept set does not end before the top list does.
    // (One that ends with it cannot be told from a longer one by the list alone.)
    ++num_undecided;
    ASSERT_EQ(candidates.summary.drawn, -1) << "case " << i;
    const std::vector<int32_t> kept = KeptIds(it, decider);
    ASSERT_GE(kept.size(), candidates.top.size()) << "case " << i;
    for (const kernels::PerturbedEntry& entry : candidates.perturbed) {
      ASSERT_EQ(std::find(kept.begin(), kept.end(), entry.id), kept.end()) << "case " << i;
    }
  }
  EXPECT_GT(num_undecided, 300);
  EXPECT_GT(num_empty, 100);
  EXPECT_GT(num_decided, 90000);
}

TEST(ListDecision, DoesNotDependOnTheSizesOfTheLists) {
  std::mt19937_64 random(8);
  for (int i = 0; i < 5000; ++i) {
    const RandomCase it = MakeRandomCase(random, 200);
    const Decision full = MakeDecider(it).DecideFromRow(it.logits);
    for (const auto& [num_top, num_perturbed] :
         {std::pair(1, 1), {2, 4}, {20, 8}, {200, 64}, {kernels::kMaxTop, 1}}) {
      RandomCase sized = it;
      sized.parameters.num_top = num_top;
      sized.parameters.num_perturbed = num_perturbed;
      const Decider decider = MakeDecider(sized);
      const Decision listed = decider.DecideFromCandidates(decider.CandidatesFromRow(it.logits));
      ASSERT_NE(listed.kind, Decision::Kind::kFault) << listed.why;
      // The whole row in the top list leaves nothing undecided.
      ASSERT_FALSE(num_top >= it.vocab_size && listed.kind == Decision::Kind::kUndecided);
      if (listed.kind == Decision::Kind::kUndecided) continue;
      ASSERT_EQ(listed.token, full.token);
    }
  }
}

// A Fetch may bring larger lists than the parameters say: they are checked and decide all the same.
TEST(ListDecision, LargerListsThanAskedForDecide) {
  std::mt19937_64 random(9);
  int32_t num_helped = 0;
  for (int i = 0; i < 20000; ++i) {
    RandomCase it = MakeRandomCase(random, 100);
    it.parameters.num_top = it.parameters.num_perturbed = 1;
    const Decider small = MakeDecider(it);
    if (small.DecideFromCandidates(small.CandidatesFromRow(it.logits)).kind !=
        Decision::Kind::kUndecided) {
      continue;
    }
    it.parameters.num_top = kernels::kMaxTop;
    const Candidates large = MakeDecider(it).CandidatesFromRow(it.logits);
    ASSERT_EQ(small.DecideFromCandidates(large).token, small.DecideFromRow(it.logits).token);
    ++num_helped;
  }
  EXPECT_GT(num_helped, 500);
}

TEST(ListDecision, GreedyNeedsOneEntry) {
  std::mt19937_64 random(10);
  for (int i = 0; i < 20000; ++i) {
    RandomCase it = MakeRandomCase(random, 100);
    it.parameters.temperature = 0.0f;
    it.parameters.num_top = it.parameters.num_perturbed = 1;
    const Decider decider = MakeDecider(it);
    const Decision listed = decider.DecideFromCandidates(decider.CandidatesFromRow(it.logits));
    ASSERT_NE(listed.kind, Decision::Kind::kUndecided);
    ASSERT_EQ(listed.token, decider.DecideFromRow(it.logits).token);
  }
}

}  // namespace
}  // namespace tandem::test
