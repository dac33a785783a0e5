// Draws follow the distribution that the parameters describe: chi-square over 100,000 draws of each
// of 12 sets of parameters, with fixed seeds. The probabilities are computed here in double, from
// the rules as they read.
//
// TANDEM_EXHAUSTIVE: 10,000,000 draws of each (minutes).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "engine/sampling/decision.h"

namespace tandem {
namespace {

constexpr int32_t kVocabSize = 32;
constexpr double kSmallestBin = 10.0;  // expected draws; rarer ids share a bin

int32_t NumDraws() { return std::getenv("TANDEM_EXHAUSTIVE") != nullptr ? 10000000 : 100000; }

// P(chi-square with `freedom` degrees > x): the upper incomplete gamma function of (freedom / 2, x
// / 2), regularised; its series below a + 1, else its continued fraction by Lentz's method
// (Abramowitz and Stegun 6.5.29, 6.5.31).
double ChiSquareTail(double chi_square, int32_t freedom) {
  const double a = 0.5 * freedom, x = 0.5 * chi_square;
  if (x <= 0.0) return 1.0;
  const double scale = std::exp(a * std::log(x) - x - std::lgamma(a));
  if (x < a + 1.0) {
    double term = 1.0 / a, sum = term;
    for (double n = a + 1.0; term > sum * 1e-16; n += 1.0) sum += term *= x / n;
    return 1.0 - scale * sum;
  }
  double b = x + 1.0 - a, c = 1e300, d = 1.0 / b, fraction = d;
  for (int i = 1; i < 10000; ++i) {
    const double numerator = -i * (i - a);
    b += 2.0;
    d = 1.0 / (numerator * d + b);
    c = b + numerator / c;
    fraction *= c * d;
    if (std::abs(c * d - 1.0) < 1e-16) break;
  }
  return scale * fraction;
}

// With ties, and spread so that every rule cuts somewhere in the middle.
std::vector<float> Logits() {
  std::vector<float> logits;
  for (int32_t id = 0; id < kVocabSize; ++id) {
    logits.push_back(static_cast<float>((id * 13) % kVocabSize) * 0.125f - 1.5f);
  }
  logits[7] = logits[11] = logits[20];
  return logits;
}

// One draw differs from the next in its seed, position or choice alone.
enum class Vary { kSeed, kPosition, kChoice };

struct Setting {
  const char* name;
  Vary vary = Vary::kPosition;
  SamplingParameters parameters;
};

// The history is a cycle of ids 0 to 3, all output but the first, so that within windows that are
// multiples of 4 every count is the same at any position.
constexpr int32_t kCycle = 4;
const std::vector<int32_t> kHistory = {0, 1, 2, 3, 0, 1, 2, 3};

std::vector<Setting> Settings() {
  std::vector<Setting> settings(12);
  for (size_t i = 0; i < settings.size(); ++i) {
    settings[i].parameters.temperature = 1.0f;
    settings[i].parameters.seed = (uint64_t{i} << 33) + 5;
  }
  size_t next = 0;
  const auto add = [&](const char* name, Vary vary = Vary::kPosition) {
    settings[next].name = name;
    settings[next].vary = vary;
    return &settings[next++].parameters;
  };
  add("over seeds", Vary::kSeed);
  add("over positions");
  add("over choices", Vary::kChoice);
  add("hot")->temperature = 2.5f;
  add("cold")->temperature = 0.4f;
  add("all but flat")->temperature = 100.0f;
  add("top_k")->top_k = 9;
  add("top_p")->top_p = 0.7f;
  add("min_p", Vary::kSeed)->min_p = 0.1f;
  SamplingParameters* p = add("every cut");
  p->temperature = 1.3f;
  p->top_k = 20;
  p->top_p = 0.9f;
  p->min_p = 0.15f;
  p = add("penalties");
  p->repetition_penalty = 1.5f;
  p->repetition_window = 4;
  p->presence_penalty = 0.5f;
  p->presence_window = 4;
  p->frequency_penalty = 0.25f;
  p->frequency_window = 8;
  p->top_p = 0.95f;
  p = add("bias, bans and end ids", Vary::kChoice);
  p->logit_bias = {{3, 2.0f}, {12, -1.0f}, {30, 0.75f}};
  p->banned_ids = {1, 5, 17};
  for (int32_t id = 0; id < 28; ++id) p->allowed_ids.push_back(id);
  p->end_ids = {9};
  p->min_tokens = 20;
  return settings;
}

// The probability of every id, in double.
std::vector<double> Probabilities(const std::vector<float>& logits, const SamplingParameters& p) {
  struct Id {
    int32_t id;
    double adjusted, weight;
  };
  const auto has = [](const std::vector<int32_t>& ids, int32_t id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  std::vector<Id> row;
  for (int32_t id = 0; id < kVocabSize; ++id) {
    if (has(p.banned_ids, id) || has(p.end_ids, id)) continue;
    if (!p.allowed_ids.empty() && !has(p.allowed_ids, id)) continue;
    double x = logits[id];
    for (const auto& [biased, bias] : p.logit_bias) x += biased == id ? bias : 0.0;
    if (id < kCycle) {
      x = x > 0.0 ? x / p.repetition_penalty : x * p.repetition_penalty;
      x -= p.presence_penalty;
      x -= p.frequency_penalty * (p.frequency_window / kCycle);
    }
    row.push_back({id, x, 0.0});
  }
  std::stable_sort(row.begin(), row.end(),
                   [](const Id& a, const Id& b) { return a.adjusted > b.adjusted; });
  double total = 0.0;
  for (Id& it : row) it.weight = std::exp((it.adjusted - row[0].adjusted) / p.temperature);
  if (p.top_k > 0) row.resize(std::min(row.size(), static_cast<size_t>(p.top_k)));
  for (const Id& it : row) total += it.weight;
  double above = 0.0, kept_total = 0.0;
  std::vector<double> out(logits.size(), 0.0);
  for (const Id& it : row) {
    // No cut is so near that rounding could move it.
    EXPECT_GT(std::abs(above / total - p.top_p), 1e-5);
    EXPECT_GT(std::abs(it.weight - p.min_p), 1e-5);
    const bool kept = above < p.top_p * total && it.weight >= p.min_p;
    above += it.weight;
    if (kept) kept_total += out[it.id] = it.weight;
  }
  for (double& probability : out) probability /= kept_total;
  return out;
}

// How often each id is drawn.
std::vector<int32_t> Counts(const std::vector<float>& logits, const Setting& setting,
                            int32_t num_draws) {
  std::vector<int32_t> counts(logits.size(), 0);
  SamplingParameters parameters = setting.parameters;
  Decider growing(parameters, 0, 1, kHistory, kVocabSize, {});
  for (int32_t i = 0; i < num_draws; ++i) {
    Decision decision;
    if (setting.vary == Vary::kPosition) {
      decision = growing.DecideFromRow(logits);
      growing.Append(i % kCycle);
    } else {
      if (setting.vary == Vary::kSeed) parameters.seed = 1000003ull * static_cast<uint64_t>(i);
      const uint32_t choice = setting.vary == Vary::kChoice ? static_cast<uint32_t>(i) : 0;
      decision = Decider(parameters, choice, 1, kHistory, kVocabSize, {}).DecideFromRow(logits);
    }
    EXPECT_EQ(decision.kind, Decision::Kind::kToken);
    ++counts[static_cast<size_t>(decision.token)];
  }
  return counts;
}

// Of counts under the probabilities.
double PValue(const std::vector<int32_t>& counts, const std::vector<double>& probabilities) {
  const double num_draws = std::accumulate(counts.begin(), counts.end(), 0.0);
  double chi_square = 0.0, pooled = 0.0, pooled_expected = 0.0;
  int32_t bins = 0;
  const auto add = [&](double count, double expected) {
    chi_square += (count - expected) * (count - expected) / expected;
    ++bins;
  };
  for (size_t id = 0; id < counts.size(); ++id) {
    const double expected = num_draws * probabilities[id];
    if (probabilities[id] == 0.0) {
      EXPECT_EQ(counts[id], 0) << "id " << id << " is not kept";
    } else if (expected < kSmallestBin) {
      pooled += counts[id];
      pooled_expected += expected;
    } else {
      add(counts[id], expected);
    }
  }
  if (pooled_expected > 0.0) add(pooled, pooled_expected);
  return ChiSquareTail(chi_square, bins - 1);
}

TEST(DrawDistribution, TheTailFunctionHasKnownValues) {
  // Tables of the chi-square distribution, and closed forms: exp(-x / 2) at two degrees of freedom,
  // erfc(sqrt(x / 2)) at one.
  EXPECT_NEAR(ChiSquareTail(16.918978, 9), 0.05, 1e-8);
  EXPECT_NEAR(ChiSquareTail(27.877165, 9), 0.001, 1e-9);
  EXPECT_NEAR(ChiSquareTail(124.342113, 100), 0.05, 1e-8);
  for (const double x : {0.01, 0.7, 1.9, 5.0, 40.0}) {
    EXPECT_NEAR(ChiSquareTail(x, 2) / std::exp(-0.5 * x), 1.0, 1e-12) << x;
    EXPECT_NEAR(ChiSquareTail(x, 1) / std::erfc(std::sqrt(0.5 * x)), 1.0, 1e-12) << x;
  }
}

TEST(DrawDistribution, DrawsFollowTheSoftmaxOfWhatTheParametersKeep) {
  const std::vector<float> logits = Logits();
  for (const Setting& setting : Settings()) {
    const std::vector<double> probabilities = Probabilities(logits, setting.parameters);
    const double p = PValue(Counts(logits, setting, NumDraws()), probabilities);
    const int64_t kept = std::count_if(probabilities.begin(), probabilities.end(),
                                       [](double probability) { return probability > 0.0; });
    std::printf("%-24s %2d kept, p %.4f\n", setting.name, static_cast<int>(kept), p);
    EXPECT_GT(p, 1e-4) << setting.name;
  }
}

// A test that could not fail would pass this too.
TEST(DrawDistribution, AWrongDistributionIsSeen) {
  const std::vector<float> logits = Logits();
  std::vector<float> wrong = logits;
  wrong[4] += 0.2f;
  const Setting plain = Settings()[1];
  EXPECT_LT(PValue(Counts(logits, plain, 100000), Probabilities(wrong, plain.parameters)), 1e-4);
}

}  // namespace
}  // namespace tandem
