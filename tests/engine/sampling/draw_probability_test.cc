// The probability that a token was drawn with: from lists it is that of the whole row, or absent.
#include "engine/sampling/draw_probability.h"

#include <gtest/gtest.h>

#include "kernels/draw/decide.h"
#include "kernels/draw/weight.h"
#include "tests/engine/sampling/random_rows.h"

namespace tandem::test {
namespace {

// By the whole row, as the rules read.
double ByRow(RandomCase it, int32_t token) {
  it.parameters.num_top = it.vocab_size;
  const Decider decider = MakeDecider(it);
  const Candidates row = decider.CandidatesFromRow(it.logits);
  const kernels::DrawParams& params = decider.params();
  if (params.greedy) return 1.0;
  uint64_t above = 0, kept = 0, weight_of_token = 0;
  for (int32_t rank = 0; rank < static_cast<int32_t>(row.top.size()); ++rank) {
    const uint64_t weight = kernels::DrawWeight(
        kernels::ScaledLogit(row.top[rank].adjusted, row.summary.row_max, params));
    if (kernels::Keeps(params, row.summary.top_k_weight, rank, above, weight)) kept += weight;
    above += weight;
    if (row.top[rank].id == token) weight_of_token = weight;
  }
  return static_cast<double>(weight_of_token) / static_cast<double>(kept);
}

TEST(DrawProbability, IsThatOfTheWholeRowOrAbsent) {
  std::mt19937_64 random(7);
  int known = 0, absent = 0, with_cut = 0;
  for (int i = 0; i < 5000; ++i) {
    const RandomCase it = MakeRandomCase(random, 512);
    const Decider decider = MakeDecider(it);
    const Decision decision = decider.DecideFromRow(it.logits);
    if (decision.kind != Decision::Kind::kToken) continue;
    const Candidates lists = decider.CandidatesFromRow(it.logits);
    const auto probability = DrawProbability(decider.params(), lists, decision.token);
    if (!probability.has_value()) {
      ++absent;
      continue;
    }
    ++known;
    with_cut += !decider.params().greedy && (it.parameters.top_p < 1 || it.parameters.min_p > 0);
    ASSERT_EQ(*probability, ByRow(it, decision.token)) << "case " << i;
  }
  EXPECT_GT(known, 1000);
  EXPECT_GT(with_cut, 200);
  EXPECT_GT(absent, 20);
}

TEST(DrawProbability, IsAbsentForATokenThatNoListHas) {
  std::mt19937_64 random(3);
  RandomCase it = MakeRandomCase(random, 512);
  it.parameters = SamplingParameters();
  it.parameters.temperature = 1.0f;
  it.parameters.num_top = 2;
  it.parameters.num_perturbed = 1;
  const Decider decider = MakeDecider(it);
  const Candidates lists = decider.CandidatesFromRow(it.logits);
  int known = 0;
  for (int32_t id = 0; id < it.vocab_size; ++id) {
    known += DrawProbability(decider.params(), lists, id).has_value();
  }
  EXPECT_GE(known, 2);
  EXPECT_LE(known, 3);
}

}  // namespace
}  // namespace tandem::test
