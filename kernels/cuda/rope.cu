// From the product for q, k and v to q for attention and to the cache; and copies within the cache.
//
// Contraction is off; a fused multiply-add stands only where __fmaf_rn is written.
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "kernels/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/programmatic.cuh"

namespace tandem::kernels::cuda {
namespace {

constexpr int32_t kWarp = 32;
constexpr uint32_t kAllLanes = 0xFFFFFFFFu;
constexpr int32_t kHeadsPerBlock = 4;  // one warp each
constexpr int32_t kMaxHeadDim = 256;
constexpr int32_t kCopyThreads = 256;

// RopeArgs as the kernel takes it: norms by value, without a weight where there is none.
struct RopeTask {
  StepRows rows;
  const __nv_bfloat16* qkv;
  Norm q_norm;
  Norm k_norm;
  Rope rope;
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t head_dim;
  KvPool kv;
  int32_t layer;
  __nv_bfloat16* q;
};

// KvPool::ElementOffset in vectors: the index of a scale, and head_dim times that of an element.
__device__ int64_t VectorIndex(const KvPool& kv, int32_t layer, int32_t page, int32_t side,
                               int32_t kv_head, int32_t in_page) {
  const int64_t side_of_page = (int64_t{layer} * kv.num_pages + page) * 2 + side;
  return (side_of_page * kv.num_kv_heads + kv_head) * kPageTokens + in_page;
}

__device__ int32_t BytesPerElement(KvFormat format) {
  return format == KvFormat::kF32 ? 4 : format == KvFormat::kBF16 ? 2 : 1;
}

// In fp32, in place. Sum of squares: lane l adds the values l, l + 32, .. in ascending order with
// fused multiply-adds; lanes are added in a butterfly. One warp.
__device__ void NormHead(const Norm& norm, int32_t head_dim, float* head) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x);
  float sum = 0.0f;
  for (int32_t d = lane; d < head_dim; d += kWarp) sum = __fmaf_rn(head[d], head[d], sum);
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    sum = sum + __shfl_xor_sync(kAllLanes, sum, offset);
  }
  const float mean = sum / static_cast<float>(head_dim);
  const float inverse = 1.0f / sqrtf(mean + norm.epsilon);
  for (int32_t d = lane; d < head_dim; d += kWarp) {
    const float normed = head[d] * inverse;
    head[d] = normed * (norm.offset + norm.weight[d]);
  }
  __syncwarp();
}

// In place; each product and the sum are rounded. One warp.
__device__ void TurnHead(const Rope& rope, int32_t position, float* head) {
  const int32_t half = rope.rotary_dim / 2;
  const float* cos = rope.cos + int64_t{position} * half;
  const float* sin = rope.sin + int64_t{position} * half;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < half; i += kWarp) {
    const bool interleaved = rope.pairs == RopePairs::kInterleaved;
    float& first = head[interleaved ? 2 * i : i];
    float& second = head[interleaved ? 2 * i + 1 : i + half];
    const float a = first;
    const float b = second;
    first = a * cos[i] - b * sin[i];
    second = b * cos[i] + a * sin[i];
  }
  __syncwarp();
}

// The scale of an 8-bit vector: its largest magnitude over the format's, NaN if a value is not
// finite. One warp, all lanes get it.
__device__ float ScaleOf(KvFormat format, const float* head, int32_t head_dim) {
  constexpr uint32_t kInfinity = 0x7F800000u;
  uint32_t largest = 0;  // magnitudes are in the order of their bits, non-finite ones on top
  for (int32_t d = static_cast<int32_t>(threadIdx.x); d < head_dim; d += kWarp) {
    largest = max(largest, __float_as_uint(fabsf(head[d])));
  }
  largest = __reduce_max_sync(kAllLanes, largest);
  if (largest >= kInfinity) return __uint_as_float(0x7FC00000u);
  return __uint_as_float(largest) / (format == KvFormat::kInt8 ? 127.0f : 448.0f);
}

__device__ uint8_t EncodeByte(KvFormat format, float quotient) {
  if (format == KvFormat::kInt8) {
    // A scale that underflows is too small by a rounding, and the quotient then too large.
    const float bounded = fminf(fmaxf(quotient, -127.0f), 127.0f);
    return static_cast<uint8_t>(static_cast<int8_t>(__float2int_rn(bounded)));
  }
  return __nv_cvt_float_to_fp8(quotient, __NV_SATFINITE, __NV_E4M3);
}

