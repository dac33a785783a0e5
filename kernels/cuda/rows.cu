// Work on single rows between the products: embedding, norms, gates, caps.
//
// Contraction is off; a fused multiply-add stands only where __fmaf_rn is written.
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#include "kernels/check.h"
#include "kernels/cuda/gate.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/programmatic.cuh"

namespace tandem::kernels::cuda {
namespace {

constexpr int32_t kWarp = 32;
constexpr int32_t kThreads = 256;
constexpr int32_t kWarps = kThreads / kWarp;
constexpr uint32_t kAllLanes = 0xFFFFFFFFu;

int32_t NumBlocks(int64_t count, int64_t per_block) {
  return static_cast<int32_t>((count + per_block - 1) / per_block);
}

__global__ void PrepareRowsKernel(StepRows rows, SlotState slots) {
  BeginOverlapping();
  const int32_t i = static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= rows.num_rows) return;
  int32_t token = kIdleToken;
  int32_t row_position = -1;
  const int32_t slot = rows.slot[i];
  if (slot >= 0) {
    const int32_t position = rows.position[i] >= 0 ? rows.position[i] : slots.num_tokens[slot] - 1;
    if (position >= 0 && position < slots.context_length) {
      row_position = position;
      token = slots.tokens[int64_t{slot} * slots.context_length + position];
    }
  }
  rows.token[i] = token;
  rows.row_position[i] = row_position;
}

__global__ void __launch_bounds__(kThreads)
    EmbedKernel(const int32_t* tokens, const __nv_bfloat16* table, int32_t width, float scale,
                float* residual) {
  BeginOverlapping();
  const int32_t token = tokens[blockIdx.x];
  const __nv_bfloat16* from = table + int64_t{token} * width;
  float* line = residual + int64_t{blockIdx.x} * width;
  for (int32_t j = static_cast<int32_t>(threadIdx.x); j < width; j += kThreads) {
    line[j] = token == kIdleToken ? 0.0f : __bfloat162float(from[j]) * scale;
  }
}

// Four neighbouring values of a row; those past its end are 0.
struct Quad {
  float value[4];
};

// kWhole: the width is a multiple of 4, hence every quad is whole and aligned.
template <bool kWhole>
__device__ Quad LoadQuad(const float* row, int32_t first, int32_t width) {
  if constexpr (kWhole) {
    const float4 v = *reinterpret_cast<const float4*>(row + first);
    return {{v.x, v.y, v.z, v.w}};
  } else {
    Quad quad;
    for (int i = 0; i < 4; ++i) quad.value[i] = first + i < width ? row[first + i] : 0.0f;
    return quad;
  }
}

template <bool kWhole>
__device__ void StoreQuad(const Quad& quad, int32_t first, int32_t width, float* row) {
  if constexpr (kWhole) {
    *reinterpret_cast<float4*>(row + first) =
        make_float4(quad.value[0], quad.value[1], quad.value[2], quad.value[3]);
  } else {
    for (int i = 0; i < 4; ++i) {
      if (first + i < width) row[first + i] = quad.value[i];
    }
  }
}

template <bool kWhole>
__device__ void StoreQuad(const Quad& quad, int32_t first, int32_t width, __nv_bfloat16* row) {
  if constexpr (kWhole) {
    struct alignas(8) Rounded {
      __nv_bfloat16 value[4];
    };
    Rounded rounded;
    for (int i = 0; i < 4; ++i) rounded.value[i] = __float2bfloat16_rn(quad.value[i]);
    *reinterpret_cast<Rounded*>(row + first) = rounded;
  } else {
    for (int i = 0; i < 4; ++i) {
      if (first + i < width) row[first + i] = __float2bfloat16_rn(quad.value[i]);
    }
  }
}

// 1 / sqrt(mean of squares + epsilon), for all threads of the block, from each thread's sum. The
// order of the sum: quad q goes to thread q mod kThreads, which adds its values in ascending order
// with fused multiply-adds; threads are added in a butterfly within their warp, warps in ascending
// order.
__device__ float InverseOf(float sum, const Norm& norm) {
  __shared__ float warp_sums[kWarps];
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    sum = sum + __shfl_xor_sync(kAllLanes, sum, offset);
  }
  if (thread % kWarp == 0) warp_sums[thread / kWarp] = sum;
  __syncthreads();
  sum = warp_sums[0];
  for (int warp = 1; warp < kWarps; ++warp) sum = sum + warp_sums[warp];
  const float mean = sum / static_cast<float>(norm.width);
  return 1.0f / sqrtf(mean + norm.epsilon);
}

template <bool kWhole>
__device__ float InverseNorm(const float* x, const Norm& norm) {
  float sum = 0.0f;
  for (int32_t first = 4 * static_cast<int32_t>(threadIdx.x); first < norm.width;
       first += 4 * kThreads) {
    const Quad quad = LoadQuad<kWhole>(x, first, norm.width);
    for (int i = 0; i < 4; ++i) sum = __fmaf_rn(quad.value[i], quad.value[i], sum);
  }
  return InverseOf(sum, norm);
}

