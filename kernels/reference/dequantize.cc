#include "kernels/reference/dequantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/check.h"

namespace tandem::kernels {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

uint16_t LoadU16(const uint8_t* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

void DequantizeQ8_0(const uint8_t* block, float* out) {
  const float d = HalfToFloat(LoadU16(block));
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(block[2 + i]));
}

void DequantizeQ4_0(const uint8_t* block, float* out) {
  const float d = HalfToFloat(LoadU16(block));
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((block[2 + i] & 15) - 8);
    out[i + 16] = d * static_cast<float>((block[2 + i] >> 4) - 8);
  }
}

// d * q is exact (11 + 4 bits), so that the sum is the one rounding.
void DequantizeQ4_1(const uint8_t* block, float* out) {
  const float d = HalfToFloat(LoadU16(block));
  const float m = HalfToFloat(LoadU16(block + 2));
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(block[4 + i] & 15) + m;
    out[i + 16] = d * static_cast<float>(block[4 + i] >> 4) + m;
  }
}

}  // namespace

float HalfToFloat(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 0x3FF;
  float magnitude;
  if (exponent == 31) {
    magnitude = fraction != 0 ? kNaN : std::numeric_limits<float>::infinity();
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    magnitude = std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

uint16_t FloatToHalf(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7E00;
  if (magnitude == 0.0f) return sign;
  if (magnitude >= 65520.0f) return sign | 0x7C00;  // the tie above 65504 goes to infinity
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude < 2^exponent
  const int unit = std::max(exponent - 11, -24);
  // A carry out of the fraction runs into the exponent field, as it should.
  const int steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, -unit)));
  return static_cast<uint16_t>(sign | (((unit + 24) << 10) + steps));
}

float BFloat16ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

uint16_t FloatToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

float Fp8E4M3ToFloat(uint8_t bits) {
  const int exponent = bits >> 3 & 15;
  const int fraction = bits & 7;
  float magnitude;
  if ((bits & 0x7F) == 0x7F) {
    magnitude = kNaN;
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(fraction), -9);
  } else {
    magnitude = std::ldexp(static_cast<float>(fraction + 8), exponent - 10);
  }
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

uint8_t FloatToFp8E4M3(float value) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return sign | 0x7F;
  const float magnitude = std::min(std::fabs(value), 448.0f);
  if (magnitude == 0.0f) return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const int unit = std::max(exponent - 4, -9);
  const int steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, -unit)));
  return static_cast<uint8_t>(sign | (((unit + 9) << 3) + steps));
}

int64_t RowBytes(DType dtype, int32_t cols) {
  const DTypeInfo info = Info(dtype);
  KERNELS_REQUIRE(cols >= 0 && cols % info.block_elements == 0, "%d columns, blocks of %d", cols,
                  info.block_elements);
  return int64_t{cols} / info.block_elements * info.block_bytes;
}

void DequantizeRow(DType dtype, const void* row, int32_t cols, float* out) {
  const uint8_t* bytes = static_cast<const uint8_t*>(row);
  const DTypeInfo info = Info(dtype);
  KERNELS_REQUIRE(cols % info.block_elements == 0, "%d columns, blocks of %d", cols,
                  info.block_elements);
  for (int32_t i = 0; i < cols; i += info.block_elements, bytes += info.block_bytes) {
    switch (dtype) {
      case DType::kF32:
        std::memcpy(out + i, bytes, sizeof(float));
        break;
      case DType::kF16:
        out[i] = HalfToFloat(LoadU16(bytes));
        break;
      case DType::kBF16:
        out[i] = BFloat16ToFloat(LoadU16(bytes));
        break;
      case DType::kQ8_0:
        DequantizeQ8_0(bytes, out + i);
        break;
      case DType::kQ4_0:
        DequantizeQ4_0(bytes, out + i);
        break;
      case DType::kQ4_1:
        DequantizeQ4_1(bytes, out + i);
        break;
      case DType::kI32:
        KERNELS_REQUIRE(dtype != DType::kI32, "I32 is not a weight");
        break;
    }
  }
}

void EncodeKv(KvFormat format, const float* values, int32_t head_dim, void* elements,
              float* scale) {
  if (format == KvFormat::kF32) {
    std::memcpy(elements, values, sizeof(float) * head_dim);
    return;
  }
  if (format == KvFormat::kBF16) {
    uint16_t* out = static_cast<uint16_t*>(elements);
    for (int32_t i = 0; i < head_dim; ++i) out[i] = FloatToBFloat16(values[i]);
    return;
  }
  float largest = 0.0f;
  bool finite = true;
  for (int32_t i = 0; i < head_dim; ++i) {
    largest = std::max(largest, std::fabs(values[i]));
    finite = finite && std::isfinite(values[i]);
  }
  *scale = finite ? largest / (format == KvFormat::kInt8 ? 127.0f : 448.0f) : kNaN;
  uint8_t* out = static_cast<uint8_t*>(elements);
  for (int32_t i = 0; i < head_dim; ++i) {
    const float quotient = *scale > 0.0f ? values[i] / *scale : 0.0f;
    if (format == KvFormat::kInt8) {
      // A scale that underflows is too small by a rounding, and the quotient then too large.
      const float bounded = std::clamp(quotient, -127.0f, 127.0f);
      out[i] = static_cast<uint8_t>(static_cast<int8_t>(std::nearbyint(bounded)));
    } else {
      out[i] = FloatToFp8E4M3(quotient);
    }
  }
}

void DecodeKv(KvFormat format, const void* elements, const float* scale, int32_t head_dim,
              float* values) {
  const uint8_t* bytes = static_cast<const uint8_t*>(elements);
  for (int32_t i = 0; i < head_dim; ++i) {
    switch (format) {
      case KvFormat::kF32:
        values[i] = static_cast<const float*>(elements)[i];
        break;
      case KvFormat::kBF16:
        values[i] = BFloat16ToFloat(static_cast<const uint16_t*>(elements)[i]);
        break;
      case KvFormat::kFp8E4M3:
        values[i] = *scale * Fp8E4M3ToFloat(bytes[i]);
        break;
      case KvFormat::kInt8:
        values[i] = *scale * static_cast<float>(static_cast<int8_t>(bytes[i]));
        break;
    }
  }
}

}  // namespace tandem::kernels
