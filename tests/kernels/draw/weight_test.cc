#include "kernels/draw/weight.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace tandem::kernels {
namespace {

using Wide = unsigned __int128;

TEST(Weight, OfTheMaximumIsTwoToTheForty) { EXPECT_EQ(DrawWeight(0.0f), kMaxWeight); }

TEST(Weight, IsTheExponentialRoundedHalvesUp) {
  for (uint64_t bits = 0x80000000u; bits <= FloatBits(-40.0f); bits += 4999) {
    const float s = BitsFloat(static_cast<uint32_t>(bits));
    const double exact = std::floor(static_cast<double>(Exp(s)) * 0x1p40 + 0.5);
    ASSERT_EQ(DrawWeight(s), static_cast<uint64_t>(exact)) << s;
  }
}

TEST(Weight, RoundsTheEdgesOfAHalf) {
  const float half = 0x1p-41f;  // half of the smallest weight
  EXPECT_EQ(FixedWeight(half), 1u);
  EXPECT_EQ(FixedWeight(std::nextafter(half, 0.0f)), 0u);
  EXPECT_EQ(FixedWeight(std::nextafter(half, 1.0f)), 1u);
  EXPECT_EQ(FixedWeight(3 * half), 2u);
  EXPECT_EQ(FixedWeight(std::nextafter(3 * half, 0.0f)), 1u);
  EXPECT_EQ(FixedWeight(0.0f), 0u);
  EXPECT_EQ(FixedWeight(std::numeric_limits<float>::denorm_min()), 0u);
  EXPECT_EQ(FixedWeight(0x1p-20f), uint64_t{1} << 20);
  EXPECT_EQ(FixedWeight(std::nextafter(0x1p-20f, 0.0f)), uint64_t{1} << 20);
}

TEST(Weight, OfNegativeInfinityIsZero) {
  EXPECT_EQ(DrawWeight(-std::numeric_limits<float>::infinity()), 0u);
}

TEST(Multiply128, EqualsTheCompilersProduct) {
  std::mt19937_64 random(1);
  const auto check = [](uint64_t a, uint64_t b) {
    const Product128 product = Multiply128(a, b);
    EXPECT_EQ((Wide{product.high} << 64) | product.low, Wide{a} * b) << a << " * " << b;
  };
  const uint64_t edges[] = {0, 1, 0xFFFFFFFF, uint64_t{1} << 32, ~uint64_t{0}, uint64_t{1} << 63};
  for (const uint64_t a : edges) {
    for (const uint64_t b : edges) check(a, b);
  }
  for (int i = 0; i < 100000; ++i) check(random() >> (random() % 64), random() >> (random() % 64));
}

TEST(TopP, ComparesIn128Bits) {
  const uint64_t total = (uint64_t{1} << 58) - 1;  // 2^18 ids of the largest weight, nearly
  const uint64_t p = (uint64_t{1} << 32) - 1;      // the largest p that is not off
  std::mt19937_64 random(2);
  for (int i = 0; i < 100000; ++i) {
    const uint64_t above = total - (random() >> (6 + random() % 58));
    const bool exact = (Wide{above} << 32) < Wide{p} * total;
    EXPECT_EQ(PassesTopP(p, above, total), exact) << above;
  }
}

TEST(TopP, IsStrictAtTheBoundary) {
  const uint64_t half = kTopPOff / 2;
  EXPECT_TRUE(PassesTopP(half, 49, 100));
  EXPECT_FALSE(PassesTopP(half, 50, 100));
  EXPECT_FALSE(PassesTopP(half, 51, 100));
  // Above 2^32 of mass, where a 64-bit product would wrap.
  const uint64_t mass = uint64_t{1} << 57;
  EXPECT_TRUE(PassesTopP(half, mass - 1, 2 * mass));
  EXPECT_FALSE(PassesTopP(half, mass, 2 * mass));
}

TEST(TopP, IsOffAtOneEvenForTheLastId) { EXPECT_TRUE(PassesTopP(kTopPOff, 100, 100)); }

TEST(Keeps, B033_RankZeroWhateverTheParametersAre) {
  DrawParams params;
  params.top_k = 1;
  params.top_p_fixed = 0;
  params.min_p_weight = ~uint64_t{0};
  EXPECT_TRUE(Keeps(params, kMaxWeight, 0, 0, kMaxWeight));
  EXPECT_FALSE(Keeps(params, kMaxWeight, 1, kMaxWeight, kMaxWeight));
  params.top_p_fixed = 1;  // p = 2^-32, far below what 1 - p can say in fp32
  EXPECT_TRUE(Keeps(params, kMaxWeight, 0, 0, kMaxWeight));
}

TEST(Keeps, B035_AllRanksWhereTopKIsOffOrBeyondTheRow) {
  DrawParams params;
  params.top_k = 0;
  EXPECT_TRUE(Keeps(params, 10 * kMaxWeight, 9, 9 * kMaxWeight, kMaxWeight));
  params.top_k = std::numeric_limits<int32_t>::max();
  EXPECT_TRUE(Keeps(params, 10 * kMaxWeight, 9, 9 * kMaxWeight, kMaxWeight));
  params.top_k = 9;
  EXPECT_FALSE(Keeps(params, 9 * kMaxWeight, 9, 9 * kMaxWeight, kMaxWeight));
}

TEST(Keeps, MinPAtExactlyItsWeight) {
  DrawParams params;
  params.min_p_weight = kMaxWeight / 4;
  EXPECT_TRUE(Keeps(params, 2 * kMaxWeight, 1, kMaxWeight, kMaxWeight / 4));
  EXPECT_FALSE(Keeps(params, 2 * kMaxWeight, 1, kMaxWeight, kMaxWeight / 4 - 1));
}

}  // namespace
}  // namespace tandem::kernels
