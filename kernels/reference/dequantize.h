// Number formats of weights and caches as fp32 values: the definitions that backends are compared
// with.
#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace tandem::kernels {

// IEEE binary16 and bfloat16 to fp32, exact.
float HalfToFloat(uint16_t bits);
float BFloat16ToFloat(uint16_t bits);
// fp32 to bfloat16, to nearest even; a NaN stays a NaN.
uint16_t FloatToBFloat16(float value);
// fp32 to binary16, to nearest even, overflow to infinity.
uint16_t FloatToHalf(float value);

// FP8 E4M3 (OCP 8-bit floating point specification, the variant without infinities; 0x7F and 0xFF
// are NaN): exact to fp32; from fp32 to nearest even, saturating at +-448, a NaN stays a NaN.
float Fp8E4M3ToFloat(uint8_t bits);
uint8_t FloatToFp8E4M3(float value);

// Bytes of one row of a matrix. REQUIRES cols % block_elements == 0.
int64_t RowBytes(DType dtype, int32_t cols);
// One row of blocks (tensor.h says their layout) as fp32, each value rounded once. Not for kI32.
void DequantizeRow(DType dtype, const void* row, int32_t cols, float* out);

// One head's K or V vector of one token, as the cache stores it. Of the 8-bit formats the value is
// scale * element:
//   int8      scale = max|x| / 127, element = x / scale to nearest even
//   fp8_e4m3  scale = max|x| / 448, element = fp8(x / scale)
// with fp32 quotients; a vector of zeros has scale 0. A vector with a non-finite number has scale
// NaN and zeros, so that all its values read back as NaN. scale is written iff HasScales(format).
void EncodeKv(KvFormat format, const float* values, int32_t head_dim, void* elements, float* scale);
// The values, fp32. scale is read iff HasScales(format).
void DecodeKv(KvFormat format, const void* elements, const float* scale, int32_t head_dim,
              float* values);

}  // namespace tandem::kernels
