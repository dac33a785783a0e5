// The rules of a decision, one by one, from the full row.
#include "engine/sampling/decision.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/engine/sampling/random_rows.h"

namespace tandem::test {
namespace {

Decider Make(const SamplingParameters& parameters, const std::vector<int32_t>& tokens,
             int32_t prompt_length, int32_t vocab_size) {
  return Decider(parameters, 0, prompt_length, tokens, vocab_size, {});
}

int32_t Token(const SamplingParameters& parameters, const std::vector<float>& logits) {
  const Decision decision =
      Make(parameters, {0}, 1, static_cast<int32_t>(logits.size())).DecideFromRow(logits);
  EXPECT_EQ(decision.kind, Decision::Kind::kToken);
  return decision.token;
}

SamplingParameters Sampled(float temperature) {
  SamplingParameters parameters;
  parameters.temperature = temperature;
  parameters.seed = 77;
  return parameters;
}

// ---- windows ---------------------------------------------------------------------------------

int32_t CountIn(const std::vector<int32_t>& tokens, size_t begin, int32_t window, int32_t id) {
  const size_t first =
      window > 0 && tokens.size() > size_t(window) ? tokens.size() - size_t(window) : 0;
  const size_t from = std::min(std::max(first, begin), tokens.size());
  return static_cast<int32_t>(std::count(tokens.begin() + from, tokens.end(), id));
}

TEST(Windows, CountsWhileAppendingAreThoseOfAFreshCount) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 300; ++round) {
    SamplingParameters p;
    p.repetition_penalty = 1.25f;
    p.presence_penalty = 0.5f;
    p.frequency_penalty = 0.25f;
    p.repetition_window = static_cast<int32_t>(random() % 12);
    p.presence_window = static_cast<int32_t>(random() % 12);
    p.frequency_window = static_cast<int32_t>(random() % 12);
    const int32_t prompt_length = 1 + static_cast<int32_t>(random() % 8);
    std::vector<int32_t> tokens;
    for (int i = 0; i < prompt_length + 2; ++i) tokens.push_back(int32_t(random() % 6));
    Decider decider = Make(p, tokens, prompt_length, 6);
    for (int step = 0; step < 30; ++step) {
      for (int32_t id = 0; id < 6; ++id) {
        float expected = 2.0f;
        if (CountIn(tokens, 0, p.repetition_window, id) > 0) expected /= 1.25f;
        if (CountIn(tokens, prompt_length, p.presence_window, id) > 0) expected -= 0.5f;
        expected -=
            0.25f * static_cast<float>(CountIn(tokens, prompt_length, p.frequency_window, id));
        ASSERT_EQ(decider.Adjusted(id, 2.0f), expected) << "id " << id << " step " << step;
      }
      tokens.push_back(int32_t(random() % 6));
      decider.Append(tokens.back());
      ASSERT_EQ(decider.tokens(), tokens);
      ASSERT_EQ(decider.position(), static_cast<int32_t>(tokens.size()));
    }
  }
}

TEST(Windows, AWindowOf20IsARollingBufferOf20Tokens) {
  SamplingParameters p;
  p.repetition_penalty = 2.0f;
  p.repetition_window = 20;
  Decider decider = Make(p, {1}, 1, 3);
  for (int i = 0; i < 19; ++i) decider.Append(2);
  EXPECT_EQ(decider.Adjusted(1, 4.0f), 2.0f) << "the 20th newest token counts";
  decider.Append(2);
  EXPECT_EQ(decider.Adjusted(1, 4.0f), 4.0f) << "the 21st does not";
}

// Tokens of a session that is opened again count as output, as they did.
TEST(Windows, AFreshDeciderOverTheTokensSoFarDecidesAsTheOldOneWould) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 2000; ++i) {
    RandomCase it = MakeRandomCase(random, 60);
    Decider grown = MakeDecider(it);
    for (int n = 0; n < 25; ++n) {
      it.tokens.push_back(static_cast<int32_t>(random() % uint64_t(it.vocab_size)));
      grown.Append(it.tokens.back());
    }
    const Decision a = grown.DecideFromRow(it.logits);
    const Decision b = MakeDecider(it).DecideFromRow(it.logits);
    ASSERT_EQ(a.kind, b.kind);
    ASSERT_EQ(a.token, b.token);
  }
}

// ---- rules that went wrong elsewhere ---------------------------------------------------------

