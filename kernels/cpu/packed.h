// How the CPU backend keeps a weight matrix, the same for every SIMD level.
//
// Sixteen rows (output features) make a tile: one vector holds one k of all sixteen, so that a
// row's sum lives in one lane, k ascends, and nothing is added across lanes. A part's rows are
// padded to a multiple of 16 with zeros. Along k a tile is cut into blocks of 32 (the last may be
// short for F32, F16, BF16; its missing elements are zero). A tile is two planes, each padded to 64
// bytes:
//
//   values  per block: 32 steps of k
//             F32, F16, BF16, Q8_0   [32 k][16 rows] elements
//             Q4_0, Q4_1             [4][16 rows] 32-bit words; nibble i (from the low end) of word
//             j
//                                    is k = 8 j + i
//   scales  per block: [16 rows] fp16 d (Q8_0, Q4_0); [16 rows] d, then [16 rows] m (Q4_1)
//
// Worked example, Q4_1, 576 columns (18 blocks): values 18 * 256 = 4608 bytes, scales 18 * 64 =
// 1152; a tile is 5760 bytes, the 16 * 18 * 20 bytes of the checkpoint. Row 37, column 100: tile 2,
// lane 5, block 3, k = 4: the word at 2 * 5760 + 3 * 256 + 5 * 4, bits 16 to 19.
#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace tandem::kernels::cpu {

inline constexpr int32_t kTileRows = 16;
inline constexpr int32_t kBlock = 32;

struct PackedFormat {
  DType dtype = DType::kF32;
  int32_t value_bytes = 0;  // of one block of a tile
  int32_t scale_bytes = 0;  // of one block of a tile; 0: none
};

// The shape of one packed part.
struct PackedLayout {
  PackedFormat format;
  int32_t rows = 0;
  int32_t cols = 0;
  int32_t num_tiles = 0;
  int32_t num_blocks = 0;     // along k
  int64_t scales_offset = 0;  // within a tile
  int64_t tile_bytes = 0;
  int64_t bytes() const { return num_tiles * tile_bytes; }
};

// Whether products take this dtype (all but kI32).
bool CanPack(DType dtype);

// REQUIRES CanPack(dtype).
PackedLayout LayoutOf(DType dtype, int32_t rows, int32_t cols);

// Packs tiles [tile_begin, tile_end) of a matrix. packed: the part's layout.bytes() bytes, aligned
// to 64 and zero before.
void PackTiles(const HostMatrix& matrix, const PackedLayout& layout, int32_t tile_begin,
               int32_t tile_end, uint8_t* packed);

// One row as fp32, out [cols]: d * q, or d * q + m rounded twice.
void UnpackRow(const PackedLayout& layout, const uint8_t* packed, int32_t row, float* out);

}  // namespace tandem::kernels::cpu
