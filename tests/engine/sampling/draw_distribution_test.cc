// Draws follow the distribution that the parameters describe: chi-square over 100,000 draws with
// fixed seeds.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "engine/sampling/decision.h"

namespace tandem {
namespace {

constexpr int32_t kDraws = 100000;

// P(chi-square with `freedom` degrees > x), by Wilson and Hilferty's cube root (1931); its error in
// this range is far below the threshold's size.
double ChiSquareTail(double x, int32_t freedom) {
  const double n = freedom;
  const double z = (std::cbrt(x / n) - (1.0 - 2.0 / (9.0 * n))) / std::sqrt(2.0 / (9.0 * n));
  return 0.5 * std::erfc(z / std::sqrt(2.0));
}

enum class Vary { kSeed, kPosition, kChoice };

// Counts of the drawn tokens; a draw differs from the next in its seed, position or choice alone.
std::vector<int32_t> Counts(const std::vector<float>& logits, SamplingParameters parameters,
                            Vary vary) {
  const int32_t vocab_size = static_cast<int32_t>(logits.size());
  std::vector<int32_t> counts(logits.size(), 0);
  Decider growing(parameters, 0, 1, std::vector<int32_t>{0}, vocab_size, {});
  for (int32_t i = 0; i < kDraws; ++i) {
    Decision decision;
    if (vary == Vary::kPosition) {
      decision = growing.DecideFromRow(logits);
      growing.Append(0);
    } else {
      if (vary == Vary::kSeed) parameters.seed = 1000003ull * static_cast<uint64_t>(i);
      const uint32_t choice = vary == Vary::kChoice ? static_cast<uint32_t>(i) : 0;
      decision = Decider(parameters, choice, 1, std::vector<int32_t>{0}, vocab_size, {})
                     .DecideFromRow(logits);
    }
    EXPECT_EQ(decision.kind, Decision::Kind::kToken);
    ++counts[static_cast<size_t>(decision.token)];
  }
  return counts;
}

// kept: the ids that the parameters keep, whose probabilities are softmax(logit / T) among them.
double PValue(const std::vector<float>& logits, const SamplingParameters& parameters,
              const std::vector<int32_t>& kept, Vary vary) {
  std::vector<double> weights(logits.size(), 0.0);
  for (const int32_t id : kept) {
    weights[static_cast<size_t>(id)] = std::exp(double{logits[id]} / parameters.temperature);
  }
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  const std::vector<int32_t> counts = Counts(logits, parameters, vary);
  double chi_square = 0.0;
  for (size_t id = 0; id < logits.size(); ++id) {
    const double expected = kDraws * weights[id] / total;
    if (weights[id] == 0.0) {
      EXPECT_EQ(counts[id], 0) << "id " << id << " is not kept";
      continue;
    }
    EXPECT_GT(expected, 20.0) << "too rare for the test";
    chi_square += (counts[id] - expected) * (counts[id] - expected) / expected;
  }
  return ChiSquareTail(chi_square, static_cast<int32_t>(kept.size()) - 1);
}

const std::vector<float> kLogits = {0.0f, 1.0f, -1.0f, 2.0f, 0.5f, 0.5f, -0.3f, 1.7f, -2.0f, 0.1f};
const std::vector<int32_t> kAll = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};

TEST(DrawDistribution, TheTailFunctionHasKnownValues) {
  // From tables of the chi-square distribution: 5 % at 16.919 and 0.1 % at 27.877, 9 degrees.
  EXPECT_NEAR(ChiSquareTail(16.919, 9), 0.05, 2e-3);
  EXPECT_NEAR(ChiSquareTail(27.877, 9), 0.001, 2e-4);
}

TEST(DrawDistribution, PlainDrawsFollowTheSoftmaxOverSeedsPositionsAndChoices) {
  SamplingParameters parameters;
  parameters.temperature = 1.0f;
  parameters.seed = 5;
  EXPECT_GT(PValue(kLogits, parameters, kAll, Vary::kSeed), 1e-4);
  EXPECT_GT(PValue(kLogits, parameters, kAll, Vary::kPosition), 1e-4);
  EXPECT_GT(PValue(kLogits, parameters, kAll, Vary::kChoice), 1e-4);
}

TEST(DrawDistribution, TemperatureFlattensAndSharpens) {
  SamplingParameters parameters;
  parameters.seed = 6;
  parameters.temperature = 2.5f;
  EXPECT_GT(PValue(kLogits, parameters, kAll, Vary::kPosition), 1e-4);
  parameters.temperature = 0.7f;
  EXPECT_GT(PValue(kLogits, parameters, kAll, Vary::kPosition), 1e-4);
}

TEST(DrawDistribution, TopKDrawsAmongTheFirst) {
  SamplingParameters parameters;
  parameters.temperature = 1.0f;
  parameters.seed = 7;
  parameters.top_k = 4;
  EXPECT_GT(PValue(kLogits, parameters, {3, 7, 1, 4}, Vary::kPosition), 1e-4);
}

TEST(DrawDistribution, TopPDrawsAmongThoseWithLessMassAbove) {
  SamplingParameters parameters;
  parameters.temperature = 1.0f;
  parameters.seed = 8;
  parameters.top_p = 0.7f;  // masses above: 0, 0.34, 0.60, 0.72
  EXPECT_GT(PValue(kLogits, parameters, {3, 7, 1}, Vary::kPosition), 1e-4);
}

TEST(DrawDistribution, MinPDrawsAmongThoseNearTheBest) {
  SamplingParameters parameters;
  parameters.temperature = 1.0f;
  parameters.seed = 9;
  parameters.min_p = 0.2f;  // exp(-1.5) = 0.223, exp(-1.9) = 0.150
  EXPECT_GT(PValue(kLogits, parameters, {3, 7, 1, 4, 5}, Vary::kSeed), 1e-4);
}

// A test that could not fail would pass this too.
TEST(DrawDistribution, AWrongDistributionIsSeen) {
  SamplingParameters parameters;
  parameters.temperature = 1.0f;
  parameters.seed = 5;
  std::vector<float> wrong = kLogits;
  wrong[4] += 0.1f;
  std::vector<double> weights;
  double total = 0.0;
  for (const float logit : wrong) {
    weights.push_back(std::exp(double{logit}));
    total += weights.back();
  }
  const std::vector<int32_t> counts = Counts(kLogits, parameters, Vary::kPosition);
  double chi_square = 0.0;
  for (size_t id = 0; id < wrong.size(); ++id) {
    const double expected = kDraws * weights[id] / total;
    chi_square += (counts[id] - expected) * (counts[id] - expected) / expected;
  }
  EXPECT_LT(ChiSquareTail(chi_square, 9), 1e-4);
}

}  // namespace
}  // namespace tandem