TEST(SamplingRules, B029_TheSmallestTemperatureGivesNoInfinityAndNoNan) {
  const std::vector<float> logits = {11.06f, 11.05f, -3e38f, 0.0f, -11.06f};
  SamplingParameters p = Sampled(1e-5f);
  EXPECT_EQ(Token(p, logits), 0);
  const Candidates lists = Make(p, {0}, 1, 5).CandidatesFromRow(logits);
  for (const kernels::PerturbedEntry& entry : lists.perturbed) {
    EXPECT_TRUE(std::isfinite(entry.perturbed)) << "id " << entry.id;
  }
}

TEST(SamplingRules, B031_GreedyIsNeverScaledAndHasNoNoise) {
  const std::vector<float> logits = {1.0f, 3.0f, 2.0f};
  SamplingParameters p;
  p.seed = 123;
  p.banned_ids = {1};
  const Decider decider = Make(p, {0}, 1, 3);
  EXPECT_TRUE(decider.params().greedy);
  EXPECT_EQ(decider.params().inverse_temperature, 1.0f);
  EXPECT_EQ(decider.DecideFromRow(logits).token, 2) << "the banned id is outside, not -inf / T";
  EXPECT_EQ(decider.CandidatesFromRow(logits).perturbed[0].perturbed, 0.0f);
}

TEST(SamplingRules, B033_TheBestIdAlwaysStaysWhateverTopP) {
  for (const float top_p : {0.0f, 1e-38f, 1e-10f, 1e-7f, 1e-4f, 1e-3f}) {
    for (uint64_t seed = 0; seed < 200; ++seed) {
      SamplingParameters p = Sampled(100.0f);
      p.top_p = top_p;
      p.seed = seed;
      ASSERT_EQ(Token(p, {0.0f, 0.5f, 0.4f, 0.3f}), 1) << top_p;
    }
  }
}

TEST(SamplingRules, B035_TopKBeyondTheVocabularyIsTheVocabulary) {
  const std::vector<float> logits = {0.3f, 0.1f, 0.2f};
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SamplingParameters p = Sampled(1.0f);
    p.seed = seed;
    const int32_t off = Token(p, logits);
    for (const int32_t top_k : {-1, 3, 4, 191222, std::numeric_limits<int32_t>::max()}) {
      p.top_k = top_k;
      ASSERT_EQ(Token(p, logits), off) << top_k;
    }
  }
}

TEST(SamplingRules, B037_RepetitionCountsPromptAndOutput) {
  SamplingParameters p;
  p.repetition_penalty = 2.0f;
  const Decider decider = Make(p, {0, 1, 2}, 2, 4);
  EXPECT_EQ(decider.Adjusted(0, 4.0f), 2.0f) << "prompt";
  EXPECT_EQ(decider.Adjusted(2, 4.0f), 2.0f) << "output";
  EXPECT_EQ(decider.Adjusted(3, 4.0f), 4.0f) << "neither";
  EXPECT_EQ(decider.Adjusted(0, -4.0f), -8.0f) << "negative logits are multiplied";
}

TEST(SamplingRules, B039_PenaltiesAreOfOneDeciderAlone) {
  SamplingParameters plain;
  SamplingParameters penalised;
  penalised.frequency_penalty = 1.05f;
  const Decider a = Make(plain, {0, 1}, 1, 4);
  Decider b = Make(penalised, {0, 1, 1, 2}, 1, 4);
  b.Append(3);
  for (int32_t id = 0; id < 4; ++id) EXPECT_EQ(a.Adjusted(id, 1.5f), 1.5f);
}

// The draw is a function of seed, choice, position and id: no state is shared or carried.
TEST(SamplingRules, B041_B043_ADrawDependsOnSeedChoiceAndPositionAlone) {
  std::mt19937_64 random(5);
  std::vector<float> logits(50);
  for (float& logit : logits) logit = static_cast<float>(random() % 100) / 25.0f;
  SamplingParameters p = Sampled(1.0f);
  const Decider first = Make(p, {1, 2, 3}, 3, 50);
  const int32_t token = first.DecideFromRow(logits).token;
  for (int i = 0; i < 10; ++i) {
    SamplingParameters other = Sampled(1.0f);
    other.seed = random();
    Make(other, {4}, 1, 50).DecideFromRow(logits);  // what others draw in between
    EXPECT_EQ(Make(p, {7, 8, 9}, 2, 50).DecideFromRow(logits).token, token)
        << "other tokens, the same position";
  }
  // And on each of them.
  int32_t changed = 0;
  for (uint32_t choice = 1; choice < 20; ++choice) {
    changed +=
        Decider(p, choice, 3, std::vector<int32_t>{1, 2, 3}, 50, {}).DecideFromRow(logits).token !=
        token;
  }
  EXPECT_GT(changed, 10);
}

