// Attention: which kernels run for a step, and where their scratch lies. The arithmetic stands in
// attention_math.cuh; every path has the same bits.
//
// Up to kDirectRows rows, one block for each item, kv head and split, or some of the splits, whose
// results MergeKernel joins. Above, or where their scratch would be too large, each block walks the
// splits of its items in order; the items of many rows are planned by a kernel of their own, so
// that decoding rows and prompts of one step each get the kernel that fits them.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/check.h"
#include "kernels/cuda/attention_narrow.cuh"
#include "kernels/cuda/attention_split.cuh"
#include "kernels/cuda/attention_wide.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/programmatic.cuh"

namespace tandem::kernels::cuda {
namespace attention {
namespace {

constexpr int32_t kDirectRows = 64;
constexpr int64_t kMaxSplitBytes = int64_t{128} << 20;
// Blocks that a launch aims for where it may choose: some for each multiprocessor of a large GPU.
constexpr int32_t kEnoughBlocks = 2048;
// Most blocks of SplitKernel, of which a multiprocessor runs one at a time.
constexpr int32_t kMostSplitBlocks = 1024;
// Most items times kv heads for it: from there on NarrowKernel keeps the device as busy.
constexpr int32_t kMostSplitItems = 128;
constexpr int32_t kPlanThreads = 1024;

int32_t MaxSplits(int32_t context_length) { return (context_length + kSplitKeys - 1) / kSplitKeys; }

int64_t SplitBytesOfRow(const AttentionShape& shape, int32_t context_length) {
  return int64_t{MaxSplits(context_length)} * shape.num_heads *
         (shape.head_dim * int64_t{sizeof(float)} + int64_t{sizeof(float2)});
}

// Most rows of a step whose splits are computed side by side.
int32_t MaxSplitRows(const AttentionShape& shape, int32_t context_length) {
  if (MaxSplits(context_length) <= 1) return 0;
  return static_cast<int32_t>(
      std::min<int64_t>(kDirectRows, kMaxSplitBytes / SplitBytesOfRow(shape, context_length)));
}

int64_t PlanBytes(int32_t rows) { return int64_t{2} * rows * sizeof(Item) + 2 * sizeof(int32_t); }

// One block. An item of a run of rows starts where the slot changes and at multiples of WideRows.
__global__ void __launch_bounds__(kPlanThreads)
    PlanKernel(const StepRows rows, int32_t group, const Plan plan) {
  __shared__ int32_t counts[2];
  BeginOverlapping();
  if (threadIdx.x < 2) counts[threadIdx.x] = 0;
  __syncthreads();
  for (int32_t row = threadIdx.x; row < rows.num_rows; row += kPlanThreads) {
    Item item;
    if (!ItemAt(rows, row, WideRows(group), &item)) continue;
    // The order of the lists varies from run to run; no result depends on it.
    const bool is_wide = item.num_rows > NarrowRows(group);
    (is_wide ? plan.wide : plan.narrow)[atomicAdd(&counts[is_wide], 1)] = item;
  }
  __syncthreads();
  if (threadIdx.x < 2) plan.counts[threadIdx.x] = counts[threadIdx.x];
}

// Joins the splits of a row and head. Grid: x rows, y heads; head_dim / 2 threads.
__global__ void MergeKernel(const __grid_constant__ Params params) {
  const int32_t row = blockIdx.x;
  const int32_t head_dim = params.kv.head_dim;
  const int64_t row_head = int64_t{row} * params.num_heads + blockIdx.y;
  const int32_t last = SlotOf(params.rows, row) < 0 ? -1 : params.rows.row_position[row];
  const int32_t first_split = FirstVisible(last, params.window) / kSplitKeys;
  const int32_t num_splits = (last + kSplitKeys) / kSplitKeys;
  RowState merged;
  float2 out = {0.0f, 0.0f};
  BeginOverlapping();  // only the splits are new
#pragma unroll 4
  for (int32_t split = first_split; split < num_splits; ++split) {
    const int64_t index = row_head * params.max_splits + split;
    const float2 state = params.split_states[index];
    const float2 values =
        reinterpret_cast<const float2*>(params.split_values + index * head_dim)[threadIdx.x];
    const MergeWeights weights = Merge(merged, state.x, state.y);
    out.x = MergeValue(out.x, values.x, weights);
    out.y = MergeValue(out.y, values.y, weights);
  }
  reinterpret_cast<__nv_bfloat162*>(params.out + row_head * head_dim)[threadIdx.x] =
      Result(out.x, out.y, Inverse(merged.sum));
}

// Sets the shared memory of a kernel, which must be asked for above 48 KiB, and launches it.
void Launch(void (*kernel)(Params), dim3 grid, int threads, int bytes, const Params& params,
            cudaStream_t stream) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  LaunchOverlapping(kernel, grid, dim3(threads), bytes, stream, params);
}

// Shared memory that a block of the current device may have; asked for once.
int MostSharedBytes() {
  static const int bytes = [] {
    int device = 0, most = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) !=
            cudaSuccess) {
      return 0;
    }
    return most;
  }();
  return bytes;
}

