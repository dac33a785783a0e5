#include "kernels/cpu/weights.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/check.h"
#include "kernels/cpu/packed.h"
#include "kernels/random_weight.h"

namespace tandem::kernels::cpu {
namespace {

constexpr int32_t kPiecesPerThread = 6;  // of a product, so that threads end at about the same time
constexpr int32_t kStripRows = 96;       // rows of a product's piece, see products.cc

int32_t CeilDivide(int32_t a, int32_t b) { return (a + b - 1) / b; }

}  // namespace

absl::StatusOr<Weight> PackWeight(std::span<const HostMatrix> parts, std::string_view what,
                                  ThreadPool* pool) {
  KERNELS_REQUIRE(!parts.empty(), "%s", std::string(what).c_str());
  Weight weight;
  weight.cols = parts[0].cols;
  std::vector<PackedLayout> layouts;
  int64_t bytes = 0;
  for (const HostMatrix& part : parts) {
    KERNELS_REQUIRE(part.cols == weight.cols, "%d and %d columns", part.cols, weight.cols);
    if (!CanPack(part.dtype)) {
      return absl::UnimplementedError(
          absl::StrCat(std::string(what), ": the CPU backend does not multiply weights of type ",
                       std::string(Info(part.dtype).name)));
    }
    KERNELS_REQUIRE(part.cols % Info(part.dtype).block_elements == 0, "%d columns of %s", part.cols,
                    std::string(Info(part.dtype).name).c_str());
    layouts.push_back(LayoutOf(part.dtype, part.rows, part.cols));
    weight.parts.push_back({part.dtype, weight.rows, part.rows, bytes});
    weight.rows += part.rows;
    bytes += layouts.back().bytes();
  }
  absl::StatusOr<Buffer> storage = AllocateZeroed(bytes, what);
  if (!storage.ok()) return storage.status();
  weight.storage = *std::move(storage);
  for (size_t i = 0; i < parts.size(); ++i) {
    uint8_t* packed = weight.storage.as<uint8_t>() + weight.parts[i].offset;
    HostMatrix part = parts[i];
    std::vector<uint16_t> drawn;
    if (part.data == nullptr) {
      drawn = DrawMatrix(part);
      part.data = drawn.data();
    }
    pool->ForPieces(layouts[i].num_tiles, 32, [&](int64_t begin, int64_t end) {
      PackTiles(part, layouts[i], static_cast<int32_t>(begin), static_cast<int32_t>(end), packed);
    });
  }
  return weight;
}

void UnpackWeightRow(const Weight& weight, int32_t row, float* out) {
  const Weight::Part* part = weight.parts.data();
  while (row >= part->first_row + part->rows) ++part;
  UnpackRow(LayoutOf(part->dtype, part->rows, weight.cols),
            weight.storage.as<uint8_t>() + part->offset, row - part->first_row, out);
}

void Multiplier::Multiply(const Weight& weight, const float* x, int32_t num_rows, const float* bias,
                          bool accumulate, float* y) {
  if (num_rows == 0) return;
  std::vector<ProductTask> tasks;
  int32_t num_tiles = 0;
  bool needs_sums = false;
  for (const Weight::Part& part : weight.parts) {
    const PackedLayout layout = LayoutOf(part.dtype, part.rows, weight.cols);
    ProductTask task;
    task.dtype = part.dtype;
    task.rows = part.rows;
    task.num_tiles = layout.num_tiles;
    task.num_blocks = layout.num_blocks;
    task.cols = weight.cols;
    task.tile_bytes = layout.tile_bytes;
    task.scales_offset = layout.scales_offset;
    task.tiles = weight.storage.as<uint8_t>() + part.offset;
    task.x = x;
    task.x_stride = weight.cols;
    task.bias = bias != nullptr ? bias + part.first_row : nullptr;
    task.accumulate = accumulate;
    task.y = y + part.first_row;
    task.y_stride = weight.rows;
    tasks.push_back(task);
    num_tiles += layout.num_tiles;
    needs_sums = needs_sums || part.dtype == DType::kQ4_1;
  }
  if (needs_sums) {
    const int64_t num_blocks = tasks[0].num_blocks;
    float* sums = block_sums_.Floats(num_rows * num_blocks);
    pool_.ForRows(num_rows, [&](int32_t row) {
      kernels_.block_sums(x + int64_t{row} * weight.cols, weight.cols, sums + row * num_blocks);
    });
    for (ProductTask& task : tasks) task.block_sums = sums;
  }

  // Pieces: an even number of tiles (kernels take two at a time) by a strip of rows.
  const int32_t wanted = kPiecesPerThread * pool_.num_threads();
  const int32_t piece_tiles = std::max(2, CeilDivide(num_tiles, wanted) / 2 * 2);
  const int32_t strips = CeilDivide(num_rows, kStripRows);
  const int32_t strip_rows = CeilDivide(num_rows, strips);
  int32_t pieces = 0;
  for (const ProductTask& task : tasks) pieces += CeilDivide(task.num_tiles, piece_tiles);
  pool_.RunNeighbours(pieces * strips, [&](int32_t item, int32_t) {
    int32_t piece = item / strips;
    const int32_t row = item % strips * strip_rows;
    const ProductTask* task = tasks.data();
    for (; piece >= CeilDivide(task->num_tiles, piece_tiles); ++task) {
      piece -= CeilDivide(task->num_tiles, piece_tiles);
    }
    kernels_.product(*task, piece * piece_tiles,
                     std::min(task->num_tiles, (piece + 1) * piece_tiles), row,
                     std::min(num_rows, row + strip_rows));
  });
}

}  // namespace tandem::kernels::cpu
