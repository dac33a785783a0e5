#include "kernels/cpu/packed.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/check.h"

namespace tandem::kernels::cpu {
namespace {

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

float HalfToFloat(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int fraction = half & 0x3FF;
  const float sign = (half & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
}

float Bf16ToFloat(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

template <typename T>
T Read(const void* p) {
  T value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

// A row's elements, of `size` bytes each, into its lane.
void PackElements(const uint8_t* row, int32_t cols, int32_t size, int32_t lane, uint8_t* values) {
  for (int32_t k = 0; k < cols; ++k) {
    std::memcpy(values + (int64_t{k} * kTileRows + lane) * size, row + int64_t{k} * size, size);
  }
}

void PackQ8Block(const uint8_t* block, int32_t lane, uint8_t* values, uint8_t* scales) {
  std::memcpy(scales + lane * 2, block, 2);
  for (int32_t k = 0; k < kBlock; ++k) values[k * kTileRows + lane] = block[2 + k];
}

// header: bytes before the nibbles (d, or d and m).
void PackQ4Block(const uint8_t* block, int32_t header, int32_t lane, uint8_t* values,
                 uint8_t* scales) {
  for (int32_t i = 0; i < header / 2; ++i) {
    std::memcpy(scales + (i * kTileRows + lane) * 2, block + i * 2, 2);
  }
  for (int32_t j = 0; j < 4; ++j) {
    uint32_t word = 0;
    for (int32_t i = 0; i < 8; ++i) {
      const int32_t k = 8 * j + i;
      const uint32_t byte = block[header + k % 16];
      word |= (k < 16 ? byte & 15u : byte >> 4) << (4 * i);
    }
    std::memcpy(values + (j * kTileRows + lane) * 4, &word, 4);
  }
}

}  // namespace

bool CanPack(DType dtype) { return dtype != DType::kI32; }

PackedLayout LayoutOf(DType dtype, int32_t rows, int32_t cols) {
  KERNELS_REQUIRE(CanPack(dtype), "dtype %d", static_cast<int>(dtype));
  KERNELS_REQUIRE(rows > 0 && cols > 0, "rows %d, cols %d", rows, cols);
  PackedLayout layout;
  layout.format.dtype = dtype;
  const bool four_bits = dtype == DType::kQ4_0 || dtype == DType::kQ4_1;
  const int32_t elements = kBlock * kTileRows;
  layout.format.value_bytes = four_bits               ? elements / 2
                              : dtype == DType::kQ8_0 ? elements
                                                      : elements * Info(dtype).block_bytes;
  layout.format.scale_bytes = dtype == DType::kQ4_1                            ? 4 * kTileRows
                              : dtype == DType::kQ8_0 || dtype == DType::kQ4_0 ? 2 * kTileRows
                                                                               : 0;
  layout.rows = rows;
  layout.cols = cols;
  layout.num_tiles = (rows + kTileRows - 1) / kTileRows;
  layout.num_blocks = (cols + kBlock - 1) / kBlock;
  layout.scales_offset = int64_t{layout.num_blocks} * layout.format.value_bytes;
  layout.tile_bytes =
      layout.scales_offset + RoundUp(int64_t{layout.num_blocks} * layout.format.scale_bytes, 64);
  return layout;
}

void PackTiles(const HostMatrix& matrix, const PackedLayout& layout, int32_t tile_begin,
               int32_t tile_end, uint8_t* packed) {
  const DTypeInfo info = Info(matrix.dtype);
  const int64_t row_bytes = int64_t{matrix.cols} / info.block_elements * info.block_bytes;
  const int32_t row_end = std::min(tile_end * kTileRows, layout.rows);
  for (int32_t r = tile_begin * kTileRows; r < row_end; ++r) {
    const uint8_t* row = static_cast<const uint8_t*>(matrix.data) + r * row_bytes;
    uint8_t* values = packed + r / kTileRows * layout.tile_bytes;
    uint8_t* scales = values + layout.scales_offset;
    const int32_t lane = r % kTileRows;
    if (info.block_elements == 1) {
      PackElements(row, matrix.cols, info.block_bytes, lane, values);
      continue;
    }
    for (int32_t b = 0; b < layout.num_blocks; ++b) {
      const uint8_t* block = row + int64_t{b} * info.block_bytes;
      if (matrix.dtype == DType::kQ8_0) {
        PackQ8Block(block, lane, values, scales);
      } else {
        PackQ4Block(block, matrix.dtype == DType::kQ4_1 ? 4 : 2, lane, values, scales);
      }
      values += layout.format.value_bytes;
      scales += layout.format.scale_bytes;
    }
  }
}

void UnpackRow(const PackedLayout& layout, const uint8_t* packed, int32_t row, float* out) {
  const uint8_t* values = packed + row / kTileRows * layout.tile_bytes;
  const uint8_t* scales = values + layout.scales_offset;
  const int32_t lane = row % kTileRows;
  for (int32_t k = 0; k < layout.cols; ++k) {
    const int32_t b = k / kBlock, in_block = k % kBlock;
    const uint8_t* block = values + int64_t{b} * layout.format.value_bytes;
    const uint8_t* block_scales = scales + int64_t{b} * layout.format.scale_bytes;
    const int32_t element = in_block * kTileRows + lane;
    if (layout.format.dtype == DType::kF32) {
      out[k] = Read<float>(block + element * 4);
    } else if (layout.format.dtype == DType::kF16) {
      out[k] = HalfToFloat(Read<uint16_t>(block + element * 2));
    } else if (layout.format.dtype == DType::kBF16) {
      out[k] = Bf16ToFloat(Read<uint16_t>(block + element * 2));
    } else if (layout.format.dtype == DType::kQ8_0) {
      const float d = HalfToFloat(Read<uint16_t>(block_scales + lane * 2));
      out[k] = d * static_cast<float>(static_cast<int8_t>(block[element]));
    } else {
      const uint32_t word = Read<uint32_t>(block + (in_block / 8 * kTileRows + lane) * 4);
      const int32_t q = static_cast<int32_t>((word >> (4 * (in_block % 8))) & 15u);
      const float d = HalfToFloat(Read<uint16_t>(block_scales + lane * 2));
      if (layout.format.dtype == DType::kQ4_0) {
        out[k] = d * static_cast<float>(q - 8);
      } else {
        const float m = HalfToFloat(Read<uint16_t>(block_scales + (kTileRows + lane) * 2));
        out[k] = d * static_cast<float>(q) + m;
      }
    }
  }
}

}  // namespace tandem::kernels::cpu
