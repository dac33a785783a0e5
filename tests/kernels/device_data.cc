#include "tests/kernels/device_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/reference/dequantize.h"

namespace tandem::kernels {

void DeviceData::SetActivations(void* device, const std::vector<float>& values) {
  if (ops_.info().act_bytes == 4) {
    Set(static_cast<float*>(device), values);
    return;
  }
  std::vector<uint16_t> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(), FloatToBFloat16);
  Set(static_cast<uint16_t*>(device), rounded);
}

std::vector<float> DeviceData::GetActivations(const void* device, size_t count) {
  if (ops_.info().act_bytes == 4) return Get(static_cast<const float*>(device), count);
  const std::vector<uint16_t> stored = Get(static_cast<const uint16_t*>(device), count);
  std::vector<float> values(count);
  std::transform(stored.begin(), stored.end(), values.begin(), BFloat16ToFloat);
  return values;
}

float RandomData::Normal(float deviation) {
  float sum = 0.0f;
  for (int i = 0; i < 4; ++i) sum += static_cast<float>(random_() >> 8) * 0x1p-24f - 0.5f;
  return sum * deviation * 1.7320508f;  // the variance of the sum is 4 / 12
}

std::vector<float> RandomData::Normals(size_t count, float deviation) {
  std::vector<float> values(count);
  for (float& value : values) value = Normal(deviation);
  return values;
}

std::vector<int32_t> RandomData::Tokens(size_t count, int32_t vocab_size) {
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = Below(vocab_size);
  return tokens;
}

std::vector<int32_t> RandomData::Permutation(int32_t count) {
  std::vector<int32_t> order(count);
  for (int32_t i = 0; i < count; ++i) order[i] = i;
  for (int32_t i = count - 1; i > 0; --i) std::swap(order[i], order[Below(i + 1)]);
  return order;
}

std::unique_ptr<StoredMatrix> RandomMatrix(DType dtype, int32_t rows, int32_t cols, float deviation,
                                           RandomData& random) {
  auto matrix = std::make_unique<StoredMatrix>();
  const DTypeInfo info = Info(dtype);
  matrix->bytes.resize(RowBytes(dtype, cols) * rows);
  for (size_t at = 0; at < matrix->bytes.size(); at += info.block_bytes) {
    uint8_t* block = matrix->bytes.data() + at;
    const float value = random.Normal(deviation);
    const float half = dtype == DType::kQ8_0 ? value / 70.0f : value / 5.0f;
    const uint16_t scale = FloatToHalf(half);
    const uint16_t minimum = FloatToHalf(-7.5f * half);
    const uint16_t f16 = FloatToHalf(value);
    const uint16_t bf16 = FloatToBFloat16(value);
    for (int32_t i = 0; i < info.block_bytes; ++i) {
      block[i] = static_cast<uint8_t>(random.Below(256));
    }
    switch (dtype) {
      case DType::kF32:
        std::memcpy(block, &value, 4);
        break;
      case DType::kF16:
        std::memcpy(block, &f16, 2);
        break;
      case DType::kBF16:
        std::memcpy(block, &bf16, 2);
        break;
      case DType::kQ4_1:
        std::memcpy(block + 2, &minimum, 2);
        [[fallthrough]];
      default:
        std::memcpy(block, &scale, 2);
    }
  }
  matrix->view = {matrix->bytes.data(), dtype, rows, cols};
  return matrix;
}

void ExpectClose(const std::vector<float>& got, const std::vector<float>& want, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double largest = 0.0;
  for (const float value : want) {
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(static_cast<double>(value)));
  }
  for (size_t i = 0; i < got.size(); ++i) {
    const bool both_finite = std::isfinite(got[i]) && std::isfinite(want[i]);
    ASSERT_EQ(std::isfinite(got[i]), std::isfinite(want[i])) << what << " [" << i << "]";
    if (both_finite) {
      ASSERT_NEAR(got[i], want[i], tolerance * largest)
          << what << " [" << i << "] of " << got.size();
    }
  }
}

bool SameBits(const std::vector<float>& got, const std::vector<float>& want) {
  return got.size() == want.size() &&
         (got.empty() || std::memcmp(got.data(), want.data(), got.size() * sizeof(float)) == 0);
}

void ExpectSameBits(const std::vector<float>& got, const std::vector<float>& want,
                    const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::memcmp(&got[i], &want[i], sizeof(float)), 0)
        << what << " [" << i << "]: " << got[i] << " and " << want[i];
  }
}

}  // namespace tandem::kernels
