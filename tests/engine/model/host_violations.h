// Backends that break the bits contract in one way, on memory that the host can touch: what the
// comparisons of bits_matrix.h must find. Each has the effect of a mistake that kernels make.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>

#include "engine/base/check.h"
#include "tests/kernels/forwarding_ops.h"

namespace tandem::test {

enum class HostViolation : uint8_t {
  kSplitK,             // few rows: products are summed in another order
  kSecondAccumulator,  // many rows: the same
  kLengthTile,         // attention's tiles depend on the longest sequence of the step
  kStaleValues,        // attention multiplies values behind the length by zero
};

// REQUIRES an Ops on host memory with fp32 activations and an fp32 cache.
class HostViolationOps final : public kernels::ForwardingOps {
 public:
  HostViolationOps(std::unique_ptr<kernels::Ops> ops, HostViolation violation)
      : ForwardingOps(std::move(ops)), violation_(violation) {}

  void Project(const kernels::ProjectArgs& args) override {
    ForwardingOps::Project(args);
    const bool rounds_otherwise =
        (violation_ == HostViolation::kSplitK && args.rows.num_rows <= 16) ||
        (violation_ == HostViolation::kSecondAccumulator && args.rows.num_rows > 16);
    if (rounds_otherwise) NextAfter(args.rows.num_rows, args.weight->rows, args.residual);
  }

  void Attention(const kernels::AttentionArgs& args) override {
    ForwardingOps::Attention(args);
    const int32_t n = args.rows.num_rows;
    const int32_t* const positions = args.rows.row_position;
    auto* const out = static_cast<float*>(args.out);
    if (violation_ == HostViolation::kLengthTile &&
        *std::max_element(positions, positions + n) >= kLongSequence) {
      NextAfter(n, args.shape.num_heads * args.shape.head_dim, out);
    }
    if (violation_ == HostViolation::kStaleValues) AddStaleValues(args, out);
  }

 private:
  static constexpr int32_t kLongSequence = 100;

  // One value of each row, to its neighbour.
  static void NextAfter(int32_t num_rows, int32_t width, float* values) {
    for (int32_t row = 0; row < num_rows; ++row) {
      float& value = values[int64_t{row} * width + row % width];
      value = std::nextafter(value, INFINITY);
    }
  }

  static void AddStaleValues(const kernels::AttentionArgs& args, float* out) {
    using kernels::kPageTokens;
    const kernels::KvPool& kv = args.kv;
    TANDEM_CHECK(kv.format == kernels::KvFormat::kF32) << "the cache is not fp32";
    const int32_t group = args.shape.num_heads / args.shape.num_kv_heads;
    for (int32_t row = 0; row < args.rows.num_rows; ++row) {
      const int32_t position = args.rows.row_position[row];
      if (args.rows.token[row] == kernels::kIdleToken) continue;
      const int32_t page = kv.page_table[int64_t{args.rows.slot[row]} * kv.max_pages_per_slot +
                                         position / kPageTokens];
      for (int32_t in_page = position % kPageTokens + 1; in_page < kPageTokens; ++in_page) {
        for (int32_t head = 0; head < args.shape.num_heads; ++head) {
          const float* const value = static_cast<const float*>(kv.data) +
                                     kv.ElementOffset(args.layer, page, 1, head / group, in_page);
          float* const line =
              out + (int64_t{row} * args.shape.num_heads + head) * args.shape.head_dim;
          for (int32_t i = 0; i < args.shape.head_dim; ++i) line[i] += 0.0f * value[i];
        }
      }
    }
  }

  const HostViolation violation_;
};

}  // namespace tandem::test
