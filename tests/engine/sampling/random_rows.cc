#include "tests/engine/sampling/random_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace tandem::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// SplitMix64 (Steele, Lea, Flood 2014): cheap to seed, one multiplication chain a number.
class Dice final {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  int32_t Below(int32_t n) { return static_cast<int32_t>(Next() % uint64_t(n)); }
  bool OneIn(int32_t n) { return Below(n) == 0; }
  float Between(float low, float high) {
    return low + (high - low) * static_cast<float>(Next() >> 40) * 0x1p-24f;
  }
  // About normal, in [-3, 3]: three uniform numbers of 21 bits.
  float Bell() {
    const uint64_t bits = Next();
    const auto part = [bits](int shift) {
      return static_cast<float>((bits >> shift) & 0x1FFFFF) * 0x1p-20f - 1.0f;
    };
    return part(0) + part(21) + part(42);
  }
  template <typename T, size_t N>
  T Pick(const T (&values)[N]) {
    return values[Next() % N];
  }
  std::vector<int32_t> DistinctIds(int32_t vocab_size, int32_t count) {
    std::vector<int32_t> ids(vocab_size);
    std::iota(ids.begin(), ids.end(), 0);
    for (int32_t i = 0; i < count; ++i) std::swap(ids[i], ids[i + Below(vocab_size - i)]);
    ids.resize(count);
    return ids;
  }

 private:
  uint64_t state_;
};

std::vector<float> RandomLogits(int32_t vocab_size, Dice& dice) {
  std::vector<float> logits(vocab_size);
  const int32_t kind = dice.Below(24);
  const float spread = kind == 0   ? 1e38f   // all over the range
                       : kind == 1 ? 1e-38f  // mostly subnormal
                       : kind == 2 ? 1e-6f   // a flat row
                                   : dice.Between(0.1f, 12.0f);
  for (float& logit : logits) logit = spread * dice.Bell();
  if (kind >= 16) {  // ties; what rounds up from below 0 becomes -0
    for (float& logit : logits) logit = std::round(logit);
  } else if (kind == 3) {  // zeros of both signs
    for (float& logit : logits) logit = std::copysign(0.0f, logit);
  } else if (kind == 4) {  // one id far above
    logits[dice.Below(vocab_size)] += 40.0f;
  }
  if (dice.OneIn(4)) {
    const int32_t outliers = 1 + dice.Below(3);
    for (int32_t i = 0; i < outliers; ++i) {
      const float values[] = {3.4e38f, 3e38f, -3.4e38f, 1e30f, -1e30f, -0.0f, 0.0f, 1e-45f};
      logits[dice.Below(vocab_size)] = dice.Pick(values);
    }
  }
  return logits;
}

void RandomizeEdits(int32_t vocab, Dice& dice, SamplingParameters* parameters) {
  SamplingParameters& p = *parameters;
  if (dice.OneIn(2)) p.repetition_penalty = dice.OneIn(2) ? dice.Between(0.5f, 2.0f) : 1.1f;
  if (dice.OneIn(2)) p.presence_penalty = dice.Between(-2.0f, 2.0f);
  if (dice.OneIn(2)) p.frequency_penalty = dice.Between(-1.0f, 1.0f);
  if (dice.OneIn(2)) p.repetition_window = dice.Below(25);
  if (dice.OneIn(2)) p.presence_window = dice.Below(25);
  if (dice.OneIn(2)) p.frequency_window = dice.Below(25);
  if (dice.OneIn(4)) {
    const float limit = dice.OneIn(4) ? 1e4f : 10.0f;
    for (const int32_t id : dice.DistinctIds(vocab, 1 + dice.Below(std::min(vocab, 20)))) {
      p.logit_bias.emplace_back(id, dice.Between(-limit, limit));
    }
  }
  if (dice.OneIn(6)) p.allowed_ids = dice.DistinctIds(vocab, 1 + dice.Below(vocab));
  if (dice.OneIn(6)) p.banned_ids = dice.DistinctIds(vocab, 1 + dice.Below(vocab));
  if (dice.OneIn(4)) {
    p.end_ids = dice.DistinctIds(vocab, 1 + dice.Below(std::min(vocab, 3)));
    p.min_tokens = dice.Below(40);
  }
}

