// Attention for few items of up to 16 (row, head) pairs: one block for each split of an item, which
// has all keys of the split on their way at once. Each of its eight warps computes the scores of
// one tile; the running maximum of a tile follows from the largest scores of the tiles before it,
// so that no warp waits for another's values; then each warp walks all tiles for 16 columns.
#pragma once

#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/programmatic.cuh"

namespace tandem::kernels::cuda::attention {

inline constexpr int kSplitWarps = kSplitTiles;
inline constexpr int kSplitThreads = 32 * kSplitWarps;

template <int kHeadDim>
struct SplitShape {
  static constexpr int kStride = kHeadDim + 8;  // as KvStream's
  static constexpr int kMatrixElements = kTileKeys * kStride;
  static constexpr int kProbStride = kSplitKeys + 8;
  static constexpr int kQElements = 16 * kStride;
  static constexpr int kProbElements = 16 * kProbStride;
  static constexpr int kTileFloats = kSplitTiles * 16;  // of maxima; four times as many sums
  static constexpr int kFixedBytes = 2 * (kQElements + kProbElements) + 4 * 5 * kTileFloats;
  static_assert(2 * kQElements >= 4 * kTileFloats);
  // K of every tile, and V of the first: V of a later tile takes the place of its K.
  static constexpr int kMostBytes = 227 * 1024;
  static constexpr int kMatrices =
      (kMostBytes - kFixedBytes) / (2 * kMatrixElements) < 2 * kSplitTiles
          ? (kMostBytes - kFixedBytes) / (2 * kMatrixElements)
          : 2 * kSplitTiles;
  static constexpr int kOwnPlaces = kMatrices - kSplitTiles;  // of V
  static constexpr int kBytes = 2 * kMatrices * kMatrixElements + kFixedBytes;
};

// Begins to copy a matrix of 64 keys; all of them where the page is not held, and those outside
// the range, come as zeros. One warp.
template <int kHeadDim>
__device__ __forceinline__ void CopyMatrix(const __nv_bfloat16* from, bool is_held,
                                           int32_t first_key, const KeyRange& range, int lane,
                                           __nv_bfloat16* to) {
  constexpr int kPerRow = kHeadDim / 8;  // pieces of 16 bytes
  constexpr int kStride = SplitShape<kHeadDim>::kStride;
  const int32_t low = range.first - first_key;
  const int32_t high = range.last - first_key;
#pragma unroll 8
  for (int i = 0; i < kTileKeys * kPerRow / 32; ++i) {
    const int piece = lane + 32 * i;
    const int row = piece / kPerRow;
    const int column = piece % kPerRow * 8;
    const uint32_t address =
        static_cast<uint32_t>(__cvta_generic_to_shared(to + row * kStride + column));
    const int bytes = is_held && row >= low && row <= high ? 16 : 0;  // the rest becomes zero
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address),
                 "l"(from + row * kHeadDim + column), "r"(bytes)
                 : "memory");
  }
}

