#include "tests/engine/sampling/random_rows.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tandem::test {
namespace {

class Dice final {
 public:
  explicit Dice(std::mt19937_64& random) : random_(random) {}
  int32_t Below(int32_t n) { return static_cast<int32_t>(random_() % uint64_t(n)); }
  bool OneIn(int32_t n) { return Below(n) == 0; }
  float Between(float low, float high) {
    return low + (high - low) * static_cast<float>(random_() >> 40) * 0x1p-24f;
  }
  std::vector<int32_t> DistinctIds(int32_t vocab_size, int32_t count) {
    std::vector<int32_t> ids(vocab_size);
    std::iota(ids.begin(), ids.end(), 0);
    for (int32_t i = 0; i < count; ++i) std::swap(ids[i], ids[i + Below(vocab_size - i)]);
    ids.resize(count);
    return ids;
  }
  uint64_t Next() { return random_(); }

 private:
  std::mt19937_64& random_;
};

}  // namespace

RandomCase MakeRandomCase(std::mt19937_64& random, int32_t max_vocab) {
  Dice dice(random);
  RandomCase it;
  // Small vocabularies mostly: every rule's edge is near.
  it.vocab_size = 1 + dice.Below(dice.OneIn(8) ? max_vocab : std::min(max_vocab, 48));
  const int32_t vocab = it.vocab_size;
  const float spread = dice.Between(0.1f, 12.0f);
  const bool coarse = dice.OneIn(3);
  for (int32_t id = 0; id < vocab; ++id) {
    float logit = spread * (dice.Between(-1, 1) + dice.Between(-1, 1) + dice.Between(-1, 1));
    if (coarse) logit = std::round(logit);
    if (dice.OneIn(400)) logit = dice.OneIn(2) ? 3e38f : -3e38f;
    it.logits.push_back(logit);
  }
  const int32_t length = 1 + dice.Below(40);
  for (int32_t i = 0; i < length; ++i) it.tokens.push_back(dice.Below(vocab));
  it.prompt_length = 1 + dice.Below(length);
  it.choice = static_cast<uint32_t>(dice.Below(4));

  SamplingParameters& p = it.parameters;
  p.seed = dice.Next();
  const float temperatures[] = {0.0f, 0.3f, 1.0f, 1.0f, 1.5f, 3.0f, 50.0f, 1e-5f};
  p.temperature = temperatures[dice.Below(8)];
  if (dice.OneIn(2)) p.top_k = 1 + dice.Below(dice.OneIn(2) ? 8 : 2 * vocab);
  if (dice.OneIn(2)) {
    const float shares[] = {0.0f, 1e-9f, 0.1f, 0.5f, 0.9f, 0.99f, 0.99999994f};
    p.top_p = shares[dice.Below(7)];
  }
  if (dice.OneIn(3)) p.min_p = dice.OneIn(4) ? 1.0f : dice.Between(0.0f, 0.3f);
  if (dice.OneIn(2)) p.repetition_penalty = dice.OneIn(2) ? dice.Between(0.5f, 2.0f) : 1.1f;
  if (dice.OneIn(2)) p.presence_penalty = dice.Between(-2.0f, 2.0f);
  if (dice.OneIn(2)) p.frequency_penalty = dice.Between(-1.0f, 1.0f);
  if (dice.OneIn(2)) p.repetition_window = dice.Below(25);
  if (dice.OneIn(2)) p.presence_window = dice.Below(25);
  if (dice.OneIn(2)) p.frequency_window = dice.Below(25);
  if (dice.OneIn(4)) {
    for (const int32_t id : dice.DistinctIds(vocab, 1 + dice.Below(std::min(vocab, 20)))) {
      p.logit_bias.emplace_back(id, dice.Between(-10.0f, 10.0f));
    }
  }
  if (dice.OneIn(6)) p.allowed_ids = dice.DistinctIds(vocab, 1 + dice.Below(vocab));
  if (dice.OneIn(6)) p.banned_ids = dice.DistinctIds(vocab, 1 + dice.Below(vocab));
  if (dice.OneIn(4)) {
    p.end_ids = dice.DistinctIds(vocab, 1 + dice.Below(std::min(vocab, 3)));
    p.min_tokens = dice.Below(40);
  }
  if (dice.OneIn(6)) {
    p.want_raw = true;
    p.num_raw_top = dice.Below(kernels::kMaxRawTop + 1);
    p.report_ids = dice.DistinctIds(vocab, dice.Below(std::min(vocab, 5)));
  }
  if (dice.OneIn(2)) {
    p.num_top = 1 + dice.Below(6);
    p.num_perturbed = 1 + dice.Below(3);
  }
  if (dice.OneIn(8)) {
    it.defined_bits.assign((static_cast<size_t>(vocab) + 31) / 32, 0);
    for (int32_t id = 0; id < vocab; ++id) {
      if (!dice.OneIn(5)) it.defined_bits[id / 32] |= 1u << (id % 32);
    }
  }
  return it;
}

}  // namespace tandem::test