// One head's vector into the cache, as EncodeKv of the reference. One warp.
__device__ void StoreHead(const KvPool& kv, int64_t vector, const float* head) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x);
  const int64_t element = vector * kv.head_dim;
  if (kv.format == KvFormat::kF32) {
    float* out = static_cast<float*>(kv.data) + element;
    for (int32_t d = lane; d < kv.head_dim; d += kWarp) out[d] = head[d];
    return;
  }
  if (kv.format == KvFormat::kBF16) {
    __nv_bfloat16* out = static_cast<__nv_bfloat16*>(kv.data) + element;
    for (int32_t d = lane; d < kv.head_dim; d += kWarp) out[d] = __float2bfloat16_rn(head[d]);
    return;
  }
  const float scale = ScaleOf(kv.format, head, kv.head_dim);
  if (lane == 0) kv.scales[vector] = scale;
  uint8_t* out = static_cast<uint8_t*>(kv.data) + element;
  for (int32_t d = lane; d < kv.head_dim; d += kWarp) {
    out[d] = EncodeByte(kv.format, scale > 0.0f ? head[d] / scale : 0.0f);
  }
}

// Block (32, kHeadsPerBlock): a warp for each head of q, then of k, then of v. Grid: rows x heads.
__global__ void __launch_bounds__(kWarp* kHeadsPerBlock) RopeKernel(RopeTask task) {
  __shared__ float heads[kHeadsPerBlock][kMaxHeadDim];
  const int32_t row = static_cast<int32_t>(blockIdx.x);
  const int32_t head_index = static_cast<int32_t>(blockIdx.y * kHeadsPerBlock + threadIdx.y);
  const int32_t lane = static_cast<int32_t>(threadIdx.x);
  const int32_t head_dim = task.head_dim;
  const int32_t all_heads = task.num_heads + 2 * task.num_kv_heads;
  const bool is_q = head_index < task.num_heads;
  const bool is_idle = task.rows.token[row] == kIdleToken;
  const int32_t position = task.rows.row_position[row];
  // REQUIRES a page; a scheduler's mistake must not write elsewhere.
  const int32_t page =
      is_q || is_idle
          ? -1
          : task.kv.page_table[int64_t{task.rows.slot[row]} * task.kv.max_pages_per_slot +
                               position / kPageTokens];
  BeginOverlapping();  // only the product is new
  if (head_index >= all_heads) return;
  __nv_bfloat16* q = task.q + (int64_t{row} * task.num_heads + (is_q ? head_index : 0)) * head_dim;
  if (is_idle) {
    if (!is_q) return;
    for (int32_t d = lane; d < head_dim; d += kWarp) q[d] = __float2bfloat16_rn(0.0f);
    return;
  }
  float* head = heads[threadIdx.y];
  const __nv_bfloat16* from = task.qkv + (int64_t{row} * all_heads + head_index) * head_dim;
  for (int32_t d = lane; d < head_dim; d += kWarp) head[d] = __bfloat162float(from[d]);
  __syncwarp();
  const int32_t side = head_index >= task.num_heads + task.num_kv_heads ? 1 : 0;
  if (side == 0) {
    const Norm& norm = is_q ? task.q_norm : task.k_norm;
    if (norm.weight != nullptr) NormHead(norm, head_dim, head);
    TurnHead(task.rope, position, head);
  }
  if (is_q) {
    for (int32_t d = lane; d < head_dim; d += kWarp) q[d] = __float2bfloat16_rn(head[d]);
    return;
  }
  if (page < 0) return;
  const int32_t kv_head = head_index - task.num_heads - side * task.num_kv_heads;
  StoreHead(task.kv, VectorIndex(task.kv, task.layer, page, side, kv_head, position % kPageTokens),
            head);
}

