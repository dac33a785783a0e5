// Checkpoint matrices to bf16 on the GPU, against the reference, bit for bit.
#include <cuda_bf16.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/launch.h"
#include "kernels/random_weight.h"
#include "kernels/reference/dequantize.h"
#include "tests/kernels/cuda/cuda_arrays.h"

namespace tandem::kernels::cuda {
namespace {

class WeightsTest : public CudaTest, public testing::WithParamInterface<DType> {};

// Random bits of which every 16-bit or 32-bit float is finite: the exponent's top bit is cleared.
std::vector<uint8_t> RandomMatrix(DType dtype, int32_t rows, int32_t cols) {
  std::mt19937 random(static_cast<unsigned>(dtype) + 1);
  std::vector<uint8_t> data(rows * RowBytes(dtype, cols));
  for (uint8_t& byte : data) byte = static_cast<uint8_t>(random());
  for (size_t at = 0; at < data.size(); at += Info(dtype).block_bytes) {
    data[at + (dtype == DType::kF32 ? 3 : 1)] &= 0xBF;
    if (dtype == DType::kQ4_1) data[at + 3] &= 0xBF;
  }
  return data;
}

TEST_P(WeightsTest, ValuesAreTheReferencesRoundedOnceToBf16) {
  const int32_t rows = 37, cols = 544;
  const std::vector<uint8_t> data = RandomMatrix(GetParam(), rows, cols);
  const auto device = ToDevice(data);
  const auto out = ToDevice(std::vector<uint16_t>(size_t(rows) * cols, 0xFFFF));
  LaunchDequantize(device.get(), GetParam(), rows, cols,
                   reinterpret_cast<__nv_bfloat16*>(out.get()), nullptr);
  const auto bits = ToHost(static_cast<const uint16_t*>(out.get()), size_t(rows) * cols);
  std::vector<float> expected(cols);
  for (int32_t i = 0; i < rows; ++i) {
    DequantizeRow(GetParam(), data.data() + i * RowBytes(GetParam(), cols), cols, expected.data());
    for (int32_t j = 0; j < cols; ++j) {
      ASSERT_EQ(bits[size_t(i) * cols + j], FloatToBFloat16(expected[j]))
          << "row " << i << ", column " << j << ": " << expected[j];
    }
  }
}

class RandomWeightTest : public CudaTest {};

TEST_F(RandomWeightTest, AMatrixDrawnOnTheDeviceIsTheOneDrawnOnTheHost) {
  const HostMatrix matrix{nullptr, DType::kBF16, 129, 1040, (uint64_t{7} << 32) + 5, 0.25f};
  const std::vector<uint16_t> expected = DrawMatrix(matrix);
  const auto out = ToDevice(std::vector<uint16_t>(expected.size(), 0xFFFF));
  LaunchRandomWeight(matrix.seed, matrix.deviation, static_cast<int64_t>(expected.size()),
                     reinterpret_cast<__nv_bfloat16*>(out.get()), nullptr);
  EXPECT_EQ(ToHost(static_cast<const uint16_t*>(out.get()), expected.size()), expected);
}

INSTANTIATE_TEST_SUITE_P(Types, WeightsTest,
                         testing::Values(DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0,
                                         DType::kQ4_0, DType::kQ4_1),
                         [](const auto& info) { return std::string(Info(info.param).name); });

}  // namespace
}  // namespace tandem::kernels::cuda
