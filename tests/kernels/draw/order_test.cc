#include "kernels/draw/order.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace tandem::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Order, IsByValueThenById) {
  EXPECT_TRUE(ComesBefore(2.0f, 9, 1.0f, 3));
  EXPECT_FALSE(ComesBefore(1.0f, 3, 2.0f, 9));
  EXPECT_TRUE(ComesBefore(1.0f, 3, 1.0f, 4));
  EXPECT_FALSE(ComesBefore(1.0f, 4, 1.0f, 3));
  EXPECT_FALSE(ComesBefore(1.0f, 3, 1.0f, 3));
}

TEST(Order, DoesNotDistinguishTheZeros) {
  EXPECT_TRUE(ComesBefore(-0.0f, 1, 0.0f, 2));
  EXPECT_TRUE(ComesBefore(0.0f, 1, -0.0f, 2));
  EXPECT_EQ(OrderKey(-0.0f, 7), OrderKey(0.0f, 7));
}

TEST(Order, KeysAgreeWithIt) {
  const std::vector<float> values = {-kInfinity, -3e38f, -1e30f, -1.5f,    -1.0f,
                                     -1e-40f,    -0.0f,  0.0f,   1e-40f,   1.0f,
                                     1.0000001f, 7.0f,   3e38f,  kInfinity};
  const std::vector<int32_t> ids = {0, 1, 262143, std::numeric_limits<int32_t>::max()};
  for (const float a : values) {
    for (const float b : values) {
      for (const int32_t i : ids) {
        for (const int32_t j : ids) {
          EXPECT_EQ(ComesBefore(a, i, b, j), OrderKey(a, i) > OrderKey(b, j))
              << a << " " << i << ", " << b << " " << j;
        }
      }
    }
  }
}

TEST(Order, KeysGiveBackValueAndId) {
  for (const float value : {-3e38f, -1.0f, 0.0f, 1e-40f, 42.5f}) {
    EXPECT_EQ(OrderKeyValue(OrderKey(value, 12345)), value);
    EXPECT_EQ(OrderKeyId(OrderKey(value, 12345)), 12345);
  }
  EXPECT_GT(OrderKey(-kInfinity, std::numeric_limits<int32_t>::max()), 0u);
}

}  // namespace
}  // namespace tandem::kernels
