// Products of packed weights at every SIMD level: what is read, how exact the sums are, and that a
// row's bits depend on nothing else.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/memory.h"
#include "kernels/cpu/packed.h"
#include "kernels/reference/dequantize.h"
#include "tests/kernels/cpu_levels.h"

namespace tandem::kernels::cpu {
namespace {

constexpr DType kWeightTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16,
                                  DType::kQ8_0, DType::kQ4_0, DType::kQ4_1};

int64_t RowBytesOf(DType dtype, int32_t cols) {
  return int64_t{cols} / Info(dtype).block_elements * Info(dtype).block_bytes;
}

// Random bits as a checkpoint's matrix; every 16-bit and 32-bit float in it is finite.
std::vector<uint8_t> RandomMatrix(DType dtype, int32_t rows, int32_t cols, std::mt19937& random) {
  std::vector<uint8_t> data(rows * RowBytesOf(dtype, cols));
  for (uint8_t& byte : data) byte = static_cast<uint8_t>(random());
  const auto tame = [&](size_t at, int exponent_byte, uint8_t mask) {
    data[at + exponent_byte] &= mask;  // takes the exponent's top bit away: below 2 in magnitude
  };
  const int32_t block = Info(dtype).block_bytes;
  for (size_t at = 0; at < data.size(); at += block) {
    tame(at, dtype == DType::kF32 ? 3 : 1, 0xBF);
    if (dtype == DType::kQ4_1) tame(at, 3, 0xBF);
  }
  return data;
}

// One packed matrix, and its values as fp32.
class Packed {
 public:
  Packed(DType dtype, int32_t rows, int32_t cols, std::vector<uint8_t> data)
      : layout_(LayoutOf(dtype, rows, cols)), values_(int64_t{rows} * cols) {
    absl::StatusOr<Buffer> storage = AllocateZeroed(layout_.bytes(), "test");
    EXPECT_TRUE(storage.ok());
    storage_ = *std::move(storage);
    PackTiles({data.data(), dtype, rows, cols}, layout_, 0, layout_.num_tiles,
              storage_.as<uint8_t>());
    for (int32_t row = 0; row < rows; ++row) {
      DequantizeRow(dtype, data.data() + row * RowBytesOf(dtype, cols), cols,
                    values_.data() + int64_t{row} * cols);
    }
  }

  const PackedLayout& layout() const { return layout_; }
  const uint8_t* tiles() const { return storage_.as<uint8_t>(); }
  const float* row(int32_t row) const { return values_.data() + int64_t{row} * layout_.cols; }

  // x [n, cols] times tiles [0, num_tiles) in pieces of piece_tiles by piece_rows.
  std::vector<float> Multiply(const Kernels& kernels, const std::vector<float>& x, int32_t n,
                              int32_t piece_tiles, int32_t piece_rows) const {
    std::vector<float> sums(int64_t{n} * layout_.num_blocks);
    ProductTask task;
    task.dtype = layout_.format.dtype;
    task.rows = layout_.rows;
    task.num_tiles = layout_.num_tiles;
    task.num_blocks = layout_.num_blocks;
    task.cols = layout_.cols;
    task.tile_bytes = layout_.tile_bytes;
    task.scales_offset = layout_.scales_offset;
    task.tiles = tiles();
    task.x = x.data();
    task.x_stride = layout_.cols;
    if (task.dtype == DType::kQ4_1) {
      for (int32_t i = 0; i < n; ++i) {
        kernels.block_sums(x.data() + int64_t{i} * layout_.cols, layout_.cols,
                           sums.data() + int64_t{i} * layout_.num_blocks);
      }
      task.block_sums = sums.data();
    }
    std::vector<float> y(int64_t{n} * layout_.rows);
    task.y = y.data();
    task.y_stride = layout_.rows;
    for (int32_t tile = 0; tile < layout_.num_tiles; tile += piece_tiles) {
      for (int32_t row = 0; row < n; row += piece_rows) {
        kernels.product(task, tile, std::min(layout_.num_tiles, tile + piece_tiles), row,
                        std::min(n, row + piece_rows));
      }
    }
    return y;
  }