// value * inverse * (offset + weight) in the roundings of norm.order.
__device__ __forceinline__ float Normed(float value, float inverse, float weight,
                                        const Norm& norm) {
  float normed = value * inverse;
  if (norm.order == NormOrder::kRoundThenScale) {
    normed = __bfloat162float(__float2bfloat16_rn(normed));
  }
  return normed * (norm.offset + weight);
}

// Any width.
__global__ void __launch_bounds__(kThreads)
    NormAnyKernel(const float* x, const int32_t* index, Norm norm, __nv_bfloat16* out) {
  BeginOverlapping();
  const int32_t row = index != nullptr ? index[blockIdx.x] : static_cast<int32_t>(blockIdx.x);
  const float* from = x + int64_t{row} * norm.width;
  __nv_bfloat16* to = out + int64_t{blockIdx.x} * norm.width;
  const float inverse = InverseNorm<false>(from, norm);
  for (int32_t first = 4 * static_cast<int32_t>(threadIdx.x); first < norm.width;
       first += 4 * kThreads) {
    Quad quad = LoadQuad<false>(from, first, norm.width);
    const Quad weight = LoadQuad<false>(norm.weight, first, norm.width);
    for (int i = 0; i < 4; ++i) {
      quad.value[i] = Normed(quad.value[i], inverse, weight.value[i], norm);
    }
    StoreQuad<false>(quad, first, norm.width, to);
  }
}

// Widths that are a multiple of 4 and at most 4 * kThreads * kQuads: the row stays in registers,
// and its weights are there before the kernels before this one end.
template <int kQuads>
__global__ void __launch_bounds__(kThreads)
    NormKernel(const float* x, const int32_t* index, Norm norm, __nv_bfloat16* out) {
  Quad weights[kQuads];
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    const int32_t first = 4 * (static_cast<int32_t>(threadIdx.x) + q * kThreads);
    weights[q] = first < norm.width ? LoadQuad<true>(norm.weight, first, norm.width) : Quad{};
  }
  BeginOverlapping();
  const int32_t row = index != nullptr ? index[blockIdx.x] : static_cast<int32_t>(blockIdx.x);
  const float* from = x + int64_t{row} * norm.width;
  __nv_bfloat16* to = out + int64_t{blockIdx.x} * norm.width;
  Quad quads[kQuads];
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    const int32_t first = 4 * (static_cast<int32_t>(threadIdx.x) + q * kThreads);
    quads[q] = first < norm.width ? LoadQuad<true>(from, first, norm.width) : Quad{};
  }
  float sum = 0.0f;  // zeros past the end change nothing: a sum of squares is never -0
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    for (int i = 0; i < 4; ++i) {
      sum = __fmaf_rn(quads[q].value[i], quads[q].value[i], sum);
    }
  }
  const float inverse = InverseOf(sum, norm);
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    const int32_t first = 4 * (static_cast<int32_t>(threadIdx.x) + q * kThreads);
    if (first >= norm.width) break;
    for (int i = 0; i < 4; ++i) {
      quads[q].value[i] = Normed(quads[q].value[i], inverse, weights[q].value[i], norm);
    }
    StoreQuad<true>(quads[q], first, norm.width, to);
  }
}

template <bool kWhole>
__global__ void __launch_bounds__(kThreads)
    PostNormAddKernel(const float* x, Norm norm, float* residual) {
  BeginOverlapping();
  const float* from = x + int64_t{blockIdx.x} * norm.width;
  float* line = residual + int64_t{blockIdx.x} * norm.width;
  const float inverse = InverseNorm<kWhole>(from, norm);
  for (int32_t first = 4 * static_cast<int32_t>(threadIdx.x); first < norm.width;
       first += 4 * kThreads) {
    const Quad quad = LoadQuad<kWhole>(from, first, norm.width);
    const Quad weight = LoadQuad<kWhole>(norm.weight, first, norm.width);
    Quad sum = LoadQuad<kWhole>(line, first, norm.width);
    for (int i = 0; i < 4; ++i) {
      const float normed = quad.value[i] * inverse;
      sum.value[i] = sum.value[i] + normed * (norm.offset + weight.value[i]);
    }
    StoreQuad<kWhole>(sum, first, norm.width, line);
  }
}

// kVector values (8 of them are 16 bytes) for each thread. REQUIRES width % kVector == 0.
template <GateKind kKind, int kVector>
__global__ void __launch_bounds__(kThreads)
    GateKernel(const __nv_bfloat16* gate_up, int32_t width, __nv_bfloat16* out) {
  struct alignas(kVector * sizeof(__nv_bfloat16)) Vector {
    __nv_bfloat16 value[kVector];
  };
  BeginOverlapping();
  const int32_t column = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x) * kVector;
  if (column >= width) return;
  const __nv_bfloat16* line = gate_up + int64_t{blockIdx.y} * 2 * width + column;
  const Vector gate = *reinterpret_cast<const Vector*>(line);
  const Vector up = *reinterpret_cast<const Vector*>(line + width);
  Vector gated;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    gated.value[i] = Gated(kKind, __bfloat162float(gate.value[i]), __bfloat162float(up.value[i]));
  }
  *reinterpret_cast<Vector*>(out + int64_t{blockIdx.y} * width + column) = gated;
}