// Grid: x rows, y kv heads times HeadTiles, z splits counted from the item's first.
template <int kHeadDim>
__global__ void __launch_bounds__(kSplitThreads, 1)
    SplitKernel(const __grid_constant__ Params params) {
  using Shape = SplitShape<kHeadDim>;
  constexpr int kStride = Shape::kStride;
  constexpr int kProbStride = Shape::kProbStride;
  constexpr int kBlocks = kHeadDim / 16;  // of 16 columns; warp i has block i
  static_assert(kBlocks <= kSplitWarps);
  extern __shared__ __align__(128) uint8_t shared[];
  __nv_bfloat16* const matrices = reinterpret_cast<__nv_bfloat16*>(shared);
  __nv_bfloat16* const q = matrices + Shape::kMatrices * Shape::kMatrixElements;
  __nv_bfloat16* const prob = q + Shape::kQElements;  // [line][key of the split]
  float* const tile_max = reinterpret_cast<float*>(prob + Shape::kProbElements);  // [tile][line]
  float* const tile_sum = tile_max + Shape::kTileFloats;  // [tile][line][lane]
  // [tile][line], in the place of q once the scores are there.
  float* const tile_weight = reinterpret_cast<float*>(q);
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int g = lane / 4;
  const int i4 = lane % 4;
  const int32_t head_tiles = HeadTiles(params.group);
  const int32_t kv_head = blockIdx.y / head_tiles;
  const int32_t skipped = blockIdx.y % head_tiles * 16;
  const int32_t first_head = kv_head * params.group + skipped;
  const int32_t num_heads = min(16, params.group - skipped);

  Item item;
  const bool is_item = ItemAt(params.rows, blockIdx.x, NarrowRows(params.group), &item);
  const KeyRange range = is_item ? KeysOf(params, item) : KeyRange{-1, 0, -1};
  const int32_t split = range.first / kSplitKeys + static_cast<int32_t>(blockIdx.z);
  const int32_t first_tile = split * kSplitTiles;
  if (range.last < 0 || first_tile > range.last / kTileKeys) {
    BeginOverlapping();
    return;
  }
  const int32_t tile = first_tile + warp;
  const int32_t first_key = tile * kTileKeys;
  const bool is_seen = first_key <= range.last && first_key + kTileKeys > range.first;
  const int32_t num_tiles = min(kSplitTiles, range.last / kTileKeys - first_tile + 1);

  __nv_bfloat16* const keys = matrices + warp * Shape::kMatrixElements;
  const __nv_bfloat16* values_from = nullptr;
  bool is_held = false;
  if (is_seen) {
    const int32_t page =
        tile < params.kv.max_pages_per_slot
            ? params.kv.page_table[int64_t{range.slot} * params.kv.max_pages_per_slot + tile]
            : -1;
    is_held = page >= 0 && page < params.kv.num_pages;
    // As KvPool::ElementOffset has it.
    const int64_t block = (int64_t{params.layer} * params.kv.num_pages + (is_held ? page : 0)) * 2 *
                              params.kv.num_kv_heads +
                          kv_head;
    const __nv_bfloat16* keys_from =
        static_cast<const __nv_bfloat16*>(params.kv.data) + block * kTileKeys * kHeadDim;
    values_from = keys_from + int64_t{params.kv.num_kv_heads} * kTileKeys * kHeadDim;
    // q and the step's own keys are new; older keys come while the kernel before ends.
    if (first_key + kTileKeys > FirstKeyOfStep(params, item, range.slot)) BeginOverlapping();
    CopyMatrix<kHeadDim>(keys_from, is_held, first_key, range, lane, keys);
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
  const bool has_own_place = warp < Shape::kOwnPlaces;
  if (is_seen && has_own_place) {
    CopyMatrix<kHeadDim>(values_from, is_held, first_key, range, lane,
                         keys + kSplitTiles * Shape::kMatrixElements);
  }
  asm volatile("cp.async.commit_group;" ::: "memory");

  BeginOverlapping();
  LoadQueries<kHeadDim, kStride, 16, kSplitThreads>(params, item, first_head, num_heads, q);
  const Line line[2] = {LineAt(params, item, first_head, num_heads, g),
                        LineAt(params, item, first_head, num_heads, g + 8)};
  __syncthreads();
  asm volatile("cp.async.wait_group 1;" ::: "memory");
  __syncwarp();

  // Scores of the warp's tile. Of a tile that no row sees, every score is masked.
  constexpr int kKeys = kTileKeys / 8;
  float score[kKeys][4] = {};
  if (is_seen) {
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) {
      uint32_t a[4], b[4];
      LoadA(a, q, kStride, k, lane);
#pragma unroll
      for (int j = 0; j < kKeys; j += 2) {
        LoadKeys(b, keys + 8 * j * kStride, kStride, k, lane);
        Mma(score[j], a, b[0], b[1]);
        Mma(score[j + 1], a, b[2], b[3]);
      }
    }
    __syncwarp();  // the keys' place may be written
    if (!has_own_place) CopyMatrix<kHeadDim>(values_from, is_held, first_key, range, lane, keys);
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float largest = -INFINITY;
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& s = score[j][2 * r + e];
        s = MaskedScore(params, line[r], first_key + 8 * j + 2 * i4 + e, s);
        largest = fmaxf(largest, s);
      }
    }
    largest = MaxLanes(largest);
    if (i4 == 0) tile_max[16 * warp + g + 8 * r] = largest;
  }
  __syncthreads();

  RowState state[2];  // after the warp's tile; the last warp's is the split's
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    for (int t = 0; t < warp; ++t) {  // as Advance, for tiles whose weights others compute
      state[r].maximum = fmaxf(state[r].maximum, __fmul_rn(tile_max[16 * t + g + 8 * r], params.c));
    }
    const float weight = Advance(state[r], tile_max[16 * warp + g + 8 * r], params.c);
    const float shift = Shift(state[r].maximum);
    if (i4 == 0) tile_weight[16 * warp + g + 8 * r] = weight;
    float pair[kKeys];
#pragma unroll
    for (int j = 0; j < kKeys; ++j) {
      const float p0 = Probability(score[j][2 * r], params.c, shift);
      const float p1 = Probability(score[j][2 * r + 1], params.c, shift);
      pair[j] = __fadd_rn(p0, p1);
      *reinterpret_cast<uint32_t*>(prob + (g + 8 * r) * kProbStride + kTileKeys * warp + 8 * j +
                                   2 * i4) = PackBf16(p0, p1);
    }
    tile_sum[(16 * warp + g + 8 * r) * 4 + i4] = AddPairs(pair);
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();

  if (warp == kSplitWarps - 1) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int t = 0; t < kSplitTiles; ++t) {
        const int line_of_tile = 16 * t + g + 8 * r;
        state[r].sum =
            __fmaf_rn(state[r].sum, tile_weight[line_of_tile], tile_sum[4 * line_of_tile + i4]);
      }
      const float sum = AddLanes(state[r].sum);
      if (i4 == 0 && line[r].row_head >= 0) {
        params.split_states[line[r].row_head * params.max_splits + split] = {state[r].maximum, sum};
      }
    }
  }
  if (warp >= kBlocks) return;
  float out[8] = {};
  // A tile before the range adds nothing: it is not there, and not read.
#pragma unroll 2
  for (int t = max(0, range.first / kTileKeys - first_tile); t < num_tiles; ++t) {
    const float weight[2] = {tile_weight[16 * t + g], tile_weight[16 * t + g + 8]};
#pragma unroll
    for (int e = 0; e < 8; ++e) out[e] = __fmul_rn(out[e], weight[e / 2 % 2]);
    const __nv_bfloat16* values =
        matrices + (t < Shape::kOwnPlaces ? kSplitTiles + t : t) * Shape::kMatrixElements;
#pragma unroll
    for (int k = 0; k < kTileKeys / 16; ++k) {
      uint32_t a[4], b[4];
      LoadA(a, prob + kTileKeys * t, kProbStride, k, lane);
      LoadValues(b, values, kStride, k, 16 * warp, lane);
      Mma(out, a, b[0], b[1]);
      Mma(out + 4, a, b[2], b[3]);
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (line[r].row_head < 0) continue;
    float* to = params.split_values + (line[r].row_head * params.max_splits + split) * kHeadDim +
                16 * warp + 2 * i4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      *reinterpret_cast<float2*>(to + 8 * i) = {out[4 * i + 2 * r], out[4 * i + 2 * r + 1]};
    }
  }
}

}  // namespace tandem::kernels::cuda::attention