 private:
  PackedLayout layout_;
  Buffer storage_;
  std::vector<float> values_;
};

std::vector<float> RandomRows(int32_t n, int32_t cols, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> x(int64_t{n} * cols);
  for (float& value : x) value = normal(random);
  return x;
}

int32_t ColsFor(DType dtype, int32_t cols) {
  return Info(dtype).block_elements == 1 ? cols : (cols + 31) / 32 * 32;
}

TEST(CpuProducts, UnpackedRowsAreTheCheckpoints) {
  std::mt19937 random(1);
  for (const DType dtype : kWeightTypes) {
    const int32_t rows = 37, cols = ColsFor(dtype, 70);
    const Packed weight(dtype, rows, cols, RandomMatrix(dtype, rows, cols, random));
    std::vector<float> unpacked(cols);
    for (int32_t row = 0; row < rows; ++row) {
      UnpackRow(weight.layout(), weight.tiles(), row, unpacked.data());
      EXPECT_EQ(std::memcmp(unpacked.data(), weight.row(row), cols * sizeof(float)), 0)
          << Info(dtype).name << " row " << row;
    }
  }
}

TEST(CpuProducts, AOneHotRowReadsTheWeightExactly) {
  std::mt19937 random(2);
  for (const NamedLevel& level : LevelsHere()) {
    for (const DType dtype : kWeightTypes) {
      const int32_t rows = 33, cols = ColsFor(dtype, 40);
      const Packed weight(dtype, rows, cols, RandomMatrix(dtype, rows, cols, random));
      std::vector<float> x(int64_t{cols} * cols);
      for (int32_t k = 0; k < cols; ++k) x[int64_t{k} * cols + k] = 1.0f;
      const std::vector<float> y = weight.Multiply(*level.kernels, x, cols, 3, cols);
      for (int32_t k = 0; k < cols; ++k) {
        for (int32_t row = 0; row < rows; ++row) {
          ASSERT_EQ(y[int64_t{k} * rows + row], weight.row(row)[k])
              << Name(level.level) << " " << Info(dtype).name << " row " << row << " k " << k;
        }
      }
    }
  }
}

TEST(CpuProducts, EveryFiniteHalfIsReadExactly) {
  std::vector<uint8_t> data;
  for (uint32_t half = 0; half < 0x10000; ++half) {
    if ((half & 0x7C00) == 0x7C00) continue;
    data.push_back(static_cast<uint8_t>(half));
    data.push_back(static_cast<uint8_t>(half >> 8));
  }
  const int32_t rows = static_cast<int32_t>(data.size() / 2);
  const Packed weight(DType::kF16, rows, 1, data);
  for (const NamedLevel& level : LevelsHere()) {
    const std::vector<float> y = weight.Multiply(*level.kernels, {1.0f}, 1, 8, 1);
    for (int32_t row = 0; row < rows; ++row) ASSERT_EQ(y[row], weight.row(row)[0]) << row;
  }
}

TEST(CpuProducts, SumsAreAsExactAsFp32Allows) {
  std::mt19937 random(3);
  for (const NamedLevel& level : LevelsHere()) {
    for (const DType dtype : kWeightTypes) {
      for (const int32_t wanted_cols : {1, 31, 100, 576}) {
        for (const int32_t rows : {1, 16, 17, 50}) {
          const int32_t cols = ColsFor(dtype, wanted_cols), n = 7;
          const Packed weight(dtype, rows, cols, RandomMatrix(dtype, rows, cols, random));
          const std::vector<float> x = RandomRows(n, cols, random);
          const std::vector<float> y = weight.Multiply(*level.kernels, x, n, 2, n);
          for (int32_t i = 0; i < n; ++i) {
            for (int32_t row = 0; row < rows; ++row) {
              double exact = 0.0, size = 0.0;
              for (int32_t k = 0; k < cols; ++k) {
                const double term = double{x[int64_t{i} * cols + k]} * weight.row(row)[k];
                exact += term;
                size += std::abs(term);
              }
              ASSERT_NEAR(y[int64_t{i} * rows + row], exact, 2e-6 * size + 1e-30)
                  << Name(level.level) << " " << Info(dtype).name << " " << rows << " x " << cols;
            }
          }
        }
      }
    }
  }
}

TEST(CpuProducts, ARowsBitsDependNeitherOnTheRowsBesideItNorOnThePieces) {
  std::mt19937 random(4);
  for (const NamedLevel& level : LevelsHere()) {
    for (const DType dtype : kWeightTypes) {
      const int32_t rows = 75, cols = ColsFor(dtype, 200), n = 113;
      const Packed weight(dtype, rows, cols, RandomMatrix(dtype, rows, cols, random));
      const std::vector<float> x = RandomRows(n, cols, random);
      const std::vector<float> alone = weight.Multiply(*level.kernels, x, n, 1, 1);
      for (const int32_t piece_rows : {2, 3, 4, 5, 6, 7, 8, 11, 32, 96, 113}) {
        for (const int32_t piece_tiles : {1, 2, 3, 5}) {
          const std::vector<float> together =
              weight.Multiply(*level.kernels, x, n, piece_tiles, piece_rows);
          ASSERT_EQ(std::memcmp(alone.data(), together.data(), alone.size() * sizeof(float)), 0)
              << Name(level.level) << " " << Info(dtype).name << ", pieces of " << piece_tiles
              << " tiles and " << piece_rows << " rows";
        }
      }
    }
  }
}

TEST(CpuProducts, Avx2AndAvx512GiveTheSameBits) {
  const std::vector<NamedLevel> levels = LevelsHere();
  if (levels.size() < 3) GTEST_SKIP() << "this machine runs " << Name(DetectSimdLevel());
  std::mt19937 random(5);
  for (const DType dtype : kWeightTypes) {
    const int32_t rows = 40, cols = ColsFor(dtype, 150), n = 9;
    const Packed weight(dtype, rows, cols, RandomMatrix(dtype, rows, cols, random));
    const std::vector<float> x = RandomRows(n, cols, random);
    EXPECT_EQ(weight.Multiply(*levels[1].kernels, x, n, 2, n),
              weight.Multiply(*levels[2].kernels, x, n, 2, n))
        << Info(dtype).name;
  }
}

}  // namespace
}  // namespace tandem::kernels::cpu
