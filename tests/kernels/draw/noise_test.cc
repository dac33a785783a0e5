#include "kernels/draw/noise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace tandem::kernels {
namespace {

constexpr uint32_t kLastWord = 0xFFFFFFFFu;

TEST(Uniform, IsNeverZeroAndNeverOne) {
  EXPECT_EQ(Uniform(0), 0x1p-33f);
  EXPECT_EQ(Uniform(kLastWord), 1.0f - 0x1p-24f);
  EXPECT_EQ(Uniform(0x80000000u), 0.5f);
}

// The contract names float(x) as one rounding to nearest even; the code converts in two halves.
TEST(Uniform, ConvertsItsWordWithOneRounding) {
  const auto by_definition = [](uint32_t word) {
    return std::min((static_cast<float>(word) + 0.5f) * 0x1p-32f, 1.0f - 0x1p-24f);
  };
  for (uint64_t word = 0; word <= kLastWord; word += 9973) {
    ASSERT_EQ(Uniform(word), by_definition(word)) << word;
  }
  for (int bit = 0; bit < 32; ++bit) {
    const uint32_t power = uint32_t{1} << bit;
    for (int64_t near = -300; near <= 300; ++near) {
      const uint32_t word = power + static_cast<uint32_t>(near);
      ASSERT_EQ(Uniform(word), by_definition(word)) << word;
    }
  }
}

TEST(Gumbel, StaysInItsStatedRange) {
  EXPECT_GT(GumbelOfWord(0), 22.87f);
  EXPECT_LT(GumbelOfWord(0), 22.88f);
  EXPECT_GT(GumbelOfWord(kLastWord), -2.82f);
  EXPECT_LT(GumbelOfWord(kLastWord), -2.81f);
}

TEST(Gumbel, IsCloseToItsFormulaInDouble) {
  for (uint64_t word = 0; word <= kLastWord; word += 10007) {
    const double u = Uniform(static_cast<uint32_t>(word));
    const double exact = -std::log(-std::log1p(-u));
    ASSERT_NEAR(GumbelOfWord(static_cast<uint32_t>(word)), exact, 4e-7 + 2e-7 * std::fabs(exact))
        << word;
  }
}

TEST(Gumbel, OfARowIsThatOfEachId) {
  std::vector<float> row(4 * 37);
  GumbelRow(77, 2, 1234, 11, 37, row.data());
  for (int i = 0; i < 4 * 37; ++i) EXPECT_EQ(row[i], Gumbel(77, 2, 1234, 44 + i)) << i;
}

TEST(Gumbel, DependsOnEachOfSeedChoicePositionAndId) {
  const float noise = Gumbel(1, 2, 3, 4);
  EXPECT_NE(noise, Gumbel(2, 2, 3, 4));
  EXPECT_NE(noise, Gumbel(1 + (uint64_t{1} << 32), 2, 3, 4));
  EXPECT_NE(noise, Gumbel(1, 3, 3, 4));
  EXPECT_NE(noise, Gumbel(1, 2, 4, 4));
  EXPECT_NE(noise, Gumbel(1, 2, 3, 5));
  EXPECT_NE(noise, Gumbel(1, 2, 3, 8));
  EXPECT_EQ(noise, Gumbel(1, 2, 3, 4));
}

// Kolmogorov-Smirnov distance to the Gumbel distribution F(x) = exp(-exp(-x)).
TEST(Gumbel, IsDistributedAsItsName) {
  std::vector<float> sample(1 << 18);
  GumbelRow(5, 0, 17, 0, static_cast<int32_t>(sample.size() / 4), sample.data());
  std::sort(sample.begin(), sample.end());
  double distance = 0.0;
  for (size_t i = 0; i < sample.size(); ++i) {
    const double expected = std::exp(-std::exp(-static_cast<double>(sample[i])));
    distance = std::max(distance, std::fabs((i + 0.5) / sample.size() - expected));
  }
  // 1.95 / sqrt(n) is exceeded with probability 0.001.
  EXPECT_LT(distance, 1.95 / std::sqrt(static_cast<double>(sample.size())));
}

}  // namespace
}  // namespace tandem::kernels
