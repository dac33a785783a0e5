#include "kernels/draw/decide.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/reference/candidates.h"
#include "tests/kernels/draw/host_slot.h"

namespace tandem::kernels {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class DecideTest : public testing::Test {
 protected:
  int32_t FromLists(const std::vector<float>& logits) {
    const int32_t vocab_size = static_cast<int32_t>(logits.size());
    return ComputeCandidates(logits, slot_.State(vocab_size), 0, slot_.row_position())
        .summary.drawn;
  }
  int32_t FromRow(const std::vector<float>& logits) {
    const int32_t vocab_size = static_cast<int32_t>(logits.size());
    return DrawFromRow(logits, slot_.State(vocab_size), 0, slot_.row_position());
  }
  void SetTemperature(float temperature) {
    slot_.params.greedy = temperature == 0.0f;
    slot_.params.inverse_temperature = temperature == 0.0f ? 1.0f : 1.0f / temperature;
  }

  HostSlot slot_;
};

TEST_F(DecideTest, GreedyTakesTheFirstOfEqualMaxima) {
  EXPECT_EQ(FromLists({1, 5, 3, 5}), 1);
  slot_.params.num_top = 0;
  EXPECT_EQ(FromLists({1, 5, 3, 5}), 1);
  slot_.params.num_top = 1;
  slot_.params.num_perturbed = 0;
  EXPECT_EQ(FromLists({1, 5, 3, 5}), 1);
}

TEST_F(DecideTest, GreedyIgnoresSeedAndCuts) {
  slot_.params.seed = 99;
  slot_.params.top_k = 3;
  slot_.params.top_p_fixed = 0;
  EXPECT_EQ(FromLists({1, 2, 9, 4}), 2);
}

TEST_F(DecideTest, B031_AGreedyRowIsNeverScaled) {
  // The largest finite numbers of both signs, and a masked maximum.
  slot_.allowed_bits = HostSlot::Bits(4, {0, 1, 3});
  EXPECT_EQ(FromLists({-3e38f, 3e38f, 3.1e38f, 0}), 1);
}

TEST_F(DecideTest, B029_TheColdestTemperatureDrawsTheMaximum) {
  SetTemperature(1e-5f);
  EXPECT_EQ(FromLists({11.05f, 11.06f, -3e38f, 3}), 1);
}

TEST_F(DecideTest, B033_TopPZeroDrawsTheMaximum) {
  SetTemperature(100.0f);
  slot_.params.top_p_fixed = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    slot_.params.seed = seed;
    EXPECT_EQ(FromLists({1, 1.1f, 0.9f, 1}), 1);
  }
}

TEST_F(DecideTest, B035_TopKBeyondTheVocabularyIsOff) {
  SetTemperature(3.0f);
  const std::vector<float> logits = {1, 2, 3, 2, 1};
  for (uint64_t seed = 0; seed < 50; ++seed) {
    slot_.params.seed = seed;
    slot_.params.top_k = 0;
    const int32_t off = FromLists(logits);
    slot_.params.top_k = std::numeric_limits<int32_t>::max();
    EXPECT_EQ(FromLists(logits), off);
  }
}

TEST_F(DecideTest, B051_ANonFiniteLogitAnywhereGivesNoTokenAndNamesItsId) {
  for (const float bad : {kNaN, kInfinity, -kInfinity}) {
    slot_.allowed_bits = HostSlot::Bits(4, {0, 1});  // even at an id outside the row
    const std::vector<float> logits = {1, 2, bad, bad};
    EXPECT_EQ(FromLists(logits), -1);
    EXPECT_EQ(FromRow(logits), -1);
    const RowSummary summary = ComputeCandidates(logits, slot_.State(4), 0, 0).summary;
    EXPECT_EQ(summary.first_nonfinite, 2);
    EXPECT_EQ(summary.num_in_row, 0);
    EXPECT_EQ(summary.num_top, 0);
  }
}

TEST_F(DecideTest, ARowWithNoAllowedIdGivesNoToken) {
  slot_.allowed_bits = HostSlot::Bits(4, {});
  EXPECT_EQ(FromLists({1, 2, 3, 4}), -1);
  EXPECT_EQ(FromRow({1, 2, 3, 4}), -1);
}

TEST_F(DecideTest, UndefinedIdsAreOutsideTheRow) {
  slot_.defined_bits = HostSlot::Bits(4, {0, 2});
  EXPECT_EQ(FromLists({1, 9, 3, 8}), 2);
}

