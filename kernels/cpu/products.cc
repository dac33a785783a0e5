// Products of packed weights with fp32 rows (level.h states the order of every sum).
//
// Two kernels with the same arithmetic. Few rows: a weight vector is decoded in registers and used
// at once, for two tiles, so that a step runs at the speed of memory. Many rows: a chunk of k of
// two tiles is decoded into a panel in the L1 cache and multiplied by strips of rows, with running
// totals kept beside it.
#include "kernels/cpu/level_functions.h"

namespace tandem::kernels::cpu::TANDEM_CPU_LEVEL {
namespace {

constexpr int kLanes = 16;
constexpr int kBlockK = 32;
// Sums that fit into a level's registers: tiles side by side times rows side by side. kDirectLimit:
// rows above which a panel pays (measured).
#if defined(TANDEM_CPU_AVX512)
constexpr int kDirectTiles = 2, kDirectRows = 4, kTiles = 2, kPanelRows = 6;
constexpr int kDirectLimit = 12;
#elif defined(TANDEM_CPU_AVX2)
constexpr int kDirectTiles = 2, kDirectRows = 2, kTiles = 1, kPanelRows = 6;
constexpr int kDirectLimit = 2;
#else
constexpr int kDirectTiles = 1, kDirectRows = 2, kTiles = 1, kPanelRows = 2;
constexpr int kDirectLimit = 2;
#endif
constexpr int64_t kMaxPrefetch = 24 << 10;  // bytes
constexpr int kPanelBlocks = 4;             // k of a panel, in blocks: 8 KiB a tile
constexpr int kStripRows = 96;  // rows whose totals are kept beside a panel: 6 KiB a tile

// ---- formats: how 8 steps of k are decoded, and how a block's sum enters the total ----

struct Floats {
  static constexpr bool kScaled = false, kOffset = false;
};
struct F32 : Floats {
  static constexpr int kValueBytes = 2048, kScaleBytes = 0;
  TANDEM_SIMD F Decode(const uint8_t* values, int k) {
    return Load(reinterpret_cast<const float*>(values) + k * kLanes);
  }
};
struct F16 : Floats {
  static constexpr int kValueBytes = 1024, kScaleBytes = 0;
  TANDEM_SIMD F Decode(const uint8_t* values, int k) {
    return LoadHalf(reinterpret_cast<const uint16_t*>(values) + k * kLanes);
  }
};
struct BF16 : Floats {
  static constexpr int kValueBytes = 1024, kScaleBytes = 0;
  TANDEM_SIMD F Decode(const uint8_t* values, int k) {
    return LoadBf16(reinterpret_cast<const uint16_t*>(values) + k * kLanes);
  }
};
struct Q8_0 {
  static constexpr bool kScaled = true, kOffset = false;
  static constexpr int kValueBytes = 512, kScaleBytes = 32;
  TANDEM_SIMD F Decode(const uint8_t* values, int k) {
    return LoadInt8(reinterpret_cast<const int8_t*>(values) + k * kLanes);
  }
};

// Decodes steps [8 j, 8 j + 8) of a block.
template <typename Format>
struct Eight {
  TANDEM_SIMD void Decode(const uint8_t* values, int j, F out[8]) {
    TANDEM_UNROLL for (int i = 0; i < 8; ++i) out[i] = Format::Decode(values, 8 * j + i);
  }
};
template <int kNibbleOffset>
TANDEM_SIMD void DecodeNibbles(const uint8_t* values, int j, F out[8]) {
  const NibbleValues table = NibbleTable(kNibbleOffset);
  const I words = LoadI(values + j * 64);
  out[0] = Nibbles<0>(words, table);
  out[1] = Nibbles<4>(words, table);
  out[2] = Nibbles<8>(words, table);
  out[3] = Nibbles<12>(words, table);
  out[4] = Nibbles<16>(words, table);
  out[5] = Nibbles<20>(words, table);
  out[6] = Nibbles<24>(words, table);
  out[7] = Nibbles<28>(words, table);
}
struct Q4_0 {
  static constexpr bool kScaled = true, kOffset = false;
  static constexpr int kValueBytes = 256, kScaleBytes = 32;
};
struct Q4_1 {
  static constexpr bool kScaled = true, kOffset = true;
  static constexpr int kValueBytes = 256, kScaleBytes = 64;
};
template <>
struct Eight<Q4_0> {
  TANDEM_SIMD void Decode(const uint8_t* values, int j, F out[8]) {
    DecodeNibbles<8>(values, j, out);
  }
};
template <>
struct Eight<Q4_1> {
  TANDEM_SIMD void Decode(const uint8_t* values, int j, F out[8]) {
    DecodeNibbles<0>(values, j, out);
  }
};

// ---- the end of a row's sum ----

TANDEM_SIMD void Finish(const ProductTask& task, int32_t tile, int32_t row, F total) {
  const int32_t first = tile * kLanes;
  const int32_t count = task.rows - first < kLanes ? task.rows - first : kLanes;
  float* y = task.y + row * task.y_stride + first;
  if (count == kLanes) {
    if (task.bias != nullptr) total = Add(total, Load(task.bias + first));
    if (task.accumulate) total = Add(Load(y), total);
    Store(y, total);
  } else {
    if (task.bias != nullptr) total = Add(total, LoadFirst(task.bias + first, count));
    if (task.accumulate) total = Add(LoadFirst(y, count), total);
    StoreFirst(y, count, total);
  }
}

// ---- few rows ----

// Asks for a block's values ahead of their use: with one row, the hardware's own prefetchers reach
// half of the memory's speed (two short streams that end every few KiB).
template <int kBytes>
TANDEM_SIMD void Prefetch(const uint8_t* p) {
  TANDEM_UNROLL for (int i = 0; i < kBytes; i += 64) __builtin_prefetch(p + i, 0, 2);
}

template <typename Format, int kT, int kN>
void DirectTile(const ProductTask& task, int32_t tile, int32_t row) {
  const uint8_t* values[kT];
  const uint8_t* scales[kT];
  const float* x[kN];
  F total[kT][kN];
  TANDEM_UNROLL for (int t = 0; t < kT; ++t) {
    values[t] = task.tiles + (tile + t) * task.tile_bytes;
    scales[t] = values[t] + task.scales_offset;
    TANDEM_UNROLL for (int n = 0; n < kN; ++n) total[t][n] = Zero();
  }
  TANDEM_UNROLL for (int n = 0; n < kN; ++n) x[n] = task.x + (row + n) * task.x_stride;

  const int64_t next_tiles = kT * task.tile_bytes;
  const int64_t ahead = next_tiles < kMaxPrefetch ? next_tiles : kMaxPrefetch;
  const int32_t whole_blocks = task.cols / kBlockK;
  for (int32_t b = 0; b < task.num_blocks; ++b) {
    F sum[kT][kN];
    TANDEM_UNROLL for (int t = 0; t < kT; ++t) {
      TANDEM_UNROLL for (int n = 0; n < kN; ++n) sum[t][n] = Zero();
      Prefetch<Format::kValueBytes>(values[t] + ahead);
    }
    if (b < whole_blocks) {
      for (int j = 0; j < 4; ++j) {
        F w[kT][8];
        TANDEM_UNROLL for (int t = 0; t < kT; ++t) Eight<Format>::Decode(values[t], j, w[t]);
        TANDEM_UNROLL for (int i = 0; i < 8; ++i) {
          TANDEM_UNROLL for (int n = 0; n < kN; ++n) {
            const F broadcast = Set1(x[n][b * kBlockK + 8 * j + i]);
            TANDEM_UNROLL for (int t = 0; t < kT; ++t) {
              sum[t][n] = Fma(w[t][i], broadcast, sum[t][n]);
            }
          }
        }
      }
    } else if constexpr (!Format::kScaled) {  // only these have a short last block
      for (int k = 0; k < task.cols - b * kBlockK; ++k) {
        for (int t = 0; t < kT; ++t) {
          const F w = Format::Decode(values[t], k);
          for (int n = 0; n < kN; ++n) {
            sum[t][n] = Fma(w, Set1(x[n][b * kBlockK + k]), sum[t][n]);
          }
        }
      }
    }
    TANDEM_UNROLL for (int t = 0; t < kT; ++t) {
      if constexpr (Format::kScaled) {
        const uint16_t* half = reinterpret_cast<const uint16_t*>(scales[t]);
        const F d = LoadHalf(half);
        TANDEM_UNROLL for (int n = 0; n < kN; ++n) total[t][n] = Fma(d, sum[t][n], total[t][n]);
        if constexpr (Format::kOffset) {
          const F m = LoadHalf(half + kLanes);
          TANDEM_UNROLL for (int n = 0; n < kN; ++n) {
            const float x_sum = task.block_sums[(row + n) * int64_t{task.num_blocks} + b];
            total[t][n] = Fma(m, Set1(x_sum), total[t][n]);
          }
        }
      } else {
        TANDEM_UNROLL for (int n = 0; n < kN; ++n) total[t][n] = Add(total[t][n], sum[t][n]);
      }
      values[t] += Format::kValueBytes;
      scales[t] += Format::kScaleBytes;
    }
  }
  TANDEM_UNROLL for (int t = 0; t < kT; ++t) {
    TANDEM_UNROLL for (int n = 0; n < kN; ++n) Finish(task, tile + t, row + n, total[t][n]);
  }
}

// num_tiles in {1, kDirectTiles}, num_rows in [1, kN].
template <typename Format, int kN = kDirectRows>
void DirectGroup(const ProductTask& task, int32_t tile, int32_t num_tiles, int32_t row,
                 int32_t num_rows) {
  if constexpr (kN > 1) {
    if (num_rows < kN) return DirectGroup<Format, kN - 1>(task, tile, num_tiles, row, num_rows);
  }
  if (num_tiles == kDirectTiles) {
    DirectTile<Format, kDirectTiles, kN>(task, tile, row);
  } else {
    DirectTile<Format, 1, kN>(task, tile, row);
  }
}

template <typename Format>
void Direct(const ProductTask& task, int32_t tile_begin, int32_t tile_end, int32_t row_begin,
            int32_t row_end) {
  const int32_t num_rows = row_end - row_begin;
  const int32_t num_groups = (num_rows + kDirectRows - 1) / kDirectRows;
  for (int32_t tile = tile_begin; tile < tile_end;) {
    const int32_t num_tiles = tile + kDirectTiles <= tile_end ? kDirectTiles : 1;
    for (int32_t g = 0; g < num_groups; ++g) {
      const int32_t first = num_rows * g / num_groups;
      DirectGroup<Format>(task, tile, num_tiles, row_begin + first,
                          num_rows * (g + 1) / num_groups - first);
    }
    tile += num_tiles;
  }
}

// ---- many rows ----

// Decoded weights of kPanelBlocks blocks of kTiles tiles.
struct Panel {
  alignas(64) float weights[kPanelBlocks * kBlockK][kTiles][kLanes];
  alignas(64) float d[kPanelBlocks][kTiles][kLanes];
  alignas(64) float m[kPanelBlocks][kTiles][kLanes];
};

template <typename Format>
void FillPanel(const ProductTask& task, int32_t tile, int32_t block, int32_t blocks, Panel* panel) {
  for (int t = 0; t < kTiles; ++t) {
    const uint8_t* start = task.tiles + (tile + t) * task.tile_bytes;
    for (int32_t b = 0; b < blocks; ++b) {
      const uint8_t* values = start + (block + b) * int64_t{Format::kValueBytes};
      Prefetch<Format::kValueBytes>(values + kPanelBlocks * Format::kValueBytes);
      for (int j = 0; j < 4; ++j) {
        F w[8];
        Eight<Format>::Decode(values, j, w);
        TANDEM_UNROLL for (int i = 0; i < 8; ++i) {
          Store(panel->weights[b * kBlockK + 8 * j + i][t], w[i]);
        }
      }
      if constexpr (Format::kScaled) {
        const uint16_t* half = reinterpret_cast<const uint16_t*>(
            start + task.scales_offset + (block + b) * int64_t{Format::kScaleBytes});
        Store(panel->d[b][t], LoadHalf(half));
        if constexpr (Format::kOffset) Store(panel->m[b][t], LoadHalf(half + kLanes));
      }
    }
  }
}

// Hides a pointer's origin, so that a row's address is worked out where it is used: the compiler
// would keep one pointer per row alive over the whole function, in vector registers that the sums
// need.
TANDEM_SIMD const float* Opaque(const float* p) {
  asm("" : "+r"(p));
  return p;
}

// Adds the panel's blocks to the totals of kN rows. totals [kN][kTiles][kLanes].
template <bool kScaled, bool kOffset, int kN>
__attribute__((noinline)) void MultiplyPanel(const ProductTask& task, const Panel& panel,
                                             int32_t block, int32_t blocks, int32_t row,
                                             float* totals) {
  F total[kN][kTiles];
  TANDEM_UNROLL for (int n = 0; n < kN; ++n) {
    TANDEM_UNROLL for (int t = 0; t < kTiles; ++t) {
      total[n][t] = Load(totals + (n * kTiles + t) * kLanes);
    }
  }
  const float* first_x = task.x + row * task.x_stride + block * kBlockK;
  const float* first_sum =
      kOffset ? task.block_sums + row * int64_t{task.num_blocks} + block : nullptr;
  for (int32_t b = 0; b < blocks; ++b) {
    F sum[kN][kTiles];
    const float* x[kN];
    x[0] = Opaque(first_x + b * kBlockK);
    TANDEM_UNROLL for (int n = 0; n < kN; ++n) {
      x[n] = x[0] + n * task.x_stride;
      TANDEM_UNROLL for (int t = 0; t < kTiles; ++t) sum[n][t] = Zero();
    }
    const int32_t left = task.cols - (block + b) * kBlockK;
    const int32_t steps = left < kBlockK ? left : kBlockK;
    for (int32_t k = 0; k < steps; ++k) {
      F w[kTiles];
      TANDEM_UNROLL for (int t = 0; t < kTiles; ++t) {
        w[t] = Load(panel.weights[b * kBlockK + k][t]);
      }
      TANDEM_UNROLL for (int n = 0; n < kN; ++n) {
        const F broadcast = Set1(x[n][k]);
        TANDEM_UNROLL for (int t = 0; t < kTiles; ++t) sum[n][t] = Fma(w[t], broadcast, sum[n][t]);
      }
    }
    TANDEM_UNROLL for (int t = 0; t < kTiles; ++t) {
      if constexpr (kScaled) {
        const F d = Load(panel.d[b][t]);
        TANDEM_UNROLL for (int n = 0; n < kN; ++n) total[n][t] = Fma(d, sum[n][t], total[n][t]);
      } else {
        TANDEM_UNROLL for (int n = 0; n < kN; ++n) total[n][t] = Add(total[n][t], sum[n][t]);
      }
    }
    if constexpr (kOffset) {
      const float* x_sum = Opaque(first_sum + b);
      TANDEM_UNROLL for (int n = 0; n < kN; ++n, x_sum += task.num_blocks) {
        const F broadcast = Set1(*x_sum);
        TANDEM_UNROLL for (int t = 0; t < kTiles; ++t) {
          total[n][t] = Fma(Load(panel.m[b][t]), broadcast, total[n][t]);
        }
      }
    }
  }
  TANDEM_UNROLL for (int n = 0; n < kN; ++n) {
    TANDEM_UNROLL for (int t = 0; t < kTiles; ++t) {
      Store(totals + (n * kTiles + t) * kLanes, total[n][t]);
    }
  }
}

// rows in [1, kN].
template <bool kScaled, bool kOffset, int kN = kPanelRows>
void MultiplyGroup(const ProductTask& task, const Panel& panel, int32_t block, int32_t blocks,
                   int32_t row, int32_t rows, float* totals) {
  if constexpr (kN > 1) {
    if (rows < kN) {
      return MultiplyGroup<kScaled, kOffset, kN - 1>(task, panel, block, blocks, row, rows, totals);
    }
  }
  MultiplyPanel<kScaled, kOffset, kN>(task, panel, block, blocks, row, totals);
}

// Rows in groups as equal as they can be: a group of one or two leaves the multipliers idle.
template <typename Format>
void MultiplyStrip(const ProductTask& task, const Panel& panel, int32_t block, int32_t blocks,
                   int32_t row_begin, int32_t row_end, float* totals) {
  const int32_t num_rows = row_end - row_begin;
  const int32_t num_groups = (num_rows + kPanelRows - 1) / kPanelRows;
  for (int32_t g = 0; g < num_groups; ++g) {
    const int32_t first = num_rows * g / num_groups;
    const int32_t rows = num_rows * (g + 1) / num_groups - first;
    MultiplyGroup<Format::kScaled, Format::kOffset>(task, panel, block, blocks, row_begin + first,
                                                    rows, totals + first * kTiles * kLanes);
  }
}

template <typename Format>
void Paneled(const ProductTask& task, int32_t tile_begin, int32_t tile_end, int32_t row_begin,
             int32_t row_end) {
  Panel panel;
  alignas(64) float totals[kStripRows * kTiles * kLanes];
  int32_t tile = tile_begin;
  for (; tile + kTiles <= tile_end; tile += kTiles) {
    for (int32_t i = 0; i < (row_end - row_begin) * kTiles * kLanes; i += kLanes) {
      Store(totals + i, Zero());
    }
    for (int32_t block = 0; block < task.num_blocks; block += kPanelBlocks) {
      const int32_t left = task.num_blocks - block;
      const int32_t blocks = left < kPanelBlocks ? left : kPanelBlocks;
      FillPanel<Format>(task, tile, block, blocks, &panel);
      MultiplyStrip<Format>(task, panel, block, blocks, row_begin, row_end, totals);
    }
    const float* total = totals;
    for (int32_t row = row_begin; row < row_end; ++row) {
      for (int t = 0; t < kTiles; ++t, total += kLanes) Finish(task, tile + t, row, Load(total));
    }
  }
  Direct<Format>(task, tile, tile_end, row_begin, row_end);
}

template <typename Format>
void ProductOf(const ProductTask& task, int32_t tile_begin, int32_t tile_end, int32_t row_begin,
               int32_t row_end) {
  if (row_end - row_begin <= kDirectLimit) {
    return Direct<Format>(task, tile_begin, tile_end, row_begin, row_end);
  }
  for (int32_t row = row_begin; row < row_end; row += kStripRows) {
    Paneled<Format>(task, tile_begin, tile_end, row,
                    row_end - row < kStripRows ? row_end : row + kStripRows);
  }
}

}  // namespace

void Product(const ProductTask& task, int32_t tile_begin, int32_t tile_end, int32_t row_begin,
             int32_t row_end) {
  switch (task.dtype) {
    case DType::kF32:
      return ProductOf<F32>(task, tile_begin, tile_end, row_begin, row_end);
    case DType::kF16:
      return ProductOf<F16>(task, tile_begin, tile_end, row_begin, row_end);
    case DType::kBF16:
      return ProductOf<BF16>(task, tile_begin, tile_end, row_begin, row_end);
    case DType::kQ8_0:
      return ProductOf<Q8_0>(task, tile_begin, tile_end, row_begin, row_end);
    case DType::kQ4_0:
      return ProductOf<Q4_0>(task, tile_begin, tile_end, row_begin, row_end);
    case DType::kQ4_1:
      return ProductOf<Q4_1>(task, tile_begin, tile_end, row_begin, row_end);
    case DType::kI32:
      return;
  }
}

void BlockSums(const float* x, int32_t cols, float* sums) {
  for (int32_t k = 0; k < cols; k += kBlockK) {
    *sums++ = ReduceAdd(Add(Load(x + k), Load(x + k + kLanes)));
  }
}

}  // namespace tandem::kernels::cpu::TANDEM_CPU_LEVEL
