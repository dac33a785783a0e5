// What the attention kernels share about rows and the cache: their parameters, which rows make one
// item of work, and the stream of K and V tiles through shared memory.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "kernels/cuda/attention_math.cuh"
#include "kernels/ops.h"
#include "kernels/tensor.h"

namespace tandem::kernels::cuda::attention {

// Adjacent rows of one slot with ascending positions, or idle rows.
struct Item {
  int32_t first_row;
  int32_t num_rows;
};

// The items of a step of many rows, made on the device.
struct Plan {
  int32_t* counts = nullptr;  // [2] narrow items, wide items
  Item* narrow = nullptr;     // items of at most NarrowRows rows
  Item* wide = nullptr;       // items of at most WideRows rows
};

struct Params {
  StepRows rows;
  const __nv_bfloat16* q = nullptr;
  __nv_bfloat16* out = nullptr;
  KvPool kv;
  int32_t layer = 0;
  int32_t num_heads = 0;
  int32_t group = 0;  // heads of a kv head
  int32_t window = 0;
  float soft_cap = 0.0f;
  float cap_factor = 0.0f;  // scale / soft_cap
  float c = 0.0f;           // see attention_math.cuh
  Plan plan;                // counts null: every block looks for its item itself
  // Where not null, splits are not merged: state and values of each, for MergeKernel.
  float2* split_states = nullptr;  // [n, num_heads, max_splits] maximum, sum
  float* split_values = nullptr;   // [n, num_heads, max_splits, head_dim]
  int32_t max_splits = 0;
};

// Rows of an item, by heads of a group: all its (row, head) pairs fit 16 or 64 lines of a tile. A
// group above 16 takes several narrow tiles of 16 heads for one row.
__host__ __device__ inline int NarrowRows(int group) { return group >= 16 ? 1 : 16 / group; }
__host__ __device__ inline int WideRows(int group) { return 64 / group; }
__host__ __device__ inline int HeadTiles(int group) { return (group + 15) / 16; }

// The row's slot, -1 if it is idle.
__device__ __forceinline__ int32_t SlotOf(const StepRows& rows, int32_t row) {
  return rows.token[row] == kIdleToken || rows.row_position[row] < 0 ? -1 : rows.slot[row];
}

// Items start at multiples of max_rows and where the slot changes. False if none starts at row.
__device__ inline bool ItemAt(const StepRows& rows, int32_t row, int32_t max_rows, Item* item) {
  const int32_t slot = SlotOf(rows, row);
  if (row % max_rows != 0 && SlotOf(rows, row - 1) == slot) return false;
  const int32_t end = min(rows.num_rows, (row / max_rows + 1) * max_rows);
  int32_t next = row + 1;
  while (next < end && SlotOf(rows, next) == slot) ++next;
  *item = {row, next - row};
  return true;
}

__device__ __forceinline__ int32_t FirstVisible(int32_t position, int32_t window) {
  return window > 0 ? max(0, position - window + 1) : 0;
}

// The keys that rows of an item see.
struct KeyRange {
  int32_t slot;   // -1: idle, no keys
  int32_t first;  // first key
  int32_t last;   // last key, -1 for none
};
__device__ inline KeyRange KeysOf(const Params& params, const Item& item) {
  const int32_t slot = SlotOf(params.rows, item.first_row);
  if (slot < 0) return {-1, 0, -1};
  return {slot, FirstVisible(params.rows.row_position[item.first_row], params.window),
          params.rows.row_position[item.first_row + item.num_rows - 1]};
}

// Keys below this one are older than the step; 0 where that is not known at a glance, since rows of
// the slot stand before the item's.
__device__ inline int32_t FirstKeyOfStep(const Params& params, const Item& item, int32_t slot) {
  if (item.first_row > 0 && SlotOf(params.rows, item.first_row - 1) == slot) return 0;
  return params.rows.row_position[item.first_row];
}

// One of the two lines of a tile that a thread works for.
struct Line {
  int64_t row_head;  // row * num_heads + head; -1 for padding
  int32_t first;     // keys [first, last] are visible
  int32_t last;      // -1: none
};
// index: of the line in the tile; lines are (row, head) pairs, num_heads from first_head for each.
__device__ inline Line LineAt(const Params& params, const Item& item, int32_t first_head,
                              int32_t num_heads, int32_t index) {
  const int32_t in_item = index / num_heads;
  if (in_item >= item.num_rows) return {-1, 0, -1};
  const int32_t row = item.first_row + in_item;
  const int32_t head = first_head + index % num_heads;
  const int32_t last = SlotOf(params.rows, row) < 0 ? -1 : params.rows.row_position[row];
  return {int64_t{row} * params.num_heads + head, FirstVisible(last, params.window), last};
}

// q of the lines [0, kLines) of an item into shared memory, padding lines as zeros. The whole block
// of kBlockThreads calls it.
template <int kHeadDim, int kStride, int kLines, int kBlockThreads>
__device__ __forceinline__ void LoadQueries(const Params& params, const Item& item,
                                            int32_t first_head, int32_t num_heads,
                                            __nv_bfloat16* q) {
  for (int piece = threadIdx.x; piece < kLines * kHeadDim / 8; piece += kBlockThreads) {
    const int index = piece / (kHeadDim / 8);
    const int column = piece % (kHeadDim / 8) * 8;
    const Line from = LineAt(params, item, first_head, num_heads, index);
    *reinterpret_cast<uint4*>(q + index * kStride + column) =
        from.row_head < 0
            ? uint4{}
            : *reinterpret_cast<const uint4*>(params.q + from.row_head * kHeadDim + column);
  }
}

// Not inlined: few models have a cap, and its code would stand at every score.
__device__ __noinline__ float CappedScore(float score, float cap_factor, float soft_cap) {
  return __fmul_rn(soft_cap, tanhf(__fmul_rn(score, cap_factor)));
}

// s of the definition.
__device__ __forceinline__ float MaskedScore(const Params& params, const Line& line, int32_t key,
                                             float score) {
  if (key < line.first || key > line.last) return -INFINITY;
  if (params.soft_cap == 0.0f) return score;
  return CappedScore(score, params.cap_factor, params.soft_cap);
}

// The tile after `tile` for a block that takes every stride-th split.
__device__ __forceinline__ int32_t NextTile(int32_t tile, int32_t stride) {
  const int32_t next = tile + 1;
  return next % kSplitTiles == 0 ? next + (stride - 1) * kSplitTiles : next;
}
__device__ __forceinline__ bool EndsSplit(int32_t tile, int32_t last_tile) {
  return tile == last_tile || tile % kSplitTiles == kSplitTiles - 1;
}

__device__ __forceinline__ __nv_bfloat162 Scaled(float2 pair, float scale) {
  return __floats2bfloat162_rn(__fmul_rn(pair.x, scale), __fmul_rn(pair.y, scale));
}

// 16 stored values of an 8-bit format times their scale, each rounded once to bf16.
template <KvFormat kFormat>
__device__ __forceinline__ void Dequantize(const uint4& stored, float scale, __nv_bfloat162* out) {
  const uint32_t words[4] = {stored.x, stored.y, stored.z, stored.w};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t pair = words[i / 2] >> (16 * (i % 2)) & 0xffffu;
    if constexpr (kFormat == KvFormat::kInt8) {
      out[i] = Scaled({static_cast<float>(static_cast<int8_t>(pair & 0xffu)),
                       static_cast<float>(static_cast<int8_t>(pair >> 8))},
                      scale);
    } else {
      const __half2_raw halves =
          __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(pair), __NV_E4M3);
      out[i] = Scaled(__half22float2(__half2(halves)), scale);
    }
  }
}