TEST_F(DecideTest, EndIdsWaitForMinTokens) {
  slot_.params.prompt_length = 2;
  slot_.params.min_tokens = 2;
  slot_.end_ids = {3};
  slot_.tokens = {0, 0, 0};  // the second output token is decided
  EXPECT_EQ(FromLists({1, 2, 3, 9}), 2);
  slot_.tokens = {0, 0, 0, 0};
  EXPECT_EQ(FromLists({1, 2, 3, 9}), 3);
}

TEST_F(DecideTest, IsUndecidedWhereNoListReachesTheKeptSet) {
  SetTemperature(1.0f);
  slot_.params.num_top = 2;
  slot_.params.num_perturbed = 1;
  slot_.params.top_k = 3;
  std::vector<float> logits(64, 0.0f);
  int undecided = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    slot_.params.seed = seed;
    const int32_t token = FromLists(logits);
    if (token < 0) {
      ++undecided;
    } else {
      EXPECT_EQ(token, FromRow(logits));
    }
  }
  EXPECT_GT(undecided, 80);  // 3 of 64 equal ids are kept
}

TEST_F(DecideTest, TheTopListDecidesWhereTheKeptSetEndsInside) {
  SetTemperature(1.0f);
  slot_.params.num_perturbed = 0;
  const std::vector<float> logits(64, 0.0f);
  slot_.params.num_top = 4;
  slot_.params.top_k = 4;
  EXPECT_EQ(FromLists(logits), FromRow(logits));
  slot_.params.top_k = 5;
  EXPECT_EQ(FromLists(logits), -1);
  slot_.params.top_k = 0;
  slot_.params.top_p_fixed = kTopPOff / 16;  // exactly 4 of 64
  EXPECT_EQ(FromLists(logits), FromRow(logits));
  slot_.params.top_p_fixed = kTopPOff / 16 + 1;
  EXPECT_EQ(FromLists(logits), -1);
}

// Random rows, edits and cuts; small vocabularies and few distinct logits, so that ties stand at
// every cut.
class RandomDecisions : public DecideTest {
 protected:
  template <typename T, size_t N>
  T Pick(const std::array<T, N>& values) {
    return values[random_() % N];
  }
  bool OneIn(uint32_t n) { return random_() % n == 0; }

  std::vector<float> RandomLogits() {
    const int32_t vocab_size = 1 + random_() % (OneIn(4) ? 150 : 24);
    std::normal_distribution<float> normal(0.0f, Pick(std::array{0.1f, 1.0f, 4.0f, 30.0f}));
    const bool coarse = OneIn(2);
    std::vector<float> logits(vocab_size);
    for (float& x : logits) {
      x = normal(random_);
      if (coarse) x = std::round(x);
    }
    if (OneIn(50)) logits[random_() % vocab_size] = Pick(std::array{kNaN, kInfinity, -kInfinity});
    if (OneIn(50)) logits[random_() % vocab_size] = Pick(std::array{3.4e38f, -3.4e38f, -0.0f});
    return logits;
  }

  void RandomizeSlot(int32_t vocab_size) {
    slot_ = HostSlot();
    DrawParams& params = slot_.params;
    params.seed = (uint64_t{random_()} << 32) | random_();
    params.choice = random_() % 3;
    SetTemperature(Pick(std::array{0.0f, 1e-5f, 0.3f, 0.7f, 1.0f, 1.0f, 1.5f, 4.0f, 100.0f}));
    if (OneIn(2)) params.top_k = 1 + random_() % (vocab_size + 8);
    if (OneIn(2)) {
      const double p = Pick(std::array{0.0, 1e-9, 0.1, 0.5, 0.9, 0.95, 0.999999, 1.0});
      params.top_p_fixed = static_cast<uint64_t>(std::llround(p * 0x1p32));
    }
    if (OneIn(3)) {
      const double p = Pick(std::array{0.001, 0.02, 0.1, 0.5, 1.0});
      params.min_p_weight = static_cast<uint64_t>(std::llround(p * 0x1p32)) << 8;
    }
    params.num_top = random_() % 24;
    params.num_perturbed = random_() % 9;
    if (OneIn(2)) {
      params.repetition_penalty = Pick(std::array{0.5f, 1.1f, 2.0f});
      params.presence_penalty = Pick(std::array{0.0f, 0.5f, -1.0f});
      params.frequency_penalty = Pick(std::array{0.0f, 0.25f, -0.5f});
      params.repetition_window = random_() % 8;
      params.presence_window = random_() % 8;
      params.frequency_window = random_() % 8;
    }
    slot_.tokens.assign(1 + random_() % 30, 0);
    for (int32_t& token : slot_.tokens) token = random_() % vocab_size;
    params.prompt_length = 1 + random_() % slot_.tokens.size();
    if (OneIn(4)) {
      slot_.bias_ids = {static_cast<int32_t>(random_() % vocab_size)};
      slot_.bias_values = {Pick(std::array{-1e4f, -1.0f, 2.0f, 1e4f})};
    }
    if (OneIn(4)) {
      std::vector<int32_t> allowed;
      for (int32_t id = 0; id < vocab_size; ++id) {
        if (OneIn(2)) allowed.push_back(id);
      }
      slot_.allowed_bits = HostSlot::Bits(vocab_size, allowed);
    }
  }

