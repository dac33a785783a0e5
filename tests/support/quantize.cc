#include "tests/support/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/check.h"
#include "kernels/reference/dequantize.h"

namespace tandem::test {
namespace {

using kernels::DType;

template <typename T>
void Append(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

int Code(float value, float scale, int low, int high) {
  const float code = scale == 0.0f ? 0.0f : std::nearbyint(value / scale);
  return static_cast<int>(std::clamp(code, static_cast<float>(low), static_cast<float>(high)));
}

// The value that an fp16 scale really has.
float AppendScale(std::string& out, float scale) {
  const uint16_t half = kernels::FloatToHalf(scale);
  Append(out, half);
  return kernels::HalfToFloat(half);
}

void AppendNibbles(std::string& out, std::span<const float> block, float scale, float minimum) {
  for (size_t i = 0; i < 16; ++i) {
    const int low = Code(block[i] - minimum, scale, 0, 15);
    const int high = Code(block[i + 16] - minimum, scale, 0, 15);
    out.push_back(static_cast<char>(low | high << 4));
  }
}

void AppendBlock(std::string& out, std::span<const float> block, DType dtype) {
  const auto [smallest, largest] = std::minmax_element(block.begin(), block.end());
  const float magnitude = std::max(std::abs(*smallest), std::abs(*largest));
  switch (dtype) {
    case DType::kF32:
      Append(out, block[0]);
      break;
    case DType::kF16:
      Append(out, kernels::FloatToHalf(block[0]));
      break;
    case DType::kBF16:
      Append(out, kernels::FloatToBFloat16(block[0]));
      break;
    case DType::kQ8_0: {
      const float scale = AppendScale(out, magnitude / 127.0f);
      for (const float value : block) {
        out.push_back(static_cast<char>(Code(value, scale, -127, 127)));
      }
      break;
    }
    case DType::kQ4_0: {
      const float scale = AppendScale(out, magnitude / 8.0f);
      AppendNibbles(out, block, scale, -8.0f * scale);
      break;
    }
    case DType::kQ4_1: {
      const float scale = AppendScale(out, (*largest - *smallest) / 15.0f);
      AppendNibbles(out, block, scale, AppendScale(out, *smallest));
      break;
    }
    case DType::kI32:
      TANDEM_CHECK(false) << "I32 is no format of weights";
  }
}

}  // namespace

std::string Quantize(std::span<const float> values, DType dtype) {
  const auto block = static_cast<size_t>(kernels::Info(dtype).block_elements);
  TANDEM_CHECK(values.size() % block == 0) << values.size() << " values in blocks of " << block;
  std::string out;
  for (size_t i = 0; i < values.size(); i += block) {
    AppendBlock(out, values.subspan(i, block), dtype);
  }
  return out;
}

}  // namespace tandem::test