// Grid: layer x side x kv head, whose tokens of a page stand next to each other.
__global__ void __launch_bounds__(kCopyThreads)
    CopyPageKernel(KvPool kv, int32_t from_page, int32_t to_page, int32_t num_tokens) {
  BeginOverlapping();
  const int32_t kv_head = static_cast<int32_t>(blockIdx.x) % kv.num_kv_heads;
  const int32_t side = static_cast<int32_t>(blockIdx.x) / kv.num_kv_heads % 2;
  const int32_t layer = static_cast<int32_t>(blockIdx.x) / kv.num_kv_heads / 2;
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  const int64_t from = VectorIndex(kv, layer, from_page, side, kv_head, 0);
  const int64_t to = VectorIndex(kv, layer, to_page, side, kv_head, 0);
  const int32_t vector_bytes = BytesPerElement(kv.format) * kv.head_dim;
  uint8_t* data = static_cast<uint8_t*>(kv.data);
  const uint4* source = reinterpret_cast<const uint4*>(data + from * vector_bytes);
  uint4* target = reinterpret_cast<uint4*>(data + to * vector_bytes);
  const int32_t count = num_tokens * vector_bytes / static_cast<int32_t>(sizeof(uint4));
  for (int32_t i = thread; i < count; i += kCopyThreads) target[i] = source[i];
  if (kv.scales == nullptr) return;
  for (int32_t i = thread; i < num_tokens; i += kCopyThreads) {
    kv.scales[to + i] = kv.scales[from + i];
  }
}

}  // namespace

void LaunchRope(const RopeArgs& args, cudaStream_t stream) {
  const int32_t head_dim = args.shape.head_dim;
  KERNELS_REQUIRE(head_dim > 0 && head_dim <= kMaxHeadDim, "head_dim %d", head_dim);
  KERNELS_REQUIRE(args.kv.head_dim == head_dim && args.kv.num_kv_heads == args.shape.num_kv_heads,
                  "cache %d x %d, shape %d x %d", args.kv.num_kv_heads, args.kv.head_dim,
                  args.shape.num_kv_heads, head_dim);
  KERNELS_REQUIRE(args.layer >= 0 && args.layer < args.kv.num_layers, "layer %d of %d", args.layer,
                  args.kv.num_layers);
  KERNELS_REQUIRE(args.rope.rotary_dim % 2 == 0 && args.rope.rotary_dim <= head_dim,
                  "rotary_dim %d, head_dim %d", args.rope.rotary_dim, head_dim);
  for (const Norm* norm : {args.q_norm, args.k_norm}) {
    KERNELS_REQUIRE(norm == nullptr || (norm->width == head_dim && norm->weight != nullptr),
                    "norm width %d, head_dim %d", norm->width, head_dim);
  }
  if (args.rows.num_rows == 0) return;
  const RopeTask task = {args.rows,
                         args.qkv,
                         args.q_norm != nullptr ? *args.q_norm : Norm(),
                         args.k_norm != nullptr ? *args.k_norm : Norm(),
                         args.rope,
                         args.shape.num_heads,
                         args.shape.num_kv_heads,
                         head_dim,
                         args.kv,
                         args.layer,
                         args.q};
  const int32_t all_heads = args.shape.num_heads + 2 * args.shape.num_kv_heads;
  const dim3 grid(args.rows.num_rows, (all_heads + kHeadsPerBlock - 1) / kHeadsPerBlock);
  LaunchOverlapping(RopeKernel, grid, dim3(kWarp, kHeadsPerBlock), 0, stream, task);
}

void LaunchCopyPage(const KvPool& kv, int32_t from_page, int32_t to_page, int32_t num_tokens,
                    cudaStream_t stream) {
  KERNELS_REQUIRE(from_page >= 0 && from_page < kv.num_pages && to_page >= 0 &&
                      to_page < kv.num_pages && from_page != to_page,
                  "pages %d and %d of %d", from_page, to_page, kv.num_pages);
  KERNELS_REQUIRE(num_tokens > 0 && num_tokens <= kPageTokens, "%d tokens", num_tokens);
  KERNELS_REQUIRE(kv.head_dim % 16 == 0, "head_dim %d", kv.head_dim);
  LaunchOverlapping(CopyPageKernel, dim3(kv.num_layers * 2 * kv.num_kv_heads), dim3(kCopyThreads),
                    0, stream, kv, from_page, to_page, num_tokens);
  Settle(stream);
}

}  // namespace tandem::kernels::cuda