// False where another kernel is the better one.
template <KvFormat kFormat, int kHeadDim>
bool LaunchSplits(const Params& params, dim3 grid, cudaStream_t stream) {
  if constexpr (kFormat == KvFormat::kBF16 && kHeadDim <= 128) {
    constexpr int kBytes = SplitShape<kHeadDim>::kBytes;
    const int64_t items = int64_t{grid.x} * grid.y;
    if (items > kMostSplitItems || items * grid.z > kMostSplitBlocks ||
        kBytes > MostSharedBytes()) {
      return false;
    }
    Launch(SplitKernel<kHeadDim>, grid, kSplitThreads, kBytes, params, stream);
    return true;
  }
  return false;
}

template <KvFormat kFormat, int kHeadDim>
void LaunchFor(const Params& params, cudaStream_t stream) {
  using Narrow = NarrowShape<kFormat, kHeadDim>;
  using Wide = WideShape<kFormat, kHeadDim>;
  const int32_t n = params.rows.num_rows;
  const int32_t tiles = params.kv.num_kv_heads * HeadTiles(params.group);
  if (params.plan.counts == nullptr) {
    if (params.split_states == nullptr) {
      Launch(NarrowKernel<kFormat, kHeadDim>, dim3(n, tiles), kThreads, Narrow::kBytes, params,
             stream);
      return;
    }
    if (!LaunchSplits<kFormat, kHeadDim>(params, dim3(n, tiles, params.max_splits), stream)) {
      const int32_t splits = std::clamp(kEnoughBlocks / (n * tiles), 1, params.max_splits);
      Launch(NarrowKernel<kFormat, kHeadDim>, dim3(n, tiles, splits), kThreads, Narrow::kBytes,
             params, stream);
    }
    LaunchOverlapping(MergeKernel, dim3(n, params.num_heads), dim3(kHeadDim / 2), 0, stream,
                      params);
    return;
  }
  LaunchOverlapping(PlanKernel, dim3(1), dim3(kPlanThreads), 0, stream, params.rows, params.group,
                    params.plan);
  const auto blocks = [](int32_t items, int32_t per_item) {
    return dim3(std::min(items, std::max(1, kEnoughBlocks / per_item)), per_item);
  };
  Launch(NarrowKernel<kFormat, kHeadDim>, blocks(n, tiles), kThreads, Narrow::kBytes, params,
         stream);
  const int32_t narrow_rows = NarrowRows(params.group);
  if (WideRows(params.group) <= narrow_rows) return;  // no item is wide
  Launch(WideKernel<kFormat, kHeadDim>, blocks(n / (narrow_rows + 1), params.kv.num_kv_heads),
         kThreads, Wide::kBytes, params, stream);
}

template <KvFormat kFormat>
void LaunchForFormat(const Params& params, cudaStream_t stream) {
  switch (params.kv.head_dim) {
    case 64:
      return LaunchFor<kFormat, 64>(params, stream);
    case 80:
      return LaunchFor<kFormat, 80>(params, stream);
    case 96:
      return LaunchFor<kFormat, 96>(params, stream);
    case 128:
      return LaunchFor<kFormat, 128>(params, stream);
    case 256:
      return LaunchFor<kFormat, 256>(params, stream);
    default:
      break;  // refused by AttentionSupported
  }
}

}  // namespace
}  // namespace attention

int64_t AttentionScratchBytes(const AttentionShape& shape, int32_t rows, int32_t context_length) {
  const int32_t split_rows = std::min(rows, attention::MaxSplitRows(shape, context_length));
  const int64_t split_bytes =
      split_rows == 0 ? 0 : split_rows * attention::SplitBytesOfRow(shape, context_length);
  const int64_t plan_bytes = rows > attention::kDirectRows ? attention::PlanBytes(rows) : 0;
  return std::max(split_bytes, plan_bytes);
}

