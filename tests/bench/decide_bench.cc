// What the text tier's decision of a token costs, without messages: DecideFromCandidates and
// Append, over lists of rows of 49,152 logits. One JSON object a line.
//
//   decide_bench [rounds]     default 20; the best and the median round of each setting count
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/base/check.h"
#include "engine/sampling/decision.h"
#include "tests/bench/bench_support.h"

namespace tandem::test {
namespace {

constexpr int32_t kVocabSize = 49152;
constexpr int32_t kTokens = 256;  // decided in a round

struct Setting {
  std::string name;
  SamplingParameters parameters;
};

std::vector<Setting> Settings() {
  SamplingParameters greedy, plain, penalties, logprobs, wide;
  plain.temperature = 0.7f;
  plain.top_p = 0.9f;
  plain.seed = 1;
  penalties = plain;
  penalties.repetition_penalty = 1.1f;
  penalties.presence_penalty = 0.5f;
  penalties.frequency_penalty = 0.1f;
  logprobs = plain;
  logprobs.want_raw = true;
  logprobs.num_raw_top = 20;
  wide = plain;
  wide.num_top = 80;
  wide.num_perturbed = 64;
  SamplingParameters all = penalties;
  all.want_raw = true;
  all.num_raw_top = 20;
  return {{"greedy", greedy},
          {"T 0.7, top_p 0.9", plain},
          {"with three penalties", penalties},
          {"with logprobs of 20", logprobs},
          {"with penalties and logprobs", all},
          {"lists of 80 + 64", wide}};
}

// About as steep as a language model's row.
std::vector<float> Row(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> row(kVocabSize);
  for (float& logit : row) logit = normal(random);
  for (int32_t i = 0; i < 8; ++i) row[random() % kVocabSize] += 9.0f - static_cast<float>(i);
  return row;
}

void Measure(const Setting& setting, int32_t rounds) {
  const std::vector<int32_t> prompt = Tokens(7, 1000, kVocabSize);
  const int32_t prompt_length = static_cast<int32_t>(prompt.size());
  std::vector<Candidates> lists;
  Decider first(setting.parameters, 0, prompt_length, prompt, kVocabSize, {});
  for (int32_t i = 0; i < kTokens; ++i) {
    const std::vector<float> row = Row(static_cast<uint64_t>(i));
    lists.push_back(first.CandidatesFromRow(row));
    first.Append(first.DecideFromRow(row).token);
  }
  std::vector<double> nanos;
  int64_t undecided = 0;
  for (int32_t round = 0; round < rounds; ++round) {
    Decider decider(setting.parameters, 0, prompt_length, prompt, kVocabSize, {});
    const auto start = std::chrono::steady_clock::now();
    for (int32_t i = 0; i < kTokens; ++i) {
      const Decision decision = decider.DecideFromCandidates(lists[i]);
      TANDEM_CHECK(decision.kind != Decision::Kind::kFault) << decision.why;
      undecided += decision.kind == Decision::Kind::kUndecided;
      decider.Append(first.tokens()[prompt.size() + static_cast<size_t>(i)]);
    }
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    nanos.push_back(took.count() / kTokens);
  }
  const nlohmann::json out = {{"bench", "decide"},
                              {"setting", setting.name},
                              {"num_top", setting.parameters.num_top},
                              {"num_perturbed", setting.parameters.num_perturbed},
                              {"ns_per_token_best", Quantile(nanos, 0.0)},
                              {"ns_per_token_median", Quantile(nanos, 0.5)},
                              {"undecided", undecided / rounds}};
  std::printf("%s\n", out.dump().c_str());
}

int Main(int argc, char** argv) {
  const int32_t rounds = argc > 1 ? std::atoi(argv[1]) : 20;
  if (argc > 2 || rounds < 1) {
    std::fprintf(stderr, "decide_bench [rounds]\n");
    return 2;
  }
  for (const Setting& setting : Settings()) Measure(setting, rounds);
  return 0;
}

}  // namespace
}  // namespace tandem::test

int main(int argc, char** argv) { return tandem::test::Main(argc, argv); }
