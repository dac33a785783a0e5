// Attention for items of up to 16 (row, head) pairs: decode steps and short drafts. A block's four
// warps share one tile of 16 lines: for the scores each has 16 of the 64 keys, for the values every
// fourth 16 columns of the head.
#pragma once

#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/programmatic.cuh"

namespace tandem::kernels::cuda::attention {

template <KvFormat kFormat, int kHeadDim>
struct NarrowShape {
  // The fewest, for the most blocks at once: measured, that hides more than a deeper ring does.
  static constexpr int kSlots = 2;
  using Stream = KvStream<kFormat, kHeadDim, kSlots>;
  static constexpr int kProbStride = kTileKeys + 8;
  static constexpr int kQElements = 16 * Stream::kStride;
  static constexpr int kProbElements = 16 * kProbStride;
  static constexpr int kBytes = Stream::kRingBytes + 2 * (kQElements + kProbElements) +
                                4 * (4 * 16 + 4 * 16 * 4);  // of shared memory
};

// One item, for heads [first_head, first_head + num_heads) of kv_head, num_heads <= 16. Without
// split buffers it walks all splits; with them it takes the splits first_split,
// first_split + split_stride, .. counted from the item's first.
template <KvFormat kFormat, int kHeadDim>
__device__ void NarrowItem(const Params& params, const Item& item, int32_t kv_head,
                           int32_t first_head, int32_t num_heads, int32_t first_split,
                           int32_t split_stride, uint8_t* shared) {
  using Shape = NarrowShape<kFormat, kHeadDim>;
  using Stream = typename Shape::Stream;
  constexpr int kStride = Stream::kStride;
  constexpr int kProbStride = Shape::kProbStride;
  constexpr int kBlocks = kHeadDim / 16;    // of 16 columns
  constexpr int kEach = (kBlocks + 3) / 4;  // blocks of a warp: warp, warp + 4, ..
  __nv_bfloat16* ring = reinterpret_cast<__nv_bfloat16*>(shared);
  __nv_bfloat16* q = ring + Stream::kRingBytes / 2;
  __nv_bfloat16* prob = q + Shape::kQElements;
  float* tile_max = reinterpret_cast<float*>(prob + Shape::kProbElements);  // [warp][line]
  float* tile_sum = tile_max + 4 * 16;                                      // [warp][line][lane]
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int g = lane / 4;
  const int i4 = lane % 4;

  const KeyRange range = KeysOf(params, item);
  const int32_t last_tile = range.last < 0 ? -1 : range.last / kTileKeys;
  int32_t tile = range.first / kTileKeys;
  if (first_split > 0) tile = (tile / kSplitTiles + first_split) * kSplitTiles;
  if (params.split_states != nullptr && tile > last_tile) {
    BeginOverlapping();
    return;
  }

  __syncthreads();  // the item before this one is done with shared memory
  // q and the step's own keys are new; older keys come while the kernel before ends.
  int32_t ahead = tile;  // the last tile of which the stream begins to bring something
  for (int i = 0; i < (Shape::kSlots - 2) / 2; ++i) ahead = NextTile(ahead, split_stride);
  if (range.slot < 0 || (ahead + 1) * kTileKeys > FirstKeyOfStep(params, item, range.slot)) {
    BeginOverlapping();
  }
  Stream stream(params, range, kv_head, tile, split_stride, ring);
  BeginOverlapping();
  LoadQueries<kHeadDim, kStride, 16, kThreads>(params, item, first_head, num_heads, q);
  const Line line[2] = {LineAt(params, item, first_head, num_heads, g),
                        LineAt(params, item, first_head, num_heads, g + 8)};

  RowState split[2];
  RowState merged[2];
  float out[kEach][8] = {};
  float merged_out[kEach][8] = {};
  for (; tile <= last_tile; tile = NextTile(tile, split_stride)) {
    // Scores of this warp's 16 keys, and the largest of each line over all warps.
    const __nv_bfloat16* keys = stream.Next() + 16 * warp * kStride;
    float score[2][4] = {};
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) {
      uint32_t a[4], b[4];
      LoadA(a, q, kStride, k, lane);
      LoadKeys(b, keys, kStride, k, lane);
      Mma(score[0], a, b[0], b[1]);
      Mma(score[1], a, b[2], b[3]);
    }
    const int32_t first_key = tile * kTileKeys + 16 * warp + 2 * i4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float largest = -INFINITY;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& s = score[j][2 * r + e];
          s = MaskedScore(params, line[r], first_key + 8 * j + e, s);
          largest = fmaxf(largest, s);
        }
      }
      largest = MaxLanes(largest);
      if (i4 == 0) tile_max[16 * warp + g + 8 * r] = largest;
    }
    __syncthreads();

    // Every warp keeps every line's state.
    float weight[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float* max = tile_max + g + 8 * r;
      const float largest = fmaxf(fmaxf(max[0], max[16]), fmaxf(max[32], max[48]));
      weight[r] = Advance(split[r], largest, params.c);
      const float shift = Shift(split[r].maximum);
      float pair[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float p0 = Probability(score[j][2 * r], params.c, shift);
        const float p1 = Probability(score[j][2 * r + 1], params.c, shift);
        pair[j] = __fadd_rn(p0, p1);
        *reinterpret_cast<uint32_t*>(prob + (g + 8 * r) * kProbStride + 16 * warp + 8 * j +
                                     2 * i4) = PackBf16(p0, p1);
      }
      tile_sum[(16 * warp + g + 8 * r) * 4 + i4] = __fadd_rn(pair[0], pair[1]);
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int e = 0; e < 8; ++e) out[i][e] = __fmul_rn(out[i][e], weight[e / 2 % 2]);
    }
    const __nv_bfloat16* values = stream.Next();  // its barrier also shows prob and tile_sum
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float* sum = tile_sum + (g + 8 * r) * 4 + i4;
      split[r].sum =
          __fmaf_rn(split[r].sum, weight[r],
                    __fadd_rn(__fadd_rn(sum[0], sum[64]), __fadd_rn(sum[128], sum[192])));
    }
