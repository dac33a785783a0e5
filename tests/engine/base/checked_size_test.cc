#include "engine/base/checked_size.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace tandem {
namespace {

constexpr uint64_t kLargest = uint64_t{INT64_MAX};

TEST(CheckedSize, ComputesLikeAnIntegerWhereEverythingFits) {
  const CheckedSize size = CheckedSize(3) * 5 + 2;
  ASSERT_TRUE(size.valid());
  EXPECT_EQ(size.value(), 17);
}

TEST(CheckedSize, HoldsUpTo63Bits) {
  EXPECT_EQ(CheckedSize(kLargest).value(), INT64_MAX);
  EXPECT_FALSE(CheckedSize(kLargest + 1).valid());
  EXPECT_FALSE(CheckedSize(UINT64_MAX).valid());
}

TEST(CheckedSize, NoticesASumThatIsTooLarge) {
  EXPECT_TRUE((CheckedSize(kLargest - 1) + 1).valid());
  EXPECT_FALSE((CheckedSize(kLargest) + 1).valid());
  EXPECT_FALSE((CheckedSize(kLargest) + kLargest + 2).valid());  // wraps to 0 in 64 bits
}

TEST(CheckedSize, NoticesAProductThatIsTooLarge) {
  EXPECT_TRUE((CheckedSize(uint64_t{1} << 31) * (uint64_t{1} << 31)).valid());
  EXPECT_FALSE((CheckedSize(uint64_t{1} << 32) * (uint64_t{1} << 31)).valid());
  EXPECT_FALSE((CheckedSize(uint64_t{1} << 32) * (uint64_t{1} << 32)).valid());  // wraps to 0
}

TEST(CheckedSize, B157_StaysInvalidWhateverFollows) {
  // The product is 4 modulo 2^64.
  CheckedSize size = CheckedSize(4194305) * 4194305 * 211106198978564;
  EXPECT_FALSE(size.valid());
  EXPECT_FALSE((size * 0).valid());
  EXPECT_FALSE((size + 1).valid());
  EXPECT_FALSE(size.AlignUp(32).valid());
  EXPECT_FALSE(size.Fits(INT64_MAX));
}

TEST(CheckedSize, FitsComparesWithALimitThatMayBeNegative) {
  EXPECT_TRUE(CheckedSize(7).Fits(7));
  EXPECT_FALSE(CheckedSize(8).Fits(7));
  EXPECT_FALSE(CheckedSize(0).Fits(-1));
  EXPECT_TRUE(CheckedSize(0).Fits(0));
}

TEST(CheckedSize, B165_AlignUpDoesNotWrap) {
  EXPECT_EQ(CheckedSize(0).AlignUp(32).value(), 0);
  EXPECT_EQ(CheckedSize(1).AlignUp(32).value(), 32);
  EXPECT_EQ(CheckedSize(32).AlignUp(32).value(), 32);
  EXPECT_EQ(CheckedSize(33).AlignUp(1).value(), 33);
  EXPECT_FALSE(CheckedSize(kLargest - 3).AlignUp(32).valid());
}

TEST(CheckedSizeDeathTest, ReadingAnInvalidSizeAborts) {
  EXPECT_DEATH((CheckedSize(UINT64_MAX)).value(), "CHECK failed.*overflowed");
}

TEST(CheckedSizeDeathTest, AlignmentMustBeAPowerOfTwo) {
  EXPECT_DEATH(CheckedSize(1).AlignUp(48), "CHECK failed.*alignment 48");
  EXPECT_DEATH(CheckedSize(1).AlignUp(0), "CHECK failed.*alignment 0");
}

}  // namespace
}  // namespace tandem
