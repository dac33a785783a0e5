// What a step's explanation says is what the rules did.
#include "engine/sampling/explanation.h"

#include <gtest/gtest.h>

#include "tests/engine/sampling/random_rows.h"

namespace tandem::test {
namespace {

using Fate = ExplainedToken::Fate;

RandomCase FourIds() {
  RandomCase it;
  it.vocab_size = 4;
  it.logits = {2.0f, 1.0f, 0.0f, -1.0f};
  it.tokens = {3, 1, 1};
  it.prompt_length = 1;
  it.parameters.temperature = 1.0f;
  it.parameters.seed = 11;
  return it;
}

StepExplanation Explain(const RandomCase& it) {
  const Decider decider = MakeDecider(it);
  return ExplainStep(decider, decider.CandidatesFromRow(it.logits),
                     decider.DecideFromRow(it.logits).token);
}

TEST(Explanation, EachRuleCutsTheRanksBehindWhatItKeeps) {
  RandomCase it = FourIds();
  it.parameters.top_k = 3;
  it.parameters.top_p = 0.7f;  // of the first three, the best has 0.665 and the next 0.245
  const StepExplanation step = Explain(it);
  EXPECT_EQ(step.kept.after_top_k.low, 3);
  EXPECT_EQ(step.kept.after_top_p.low, 2);
  ASSERT_EQ(step.tokens.size(), 4u);
  EXPECT_EQ(step.tokens[1].fate, Fate::kKept);
  EXPECT_EQ(step.tokens[2].fate, Fate::kCutByTopP);
  EXPECT_EQ(step.tokens[3].fate, Fate::kCutByTopK);
  it.parameters.top_p = 1.0f;
  it.parameters.min_p = 0.2f;
  EXPECT_EQ(Explain(it).tokens[2].fate, Fate::kCutByMinP);
}

TEST(Explanation, BiasAndPenaltiesAreCountedWhereTheyChangeALogit) {
  RandomCase it = FourIds();
  it.parameters.presence_penalty = 0.5f;  // of the output: id 1, twice
  it.parameters.logit_bias = {{2, 4.0f}};
  const StepExplanation step = Explain(it);
  EXPECT_EQ(step.num_biased, 1);
  EXPECT_EQ(step.num_penalised, 1);
  EXPECT_EQ(step.tokens[0].id, 2);
  EXPECT_EQ(step.tokens[0].raw, 0.0f);
  EXPECT_EQ(step.tokens[0].adjusted, 4.0f);
  EXPECT_EQ(step.tokens[2].id, 1);
  EXPECT_EQ(step.tokens[2].edit.presence_count, 2);
  EXPECT_EQ(step.tokens[2].adjusted, 0.5f);
}

TEST(Explanation, ProbabilitiesOfTheWholeRowAddUpToOne) {
  double sum = 0.0;
  for (const ExplainedToken& token : Explain(FourIds()).tokens) {
    EXPECT_NEAR(token.mass_above, sum, 1e-9);
    sum += token.probability;
  }
  EXPECT_NEAR(sum, 1.0, 1e-9);
}

TEST(Explanation, TheWinnerHasTheLargestPerturbedValueOfThoseKept) {
  std::mt19937_64 random(4);
  int32_t num_winners = 0;
  for (int i = 0; i < 5000; ++i) {
    const RandomCase it = MakeRandomCase(random, 60);
    if (MakeDecider(it).NumInRow() == 0) continue;
    const StepExplanation step = Explain(it);
    if (step.winner < 0) continue;
    ++num_winners;
    const ExplainedToken& winner = step.tokens[step.winner];
    ASSERT_TRUE(winner.fate == Fate::kKept || winner.fate == Fate::kInDoubt);
    if (step.second < 0) continue;
    ASSERT_LE(step.tokens[step.second].perturbed, winner.perturbed);
  }
  EXPECT_GT(num_winners, 4000);
}

TEST(Explanation, EndIdsThatMinTokensHoldsBackAreOutside) {
  RandomCase it = FourIds();
  it.parameters.end_ids = {0};
  it.parameters.min_tokens = 5;
  const StepExplanation step = Explain(it);
  EXPECT_TRUE(step.end_ids_held);
  EXPECT_EQ(step.num_outside, 1);
  EXPECT_EQ(step.tokens[0].id, 1);
}

}  // namespace
}  // namespace tandem::test