  std::mt19937 random_{20};
};

TEST_F(RandomDecisions, FromListsEqualThoseFromTheWholeRow) {
  constexpr int kCases = 220000;
  int from_lists = 0, undecided = 0, no_token = 0;
  for (int i = 0; i < kCases; ++i) {
    const std::vector<float> logits = RandomLogits();
    RandomizeSlot(static_cast<int32_t>(logits.size()));
    const int32_t token = FromLists(logits);
    const int32_t exact = FromRow(logits);
    if (exact < 0) {
      ASSERT_EQ(token, -1) << "case " << i;
      ++no_token;
    } else if (token < 0) {
      ++undecided;
    } else {
      ASSERT_EQ(token, exact) << "case " << i;
      ++from_lists;
    }
  }
  // The cases reach each outcome often.
  EXPECT_GT(from_lists, kCases / 2);
  EXPECT_GT(undecided, kCases / 50);
  EXPECT_GT(no_token, kCases / 200);
}

// Lists as long as the row always decide.
TEST_F(RandomDecisions, AreMadeByCompleteLists) {
  for (int i = 0; i < 20000; ++i) {
    const std::vector<float> logits = RandomLogits();
    RandomizeSlot(static_cast<int32_t>(logits.size()));
    (OneIn(2) ? slot_.params.num_top : slot_.params.num_perturbed) =
        static_cast<int32_t>(logits.size());
    if (slot_.params.num_perturbed > kMaxPerturbed) continue;
    ASSERT_EQ(FromLists(logits), FromRow(logits)) << "case " << i;
  }
}

// Chi-square of draws over positions against the softmax of what is kept.
TEST_F(DecideTest, DrawsAreDistributedAsTheSoftmaxOfTheKeptSet) {
  const std::vector<float> logits = {2.0f, 1.0f, 0.5f, 0.5f, 0.0f, -1.0f, -2.0f, -3.0f};
  constexpr int kDraws = 40000;
  for (const int32_t top_k : {0, 5}) {
    for (const float temperature : {0.7f, 1.0f, 2.0f}) {
      SetTemperature(temperature);
      slot_.params.seed = 4711;
      slot_.params.top_k = top_k;
      slot_.params.prompt_length = 1;
      const size_t kept = top_k == 0 ? logits.size() : top_k;
      double sum = 0.0;
      for (size_t i = 0; i < kept; ++i) sum += std::exp(logits[i] / temperature);
      std::vector<int> drawn(logits.size());
      slot_.tokens = {0};
      for (int i = 0; i < kDraws; ++i) {
        slot_.params.choice = i / 200;
        slot_.tokens.assign(1 + i % 200, 0);
        ++drawn[FromLists(logits)];
      }
      double chi_square = 0.0;
      for (size_t i = 0; i < logits.size(); ++i) {
        if (i >= kept) {
          EXPECT_EQ(drawn[i], 0);
          continue;
        }
        const double expected = kDraws * std::exp(logits[i] / temperature) / sum;
        chi_square += (drawn[i] - expected) * (drawn[i] - expected) / expected;
      }
      // Exceeded with probability 0.001: 24.3 for 7 degrees of freedom, 18.5 for 4.
      EXPECT_LT(chi_square, kept == 8 ? 24.3 : 18.5) << "T " << temperature << " k " << top_k;
    }
  }
}

}  // namespace
}  // namespace tandem::kernels