template <GateKind kKind>
void LaunchGateOf(const __nv_bfloat16* gate_up, int32_t n, int32_t width, __nv_bfloat16* out,
                  cudaStream_t stream) {
  if (width % 8 == 0) {
    const dim3 grid(NumBlocks(width, 8 * kThreads), n);
    LaunchOverlapping(GateKernel<kKind, 8>, grid, dim3(kThreads), 0, stream, gate_up, width, out);
  } else {
    const dim3 grid(NumBlocks(width, kThreads), n);
    LaunchOverlapping(GateKernel<kKind, 1>, grid, dim3(kThreads), 0, stream, gate_up, width, out);
  }
}

__global__ void __launch_bounds__(kThreads)
    ScaleCapKernel(float* logits, int64_t count, float scale, float cap) {
  BeginOverlapping();
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * kThreads) {
    const float x = logits[i] * scale;
    logits[i] = cap > 0.0f ? cap * tanhf(x / cap) : x;
  }
}

}  // namespace

void LaunchPrepareRows(const StepRows& rows, const SlotState& slots, cudaStream_t stream) {
  if (rows.num_rows == 0) return;
  LaunchOverlapping(PrepareRowsKernel, dim3(NumBlocks(rows.num_rows, kThreads)), dim3(kThreads), 0,
                    stream, rows, slots);
  Settle(stream);
}

void LaunchEmbed(const StepRows& rows, const __nv_bfloat16* table, int32_t width, float scale,
                 float* residual, cudaStream_t stream) {
  if (rows.num_rows == 0) return;
  LaunchOverlapping(EmbedKernel, dim3(rows.num_rows), dim3(kThreads), 0, stream, rows.token, table,
                    width, scale, residual);
}

void LaunchNorm(const float* x, const int32_t* index, int32_t n, const Norm& norm,
                __nv_bfloat16* out, cudaStream_t stream) {
  KERNELS_REQUIRE(norm.width > 0 && norm.epsilon > 0.0f, "width %d, epsilon %g", norm.width,
                  norm.epsilon);
  if (n == 0) return;
  auto* kernel = NormAnyKernel;
  if (norm.width % 4 == 0) {
    constexpr int32_t kOfQuad = 4 * kThreads;
    if (norm.width <= kOfQuad) {
      kernel = NormKernel<1>;
    } else if (norm.width <= 2 * kOfQuad) {
      kernel = NormKernel<2>;
    } else if (norm.width <= 4 * kOfQuad) {
      kernel = NormKernel<4>;
    } else if (norm.width <= 8 * kOfQuad) {
      kernel = NormKernel<8>;
    }
  }
  LaunchOverlapping(kernel, dim3(n), dim3(kThreads), 0, stream, x, index, norm, out);
}

void LaunchPostNormAdd(const float* x, int32_t n, const Norm& norm, float* residual,
                       cudaStream_t stream) {
  KERNELS_REQUIRE(norm.width > 0 && norm.epsilon > 0.0f, "width %d, epsilon %g", norm.width,
                  norm.epsilon);
  if (n == 0) return;
  if (norm.width % 4 == 0) {
    LaunchOverlapping(PostNormAddKernel<true>, dim3(n), dim3(kThreads), 0, stream, x, norm,
                      residual);
  } else {
    LaunchOverlapping(PostNormAddKernel<false>, dim3(n), dim3(kThreads), 0, stream, x, norm,
                      residual);
  }
}

void LaunchGate(const __nv_bfloat16* gate_up, int32_t n, int32_t width, GateKind kind,
                __nv_bfloat16* out, cudaStream_t stream) {
  if (n == 0) return;
  switch (kind) {
    case GateKind::kSilu:
      return LaunchGateOf<GateKind::kSilu>(gate_up, n, width, out, stream);
    case GateKind::kGeluTanh:
      return LaunchGateOf<GateKind::kGeluTanh>(gate_up, n, width, out, stream);
    case GateKind::kGeluErf:
      return LaunchGateOf<GateKind::kGeluErf>(gate_up, n, width, out, stream);
  }
}

void LaunchScaleCap(float* logits, int64_t count, float scale, float cap, cudaStream_t stream) {
  if (count == 0 || (scale == 1.0f && cap == 0.0f)) return;
  constexpr int64_t kMaxBlocks = 4096;
  const int64_t blocks = std::min<int64_t>((count + kThreads - 1) / kThreads, kMaxBlocks);
  LaunchOverlapping(ScaleCapKernel, dim3(static_cast<int32_t>(blocks)), dim3(kThreads), 0, stream,
                    logits, count, scale, cap);
}

}  // namespace tandem::kernels::cuda
