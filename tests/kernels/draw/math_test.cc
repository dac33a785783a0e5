#include "kernels/draw/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

namespace tandem::kernels {
namespace {

constexpr uint32_t kMinusZero = 0x80000000u;
constexpr uint32_t kMinusInfinity = 0xFF800000u;

// Set to run over every fp32 x <= 0 (half a minute); otherwise over a stride and the places where
// the polynomial's argument wraps.
bool Exhaustive() { return std::getenv("TANDEM_EXHAUSTIVE") != nullptr; }

// Falls with the bits of x: larger bits are more negative numbers.
void ExpectExpFalls(uint64_t first, uint64_t last, uint64_t stride) {
  float before = Exp(BitsFloat(static_cast<uint32_t>(first)));
  for (uint64_t bits = first + stride; bits <= last; bits += stride) {
    const float x = BitsFloat(static_cast<uint32_t>(bits));
    const float here = Exp(x);
    ASSERT_LE(here, before) << "x = " << x << ", bits " << bits;
    before = here;
  }
}

TEST(Exp, IsMonotoneOverTheNumbersNotAboveZero) {
  ExpectExpFalls(kMinusZero, kMinusInfinity, Exhaustive() ? 1 : 61);
}

TEST(Exp, IsMonotoneWherePolynomialPiecesMeet) {
  for (int n = 0; n <= 126; ++n) {
    const float x = static_cast<float>(-(n + 0.5) * std::log(2.0));
    const uint64_t bits = FloatBits(x);
    ExpectExpFalls(bits - 20000, bits + 20000, 1);
  }
  const uint64_t zero_below = FloatBits(-87.0f);
  ExpectExpFalls(zero_below - 20000, zero_below + 20000, 1);
}

TEST(Exp, IsMonotoneWithinEveryBinadeAtUnitSteps) {
  for (uint64_t bits = kMinusZero; bits < kMinusInfinity; bits += 1 << 23) {
    ExpectExpFalls(bits, bits + 20000, 1);
    ExpectExpFalls(bits + (1 << 22) - 10000, bits + (1 << 22) + 10000, 1);
  }
}

TEST(Exp, HasItsStatedAccuracy) {
  double worst = 0.0;
  for (uint64_t bits = kMinusZero; bits <= FloatBits(-87.0f); bits += 97) {
    const float x = BitsFloat(static_cast<uint32_t>(bits));
    const double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::fabs(Exp(x) - exact) / exact);
  }
  EXPECT_LE(worst, 0x1p-23);
}

TEST(Exp, IsExactAtItsEnds) {
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(-0.0f), 1.0f);
  EXPECT_GT(Exp(-87.0f), 0.0f);
  EXPECT_EQ(Exp(std::nextafter(-87.0f, -88.0f)), 0.0f);
  EXPECT_EQ(Exp(-3e38f), 0.0f);
  EXPECT_EQ(Exp(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_EQ(Exp(std::numeric_limits<float>::quiet_NaN()), 0.0f);
}

TEST(Log, HasItsStatedAccuracy) {
  double worst = 0.0;
  const auto check = [&](uint32_t bits) {
    const float x = BitsFloat(bits);
    const double exact = std::log(static_cast<double>(x));
    if (exact != 0.0) worst = std::max(worst, std::fabs(Log(x) - exact) / std::fabs(exact));
  };
  for (uint32_t bits = 0x00800000u; bits <= 0x7F000000u; bits += 499) check(bits);
  for (uint32_t bits = 0x3F780000u; bits <= 0x3F880000u; bits += 1) check(bits);  // around 1
  EXPECT_LE(worst, 0x1p-23);
  EXPECT_EQ(Log(1.0f), 0.0f);
}

TEST(Log1p, HasItsStatedAccuracy) {
  double worst = 0.0;
  for (uint32_t bits = FloatBits(-0x1p-33f); bits <= FloatBits(-(1.0f - 0x1p-24f)); bits += 37) {
    const float x = BitsFloat(bits);
    const double exact = std::log1p(static_cast<double>(x));
    worst = std::max(worst, std::fabs(Log1p(x) - exact) / std::fabs(exact));
  }
  EXPECT_LE(worst, 0x1p-22);
  EXPECT_EQ(Log1p(-0.0f), 0.0f);
}

// The same source in a loop that the compiler vectorises and one value at a time.
TEST(Exp, HasTheSameBitsInAVectorisedLoop) {
  std::vector<float> x;
  for (uint64_t bits = kMinusZero; bits < kMinusInfinity; bits += 1001) {
    x.push_back(BitsFloat(static_cast<uint32_t>(bits)));
  }
  std::vector<float> loop(x.size());
  for (size_t i = 0; i < x.size(); ++i) loop[i] = Exp(x[i]);
  for (size_t i = 0; i < x.size(); ++i) {
    volatile float alone = x[i];
    ASSERT_EQ(loop[i], Exp(alone)) << "x = " << x[i];
  }
}

}  // namespace
}  // namespace tandem::kernels
