// A token costs no memory: deciding from lists never allocates, and appending only where the
// sequence outgrows what doubled before.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "engine/sampling/decision.h"
#include "tests/support/allocation_counter.h"

namespace tandem {
namespace {

constexpr int32_t kVocabSize = 4000;

// Every edit, every cut and logprobs.
SamplingParameters Everything() {
  SamplingParameters p;
  p.temperature = 0.9f;
  p.top_k = 100;
  p.top_p = 0.95f;
  p.min_p = 0.001f;
  p.repetition_penalty = 1.1f;
  p.repetition_window = 200;
  p.presence_penalty = 0.5f;
  p.frequency_penalty = 0.1f;
  p.frequency_window = 30;
  p.logit_bias = {{5, 1.0f}};
  p.banned_ids = {6};
  p.end_ids = {7};
  p.min_tokens = 20;
  p.want_raw = true;
  p.num_raw_top = 20;
  p.report_ids = {8, 9};
  return p;
}

std::vector<float> Row(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> row(kVocabSize);
  for (float& logit : row) logit = normal(random);
  return row;
}

// The bytes that num_tokens decisions and appends ask for; the lists are made outside the count.
int64_t BytesOf(int32_t num_tokens, Decider* decider) {
  int64_t bytes = 0;
  for (int32_t i = 0; i < num_tokens; ++i) {
    const Candidates lists = decider->CandidatesFromRow(Row(static_cast<uint64_t>(i)));
    const int64_t before = test::AllocatedBytes();
    const Decision decision = decider->DecideFromCandidates(lists);
    if (decision.kind == Decision::Kind::kToken) decider->Append(decision.token);
    bytes += test::AllocatedBytes() - before;
    EXPECT_EQ(decision.kind, Decision::Kind::kToken) << decision.why;
  }
  return bytes;
}

TEST(DecisionMemory, TheFirstTokensAllocateNothing) {
  Decider plain({}, 0, 3, std::vector<int32_t>{1, 2, 3}, kVocabSize, {});
  EXPECT_EQ(BytesOf(200, &plain), 0);
  Decider full(Everything(), 0, 3, std::vector<int32_t>{1, 2, 3}, kVocabSize, {});
  EXPECT_EQ(BytesOf(200, &full), 0);
}

TEST(DecisionMemory, LongerSequencesAllocateWhatDoublingTakes) {
  Decider decider(Everything(), 0, 3, std::vector<int32_t>{1, 2, 3}, kVocabSize, {});
  const int64_t before = test::AllocatedBytes();
  for (int32_t i = 0; i < 100000; ++i) decider.Append(i % kVocabSize);
  // Twice the tokens, 4 bytes each and in powers of two, and the counts of every id.
  EXPECT_LT(test::AllocatedBytes() - before, 2 * 131072 * 4 * 2 + 4 * kVocabSize * 64);
}

TEST(DecisionMemory, ADecisionAtTheLargestSizesAllocatesNothing) {
  SamplingParameters parameters = Everything();
  parameters.num_top = kernels::kMaxTop;
  parameters.num_perturbed = kernels::kMaxPerturbed;
  Decider decider(parameters, 0, 1, std::vector<int32_t>{1}, kVocabSize, {});
  EXPECT_EQ(BytesOf(3, &decider), 0);
}

}  // namespace
}  // namespace tandem
