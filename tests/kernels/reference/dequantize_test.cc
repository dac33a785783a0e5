#include "kernels/reference/dequantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tandem::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Half, HasTheValuesOfItsFormat) {
  EXPECT_EQ(HalfToFloat(0x0000), 0.0f);
  EXPECT_EQ(HalfToFloat(0x3C00), 1.0f);
  EXPECT_EQ(HalfToFloat(0xC000), -2.0f);
  EXPECT_EQ(HalfToFloat(0x3555), 0.333251953125f);
  EXPECT_EQ(HalfToFloat(0x7BFF), 65504.0f);
  EXPECT_EQ(HalfToFloat(0x0001), 0x1p-24f);
  EXPECT_EQ(HalfToFloat(0x03FF), 1023 * 0x1p-24f);
  EXPECT_EQ(HalfToFloat(0x0400), 0x1p-14f);
  EXPECT_EQ(HalfToFloat(0xFC00), -kInfinity);
  EXPECT_TRUE(std::isnan(HalfToFloat(0x7C01)));
  EXPECT_TRUE(std::signbit(HalfToFloat(0x8000)));
}

TEST(Half, RoundTripsEveryValue) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = HalfToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(FloatToHalf(value), bits);
  }
}

TEST(Half, RoundsToNearestEven) {
  EXPECT_EQ(FloatToHalf(1.0f + 0x1p-11f), 0x3C00);
  EXPECT_EQ(FloatToHalf(1.0f + 3 * 0x1p-11f), 0x3C02);
  EXPECT_EQ(FloatToHalf(0x1p-25f), 0x0000);
  EXPECT_EQ(FloatToHalf(1.5f * 0x1p-24f), 0x0002);
  EXPECT_EQ(FloatToHalf(65519.0f), 0x7BFF);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7C00);
}

TEST(BFloat16, RoundsToNearestEvenAndKeepsNaN) {
  EXPECT_EQ(FloatToBFloat16(1.0f), 0x3F80);
  EXPECT_EQ(FloatToBFloat16(1.0f + 0x1p-8f), 0x3F80);
  EXPECT_EQ(FloatToBFloat16(1.0f + 3 * 0x1p-8f), 0x3F82);
  EXPECT_EQ(FloatToBFloat16(-kInfinity), 0xFF80);
  EXPECT_TRUE(std::isnan(BFloat16ToFloat(FloatToBFloat16(std::nanf("")))));
  EXPECT_EQ(FloatToBFloat16(std::numeric_limits<float>::max()), 0x7F80);
}

TEST(Fp8E4M3, HasTheValuesOfItsFormat) {
  EXPECT_EQ(Fp8E4M3ToFloat(0x38), 1.0f);
  EXPECT_EQ(Fp8E4M3ToFloat(0x7E), 448.0f);
  EXPECT_EQ(Fp8E4M3ToFloat(0x01), 0x1p-9f);
  EXPECT_EQ(Fp8E4M3ToFloat(0x08), 0x1p-6f);
  EXPECT_EQ(Fp8E4M3ToFloat(0xB8), -1.0f);
  EXPECT_TRUE(std::isnan(Fp8E4M3ToFloat(0x7F)));
}