void RandomizeCuts(int32_t vocab, Dice& dice, SamplingParameters* parameters) {
  SamplingParameters& p = *parameters;
  const float temperatures[] = {0.0f, 1e-5f, 0.3f, 0.7f, 1.0f, 1.0f, 1.5f, 3.0f, 50.0f, 100.0f};
  p.temperature = dice.Pick(temperatures);
  if (dice.OneIn(2)) {
    p.top_k = dice.OneIn(8) ? -1 : 1 + dice.Below(dice.OneIn(2) ? 8 : 2 * vocab);
  }
  if (dice.OneIn(2)) {
    const float shares[] = {0.0f, 1e-9f, 0.1f, 0.5f, 0.9f, 0.95f, 0.99f, 0.99999994f, 1.0f};
    p.top_p = dice.Pick(shares);
  }
  if (dice.OneIn(3)) {
    const float shares[] = {1.0f, 1e-9f, 0.05f, dice.Between(0.0f, 0.3f)};
    p.min_p = dice.Pick(shares);
  }
}

void RandomizeLists(int32_t vocab, Dice& dice, SamplingParameters* parameters) {
  SamplingParameters& p = *parameters;
  if (dice.OneIn(6)) {
    p.want_raw = true;
    p.num_raw_top = dice.Below(kernels::kMaxRawTop + 1);
    p.report_ids = dice.DistinctIds(vocab, dice.Below(std::min(vocab, 6)));
  }
  switch (dice.Below(4)) {
    case 0:
    case 1:
      break;  // the default sizes
    case 2:
      p.num_top = 1 + dice.Below(6);
      p.num_perturbed = 1 + dice.Below(3);
      break;
    default:  // up to twice the row
      p.num_top = 1 + dice.Below(std::min(2 * vocab, kernels::kMaxTop));
      p.num_perturbed = 1 + dice.Below(std::min(2 * vocab, kernels::kMaxPerturbed));
  }
}

}  // namespace

uint64_t SeedOf(uint64_t base, uint64_t index) {
  return Dice(base * 0xD1342543DE82EF95u + index).Next();
}

int32_t RandomVocabSize(uint64_t seed, int32_t max_size) {
  Dice dice(seed);
  return 1 + dice.Below(dice.OneIn(8) ? max_size : std::min(max_size, 48));
}

RandomVocabulary MakeRandomVocabulary(uint64_t seed, int32_t size) {
  Dice dice(seed);
  RandomVocabulary out;
  out.size = size;
  if (!dice.OneIn(8)) return out;
  out.defined_bits.assign((static_cast<size_t>(size) + 31) / 32, 0);
  for (int32_t id = 0; id < size; ++id) {
    if (!dice.OneIn(5)) out.defined_bits[id / 32] |= 1u << (id % 32);
  }
  return out;
}

RandomCase MakeRandomCase(uint64_t seed, const RandomVocabulary& vocabulary) {
  Dice dice(seed);
  RandomCase it;
  it.vocab_size = vocabulary.size;
  it.defined_bits = vocabulary.defined_bits;
  it.logits = RandomLogits(it.vocab_size, dice);
  if (dice.OneIn(500)) {
    const float values[] = {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity};
    it.logits[dice.Below(it.vocab_size)] = dice.Pick(values);
  }
  const int32_t length = 1 + dice.Below(40);
  for (int32_t i = 0; i < length; ++i) {
    // Of a large vocabulary a few ids, so that they repeat.
    it.tokens.push_back(dice.Below(std::min(it.vocab_size, 60)));
  }
  it.prompt_length = 1 + dice.Below(length);
  it.choice = static_cast<uint32_t>(dice.Below(4));
  it.parameters.seed = dice.Next();
  RandomizeCuts(it.vocab_size, dice, &it.parameters);
  RandomizeEdits(it.vocab_size, dice, &it.parameters);
  RandomizeLists(it.vocab_size, dice, &it.parameters);
  return it;
}

RandomCase MakeRandomCase(std::mt19937_64& random, int32_t max_vocab) {
  const RandomVocabulary vocabulary =
      MakeRandomVocabulary(random(), RandomVocabSize(random(), max_vocab));
  while (true) {
    RandomCase it = MakeRandomCase(random(), vocabulary);
    const bool finite = std::all_of(it.logits.begin(), it.logits.end(),
                                    [](float logit) { return std::isfinite(logit); });
    if (finite) return it;
  }
}

std::string Reproducer(uint64_t vocabulary_seed, int32_t vocab_size, uint64_t case_seed) {
  return absl::StrCat("MakeRandomCase(", case_seed, "u, MakeRandomVocabulary(", vocabulary_seed,
                      "u, ", vocab_size, "))");
}

}  // namespace tandem::test