TEST(SamplingRules, B045_LogprobsAreFiniteForEveryFiniteLogit) {
  SamplingParameters p = Sampled(1.0f);
  p.top_k = 1;
  p.want_raw = true;
  p.num_raw_top = 4;
  const std::vector<float> logits = {1.0f, 2.0f, -3e38f, 3e38f};
  const Candidates lists = Make(p, {0}, 1, 4).CandidatesFromRow(logits);
  for (const kernels::RawEntry& entry : lists.raw_top) {
    EXPECT_TRUE(std::isfinite(RawLogprob(entry.raw, lists.summary))) << entry.id;
  }
}

TEST(SamplingRules, RawLogprobsAreThoseOfTheSoftmaxBeforeEveryEdit) {
  std::mt19937_64 random(6);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  SamplingParameters p = Sampled(2.0f);
  p.want_raw = true;
  p.num_raw_top = 20;
  p.top_k = 3;
  p.banned_ids = {4};
  p.repetition_penalty = 3.0f;
  p.report_ids = {4, 17};
  std::vector<float> logits(300);
  for (float& logit : logits) logit = normal(random);
  const Candidates lists = Make(p, {4, 5}, 1, 300).CandidatesFromRow(logits);
  double total = 0.0;
  for (const float logit : logits) total += std::exp(double{logit});
  const auto check = [&](const kernels::RawEntry& entry) {
    EXPECT_NEAR(RawLogprob(entry.raw, lists.summary), std::log(std::exp(double{entry.raw}) / total),
                1e-6);
    const auto larger = [&](float logit) { return logit > entry.raw; };
    EXPECT_EQ(entry.raw_rank, std::count_if(logits.begin(), logits.end(), larger));
  };
  ASSERT_EQ(lists.raw_top.size(), 20u);
  for (const kernels::RawEntry& entry : lists.raw_top) check(entry);
  ASSERT_EQ(lists.reported.size(), 2u);
  EXPECT_EQ(lists.reported[0].id, 4) << "a banned id has a logprob too";
  for (const kernels::RawEntry& entry : lists.reported) check(entry);
}

TEST(SamplingRules, B051_ANonFiniteLogitAnywhereGivesNoToken) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const int32_t at : {0, 2, 4}) {
      std::vector<float> logits = {1.0f, 5.0f, 2.0f, 0.0f, 1.0f};
      logits[at] = bad;
      SamplingParameters p;
      p.banned_ids = {at};  // outside the row, and still the end of the request
      const Decider decider = Make(p, {0}, 1, 5);
      EXPECT_EQ(decider.DecideFromRow(logits).kind, Decision::Kind::kNonFinite);
      EXPECT_EQ(decider.DecideFromRow(logits).token, at);
      const Candidates lists = decider.CandidatesFromRow(logits);
      EXPECT_EQ(lists.summary.drawn, -1);
      EXPECT_EQ(decider.DecideFromCandidates(lists).kind, Decision::Kind::kNonFinite);
      EXPECT_EQ(decider.DecideFromCandidates(lists).token, at);
    }
  }
}

TEST(SamplingRules, ARowWithoutIdsGivesNoToken) {
  SamplingParameters p;
  p.allowed_ids = {1};
  p.end_ids = {1};
  p.min_tokens = 2;
  Decider decider = Make(p, {0}, 1, 3);
  EXPECT_EQ(decider.NumInRow(), 0);
  EXPECT_EQ(decider.DecideFromRow(std::vector<float>{1, 2, 3}).kind, Decision::Kind::kNoToken);
  decider.Append(0);
  decider.Append(0);
  EXPECT_EQ(decider.DecideFromRow(std::vector<float>{1, 2, 3}).token, 1) << "min_tokens is reached";
}

TEST(SamplingRules, IdsThatTheTokenizerDoesNotDefineAreOutsideTheRow) {
  const std::vector<uint32_t> defined = {0b0101};
  SamplingParameters p;
  const Decider decider(p, 0, 1, std::vector<int32_t>{0}, 4, defined);
  EXPECT_EQ(decider.NumInRow(), 2);
  EXPECT_EQ(decider.DecideFromRow(std::vector<float>{1, 9, 2, 8}).token, 2);
  EXPECT_FALSE(decider.InRow(1));
  EXPECT_FALSE(decider.InRow(-1));
  EXPECT_FALSE(decider.InRow(4));
}

}  // namespace
}  // namespace tandem::test
