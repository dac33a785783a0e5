// Attention for items of up to 64 (row, head) pairs: prompts. Each of a block's four warps has 16
// lines, all keys and all columns; K and V are shared.
#pragma once

#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/programmatic.cuh"

namespace tandem::kernels::cuda::attention {

// Shared memory lets two blocks run on a multiprocessor up to head_dim 128; 256 takes the 163 KiB
// that a block may have on every device from sm_80.
template <KvFormat kFormat, int kHeadDim>
struct WideShape {
  using Stream = KvStream<kFormat, kHeadDim, kHeadDim <= 128 ? 3 : 2>;
  static constexpr int kQElements = 64 * Stream::kStride;
  static constexpr int kMergedBytes = 64 * kHeadDim * 4;
  static constexpr int kBytes = Stream::kRingBytes + 2 * kQElements + kMergedBytes;
  static_assert(kBytes <= 163 * 1024);
};

template <KvFormat kFormat, int kHeadDim>
__device__ void WideItem(const Params& params, const Item& item, int32_t kv_head, uint8_t* shared) {
  using Shape = WideShape<kFormat, kHeadDim>;
  using Stream = typename Shape::Stream;
  constexpr int kStride = Stream::kStride;
  constexpr int kColumns = kHeadDim / 8;  // blocks of 8 columns
  constexpr int kKeys = kTileKeys / 8;    // blocks of 8 keys
  __nv_bfloat16* ring = reinterpret_cast<__nv_bfloat16*>(shared);
  __nv_bfloat16* q = ring + Stream::kRingBytes / 2;
  // Values of the merged splits, between splits: [block of columns][thread].
  float4* merged_out = reinterpret_cast<float4*>(q + Shape::kQElements) + threadIdx.x;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int g = lane / 4;
  const int i4 = lane % 4;
  const int32_t first_head = kv_head * params.group;

  const KeyRange range = KeysOf(params, item);
  const int32_t last_tile = range.last < 0 ? -1 : range.last / kTileKeys;
  int32_t tile = range.first / kTileKeys;
  __syncthreads();  // the item before this one is done with shared memory
  Stream stream(params, range, kv_head, tile, 1, ring);
  LoadQueries<kHeadDim, kStride, 64, kThreads>(params, item, first_head, params.group, q);
  const __nv_bfloat16* own_q = q + 16 * warp * kStride;
  const Line line[2] = {LineAt(params, item, first_head, params.group, 16 * warp + g),
                        LineAt(params, item, first_head, params.group, 16 * warp + g + 8)};

  RowState split[2];
  RowState merged[2];
  float out[kColumns][4] = {};
  bool is_first_split = true;
  for (; tile <= last_tile; ++tile) {
    const __nv_bfloat16* keys = stream.Next();
    float score[kKeys][4] = {};
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k) {
      uint32_t a[4], b[4];
      LoadA(a, own_q, kStride, k, lane);
#pragma unroll
      for (int j = 0; j < kKeys; j += 2) {
        LoadKeys(b, keys + 8 * j * kStride, kStride, k, lane);
        Mma(score[j], a, b[0], b[1]);
        Mma(score[j + 1], a, b[2], b[3]);
      }
    }

    const int32_t first_key = tile * kTileKeys + 2 * i4;
    float weight[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float largest = -INFINITY;
#pragma unroll
      for (int j = 0; j < kKeys; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& s = score[j][2 * r + e];
          s = MaskedScore(params, line[r], first_key + 8 * j + e, s);
          largest = fmaxf(largest, s);
        }
      }
      weight[r] = Advance(split[r], MaxLanes(largest), params.c);
      const float shift = Shift(split[r].maximum);
      float pair[kKeys];
#pragma unroll
      for (int j = 0; j < kKeys; ++j) {
        float& p0 = score[j][2 * r];
        float& p1 = score[j][2 * r + 1];
        p0 = Probability(p0, params.c, shift);
        p1 = Probability(p1, params.c, shift);
        pair[j] = __fadd_rn(p0, p1);
      }
      split[r].sum = __fmaf_rn(split[r].sum, weight[r], AddPairs(pair));
    }
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) out[i][e] = __fmul_rn(out[i][e], weight[e / 2]);
    }

    const __nv_bfloat16* values = stream.Next();
#pragma unroll
    for (int k = 0; k < kTileKeys / 16; ++k) {
      const float* low = score[2 * k];
      const float* high = score[2 * k + 1];
      const uint32_t a[4] = {PackBf16(low[0], low[1]), PackBf16(low[2], low[3]),
                             PackBf16(high[0], high[1]), PackBf16(high[2], high[3])};
#pragma unroll
      for (int i = 0; i < kColumns; i += 2) {
        uint32_t b[4];
        LoadValues(b, values, kStride, k, 8 * i, lane);
        Mma(out[i], a, b[0], b[1]);
        Mma(out[i + 1], a, b[2], b[3]);
      }
    }

    if (!EndsSplit(tile, last_tile)) continue;
    MergeWeights weights[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      weights[r] = Merge(merged[r], split[r].maximum, AddLanes(split[r].sum));
      split[r] = RowState{};
    }
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const float4 before = is_first_split ? float4{} : merged_out[i * kThreads];
      const float4 after = {
          MergeValue(before.x, out[i][0], weights[0]), MergeValue(before.y, out[i][1], weights[0]),
          MergeValue(before.z, out[i][2], weights[1]), MergeValue(before.w, out[i][3], weights[1])};
      merged_out[i * kThreads] = after;
#pragma unroll
      for (int e = 0; e < 4; ++e) out[i][e] = 0.0f;
    }
    is_first_split = false;
  }

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (line[r].row_head < 0) continue;
    const float inverse = Inverse(merged[r].sum);
    __nv_bfloat16* to = params.out + line[r].row_head * kHeadDim + 2 * i4;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const float4 value = is_first_split ? float4{} : merged_out[i * kThreads];
      *reinterpret_cast<__nv_bfloat162*>(to + 8 * i) =
          r == 0 ? Result(value.x, value.y, inverse) : Result(value.z, value.w, inverse);
    }
  }
}

// Grid: x items, y kv heads. Later items of a prompt see more keys, so they go first.
template <KvFormat kFormat, int kHeadDim>
__global__ void __launch_bounds__(kThreads) WideKernel(const __grid_constant__ Params params) {
  extern __shared__ __align__(128) uint8_t shared[];
  BeginOverlapping();
  const int32_t count = params.plan.counts[1];
  for (int32_t i = count - 1 - static_cast<int32_t>(blockIdx.x); i >= 0;
       i -= static_cast<int32_t>(gridDim.x)) {
    WideItem<kFormat, kHeadDim>(params, params.plan.wide[i], blockIdx.y, shared);
  }
}

}  // namespace tandem::kernels::cuda::attention