TEST(Fp8E4M3, RoundTripsEveryValueAndSaturates) {
  for (int bits = 0; bits < 256; ++bits) {
    const float value = Fp8E4M3ToFloat(static_cast<uint8_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(FloatToFp8E4M3(value), bits);
  }
  EXPECT_EQ(FloatToFp8E4M3(1e9f), 0x7E);
  EXPECT_EQ(FloatToFp8E4M3(-kInfinity), 0xFE);
  EXPECT_EQ(FloatToFp8E4M3(1.0625f), 0x38);  // ties go to even
  EXPECT_EQ(FloatToFp8E4M3(1.1875f), 0x3A);
}

TEST(Blocks, Q8_0IsScaleTimesElement) {
  std::vector<uint8_t> block(34);
  block[1] = 0x38;  // 0.5
  block[2] = 100;
  block[33] = 0x80;  // -128
  std::vector<float> out(32);
  DequantizeRow(DType::kQ8_0, block.data(), 32, out.data());
  EXPECT_EQ(out[0], 50.0f);
  EXPECT_EQ(out[1], 0.0f);
  EXPECT_EQ(out[31], -64.0f);
}

TEST(Blocks, Q4_0HasLowNibblesFirstAndZeroAtEight) {
  std::vector<uint8_t> block(18, 0x88);
  block[0] = 0x00;
  block[1] = 0x40;  // 2.0
  block[2] = 0xF0;
  block[17] = 0x1A;
  std::vector<float> out(32);
  DequantizeRow(DType::kQ4_0, block.data(), 32, out.data());
  EXPECT_EQ(out[0], -16.0f);
  EXPECT_EQ(out[16], 14.0f);
  EXPECT_EQ(out[15], 4.0f);
  EXPECT_EQ(out[31], -14.0f);
  EXPECT_EQ(out[7], 0.0f);
}

TEST(Blocks, Q4_1AddsItsMinimum) {
  std::vector<uint8_t> block(20);
  block[1] = 0x40;  // d = 2
  block[3] = 0xC2;  // m = -3
  block[4] = 0xF1;
  std::vector<float> out(32);
  DequantizeRow(DType::kQ4_1, block.data(), 32, out.data());
  EXPECT_EQ(out[0], -1.0f);
  EXPECT_EQ(out[16], 27.0f);
  EXPECT_EQ(out[1], -3.0f);
}

TEST(Blocks, FollowEachOtherAlongARow) {
  EXPECT_EQ(RowBytes(DType::kQ4_1, 96), 60);
  EXPECT_EQ(RowBytes(DType::kBF16, 3), 6);
  std::vector<uint8_t> row(68);
  row[1] = 0x3C;
  row[2] = 7;
  row[34 + 1] = 0x40;
  row[34 + 2] = 7;
  std::vector<float> out(64);
  DequantizeRow(DType::kQ8_0, row.data(), 64, out.data());
  EXPECT_EQ(out[0], 7.0f);
  EXPECT_EQ(out[32], 14.0f);
}

class KvVectors : public testing::TestWithParam<KvFormat> {
 protected:
  std::vector<float> RoundTrip(const std::vector<float>& values) {
    const int32_t head_dim = static_cast<int32_t>(values.size());
    std::vector<uint8_t> elements(values.size() * 4);
    std::vector<float> back(values.size());
    EncodeKv(GetParam(), values.data(), head_dim, elements.data(), &scale_);
    DecodeKv(GetParam(), elements.data(), &scale_, head_dim, back.data());
    return back;
  }
  float scale_ = -1.0f;
};

TEST_P(KvVectors, KeepZeroAndTheLargestValue) {
  EXPECT_EQ(RoundTrip({0, 0, 0, 0}), (std::vector<float>{0, 0, 0, 0}));
  const std::vector<float> back = RoundTrip({3.5f, -3.5f, 0, 0.4375f});
  EXPECT_FLOAT_EQ(back[0], 3.5f);
  EXPECT_FLOAT_EQ(back[1], -3.5f);
  EXPECT_EQ(back[2], 0.0f);
  EXPECT_NEAR(back[3], 0.4375f, 3.5 / 254);
}

TEST_P(KvVectors, KeepNonFiniteValuesVisible) {
  const std::vector<float> back = RoundTrip({1.0f, std::nanf(""), 2.0f, 3.0f});
  EXPECT_TRUE(std::isnan(back[1]));
}

TEST_P(KvVectors, BearTheSmallestNumbers) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  for (const float value : RoundTrip({tiny, -tiny, 2 * tiny, 0})) {
    EXPECT_LE(std::fabs(value), 1e-40f);
  }
}

TEST_P(KvVectors, WriteAScaleOnlyWhereTheFormatHasOne) {
  RoundTrip({1, 2, 3, 4});
  EXPECT_EQ(scale_ != -1.0f, HasScales(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Formats, KvVectors,
                         testing::Values(KvFormat::kF32, KvFormat::kBF16, KvFormat::kFp8E4M3,
                                         KvFormat::kInt8));

}  // namespace
}  // namespace tandem::kernels