// Brings K and V of ascending tiles, K before V, into a ring of kSlots matrices [64][kStride] in
// shared memory, kSlots - 1 ahead. Tokens outside the range and pages that are not held come as
// zeros and are not read. All kThreads threads of the block take part in every call.
template <KvFormat kFormat, int kHeadDim, int kSlots>
class KvStream {
 public:
  // 16 bytes of padding keep the eight rows of an ldmatrix in different banks.
  static constexpr int kStride = kHeadDim + 8;
  static constexpr int kSlotElements = kTileKeys * kStride;
  static constexpr int kRingBytes = kSlots * kSlotElements * 2;
  static_assert(kSlots >= 2);

  // Tiles first_tile, NextTile(.., stride), .. while <= range.last / kTileKeys. The ring must not
  // be in use by any thread of the block.
  __device__ KvStream(const Params& params, const KeyRange& range, int32_t kv_head,
                      int32_t first_tile, int32_t stride, __nv_bfloat16* ring)
      : kv_(params.kv),
        range_(range),
        layer_(params.layer),
        kv_head_(kv_head),
        stride_(stride),
        ring_(ring),
        tile_(first_tile),
        last_tile_(range.last < 0 ? -1 : range.last / kTileKeys),
        page_(PageOf(first_tile)),
        next_page_(PageOf(NextTile(first_tile, stride))) {
    for (int i = 0; i < kSlots - 1; ++i) Fetch();
  }