#pragma unroll
    for (int k = 0; k < kTileKeys / 16; ++k) {
      uint32_t a[4], b[4];
      LoadA(a, prob, kProbStride, k, lane);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        if (kBlocks % 4 != 0 && warp + 4 * i >= kBlocks) continue;
        LoadValues(b, values, kStride, k, 16 * (warp + 4 * i), lane);
        Mma(out[i], a, b[0], b[1]);
        Mma(out[i] + 4, a, b[2], b[3]);
      }
    }

    if (!EndsSplit(tile, last_tile)) continue;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float sum = AddLanes(split[r].sum);
      if (params.split_states != nullptr) {
        if (line[r].row_head >= 0) {
          const int64_t index = line[r].row_head * params.max_splits + tile / kSplitTiles;
          if (threadIdx.x % 4 == 0 && warp == 0) {
            params.split_states[index] = {split[r].maximum, sum};
          }
#pragma unroll
          for (int i = 0; i < 2 * kEach; ++i) {
            const int block = warp + 4 * (i / 2);
            if (kBlocks % 4 != 0 && block >= kBlocks) continue;
            const float* from = out[i / 2] + 4 * (i % 2) + 2 * r;
            *reinterpret_cast<float2*>(params.split_values + index * kHeadDim + 16 * block +
                                       8 * (i % 2) + 2 * i4) = {from[0], from[1]};
          }
        }
      } else {
        const MergeWeights weights = Merge(merged[r], split[r].maximum, sum);
#pragma unroll
        for (int i = 0; i < 4 * kEach; ++i) {
          const int e = i % 4 / 2 * 4 + 2 * r + i % 2;
          merged_out[i / 4][e] = MergeValue(merged_out[i / 4][e], out[i / 4][e], weights);
        }
      }
      split[r] = RowState{};
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int e = 0; e < 8; ++e) out[i][e] = 0.0f;
    }
  }
  if (params.split_states != nullptr) return;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (line[r].row_head < 0) continue;
    const float inverse = Inverse(merged[r].sum);
#pragma unroll
    for (int i = 0; i < 2 * kEach; ++i) {
      const int block = warp + 4 * (i / 2);
      if (kBlocks % 4 != 0 && block >= kBlocks) continue;
      const float* from = merged_out[i / 2] + 4 * (i % 2) + 2 * r;
      *reinterpret_cast<__nv_bfloat162*>(params.out + line[r].row_head * kHeadDim + 16 * block +
                                         8 * (i % 2) + 2 * i4) = Result(from[0], from[1], inverse);
    }
  }
}

// Grid: x items (rows where there is no plan), y kv heads times HeadTiles, z splits where they have
// buffers, else 1.
template <KvFormat kFormat, int kHeadDim>
__global__ void __launch_bounds__(kThreads) NarrowKernel(const __grid_constant__ Params params) {
  extern __shared__ __align__(128) uint8_t shared[];
  const int32_t head_tiles = HeadTiles(params.group);
  const int32_t kv_head = blockIdx.y / head_tiles;
  const int32_t skipped = blockIdx.y % head_tiles * 16;
  const int32_t first_head = kv_head * params.group + skipped;
  const int32_t num_heads = min(16, params.group - skipped);
  if (params.plan.counts == nullptr) {
    Item item;
    if (!ItemAt(params.rows, blockIdx.x, NarrowRows(params.group), &item)) {
      BeginOverlapping();
      return;
    }
    NarrowItem<kFormat, kHeadDim>(params, item, kv_head, first_head, num_heads, blockIdx.z,
                                  gridDim.z, shared);
    return;
  }
  BeginOverlapping();
  for (int32_t i = blockIdx.x; i < params.plan.counts[0]; i += gridDim.x) {
    NarrowItem<kFormat, kHeadDim>(params, params.plan.narrow[i], kv_head, first_head, num_heads, 0,
                                  1, shared);
  }
}

}  // namespace tandem::kernels::cuda::attention