void LaunchAttention(const AttentionArgs& args, int32_t context_length, void* scratch,
                     cudaStream_t stream) {
  const int32_t n = args.rows.num_rows;
  if (n == 0) return;
  const absl::Status supported =
      AttentionSupported(args.shape, args.kv.format, args.soft_cap, args.window);
  KERNELS_REQUIRE(supported.ok(), "%s", supported.ToString().c_str());
  KERNELS_REQUIRE(args.scale > 0.0f, "scale %g", args.scale);
  KERNELS_REQUIRE(
      args.kv.head_dim == args.shape.head_dim && args.kv.num_kv_heads == args.shape.num_kv_heads,
      "cache %d x %d, shape %d x %d", args.kv.num_kv_heads, args.kv.head_dim,
      args.shape.num_kv_heads, args.shape.head_dim);
  KERNELS_REQUIRE(args.layer >= 0 && args.layer < args.kv.num_layers, "layer %d of %d", args.layer,
                  args.kv.num_layers);

  attention::Params params;
  params.rows = args.rows;
  params.q = static_cast<const __nv_bfloat16*>(args.q);
  params.out = static_cast<__nv_bfloat16*>(args.out);
  params.kv = args.kv;
  params.layer = args.layer;
  params.num_heads = args.shape.num_heads;
  params.group = args.shape.num_heads / args.shape.num_kv_heads;
  params.window = args.window;
  params.soft_cap = args.soft_cap;
  const bool has_cap = args.soft_cap > 0.0f;
  params.cap_factor = has_cap ? args.scale / args.soft_cap : 0.0f;
  params.c = has_cap ? attention::kLog2E : args.scale * attention::kLog2E;
  if (n <= attention::MaxSplitRows(args.shape, context_length)) {
    params.max_splits = attention::MaxSplits(context_length);
    params.split_states = static_cast<float2*>(scratch);
    params.split_values = reinterpret_cast<float*>(
        params.split_states + int64_t{n} * params.num_heads * params.max_splits);
  } else if (n > attention::kDirectRows) {
    params.plan.narrow = static_cast<attention::Item*>(scratch);
    params.plan.wide = params.plan.narrow + n;
    params.plan.counts = reinterpret_cast<int32_t*>(params.plan.wide + n);
  }
  switch (args.kv.format) {
    case KvFormat::kBF16:
      return attention::LaunchForFormat<KvFormat::kBF16>(params, stream);
    case KvFormat::kFp8E4M3:
      return attention::LaunchForFormat<KvFormat::kFp8E4M3>(params, stream);
    case KvFormat::kInt8:
      return attention::LaunchForFormat<KvFormat::kInt8>(params, stream);
    case KvFormat::kF32:
      break;  // refused by AttentionSupported
  }
}

absl::Status AttentionSupported(const AttentionShape& shape, KvFormat format, float soft_cap,
                                int32_t window) {
  constexpr int32_t kHeadDims[] = {64, 80, 96, 128, 256};
  if (std::find(std::begin(kHeadDims), std::end(kHeadDims), shape.head_dim) ==
      std::end(kHeadDims)) {
    return absl::UnimplementedError(absl::StrCat(
        "attention on CUDA has head_dim 64, 80, 96, 128 or 256, not ", shape.head_dim));
  }
  if (shape.num_kv_heads < 1 || shape.num_heads % shape.num_kv_heads != 0 ||
      shape.num_heads / shape.num_kv_heads < 1 || shape.num_heads / shape.num_kv_heads > 64) {
    return absl::UnimplementedError(
        absl::StrCat("attention on CUDA has 1 to 64 heads a kv head, not ", shape.num_heads,
                     " heads over ", shape.num_kv_heads));
  }
  if (format == KvFormat::kF32) {
    return absl::UnimplementedError(
        "attention on CUDA has no fp32 KV cache: its products take bf16");
  }
  if (!(soft_cap >= 0.0f) || window < 0) {
    return absl::UnimplementedError(
        absl::StrCat("attention has no soft cap ", soft_cap, " or window ", window));
  }
  return absl::OkStatus();
}

}  // namespace tandem::kernels::cuda