  // The next matrix, of K and V in turn; valid until the next call.
  __device__ const __nv_bfloat16* Next() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kSlots - 2) : "memory");
    __syncthreads();
    Fetch();  // into the place of the matrix before this one, which no thread reads any more
    const __nv_bfloat16* matrix = ring_ + read_ * kSlotElements;
    read_ = read_ + 1 == kSlots ? 0 : read_ + 1;
    return matrix;
  }

 private:
  __device__ int32_t PageOf(int32_t tile) const {
    if (tile > last_tile_ || tile >= kv_.max_pages_per_slot) return -1;
    const int32_t page = kv_.page_table[int64_t{range_.slot} * kv_.max_pages_per_slot + tile];
    return page < kv_.num_pages ? page : -1;
  }

  __device__ void Fetch() {
    if (tile_ <= last_tile_) {
      Copy(ring_ + write_ * kSlotElements);
      write_ = write_ + 1 == kSlots ? 0 : write_ + 1;
      if (side_ == 1) {
        tile_ = NextTile(tile_, stride_);
        page_ = next_page_;
        next_page_ = PageOf(NextTile(tile_, stride_));
      }
      side_ ^= 1;
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  }

  __device__ void Copy(__nv_bfloat16* to) const {
    const int32_t first_key = tile_ * kTileKeys;
    // As KvPool::ElementOffset has it.
    const int64_t block =
        ((int64_t{layer_} * kv_.num_pages + max(page_, 0)) * 2 + side_) * kv_.num_kv_heads +
        kv_head_;
    const int64_t base = block * kPageTokens * kHeadDim;
    const auto is_held = [&](int row) {
      return page_ >= 0 && first_key + row >= range_.first && first_key + row <= range_.last;
    };
    constexpr int kPerRow = kHeadDim * (kFormat == KvFormat::kBF16 ? 2 : 1) / 16;  // of 16 bytes
    constexpr int kPieces = kTileKeys * kPerRow;
    constexpr int kEach = (kPieces + kThreads - 1) / kThreads;
    if constexpr (kFormat == KvFormat::kBF16) {
      const __nv_bfloat16* from = static_cast<const __nv_bfloat16*>(kv_.data) + base;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int piece = threadIdx.x + i * kThreads;
        const int row = piece / kPerRow;
        const int column = piece % kPerRow * 8;
        const uint32_t address =
            static_cast<uint32_t>(__cvta_generic_to_shared(to + row * kStride + column));
        const int bytes = is_held(row) ? 16 : 0;  // the rest of the 16 becomes zero
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address),
                     "l"(from + row * kHeadDim + column), "r"(bytes)
                     : "memory");
      }
    } else {
      const uint8_t* from = static_cast<const uint8_t*>(kv_.data) + base;
      const float* scales = kv_.scales + base / kHeadDim;
      uint4 stored[kEach];
      float scale[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int piece = threadIdx.x + i * kThreads;
        const int row = piece / kPerRow;
        const bool is_read = piece < kPieces && is_held(row);
        stored[i] = is_read ? *reinterpret_cast<const uint4*>(from + piece * 16) : uint4{};
        scale[i] = is_read ? scales[row] : 0.0f;
      }
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int piece = threadIdx.x + i * kThreads;
        if (piece >= kPieces) break;
        alignas(16) __nv_bfloat162 values[8];
        Dequantize<kFormat>(stored[i], scale[i], values);
        uint4* line =
            reinterpret_cast<uint4*>(to + piece / kPerRow * kStride + piece % kPerRow * 16);
        line[0] = reinterpret_cast<const uint4*>(values)[0];
        line[1] = reinterpret_cast<const uint4*>(values)[1];
      }
    }
  }

  const KvPool& kv_;
  const KeyRange range_;
  const int32_t layer_;
  const int32_t kv_head_;
  const int32_t stride_;
  __nv_bfloat16* const ring_;
  int32_t tile_;  // of the next Fetch, with side_
  const int32_t last_tile_;
  int32_t page_;
  int32_t next_page_;
  int32_t side_ = 0;  // 0 K, 1 V
  int write_ = 0;
  int read_ = 0;
};

}  // namespace tandem::kernels::cuda::attention
