// Values that are not finite, for the checked mode: a block for each line.
#include "kernels/check_finite.h"
#include "kernels/cuda/launch.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void ClearFound(NonFinite* found, int32_t n) {
  const int32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i < n) found[i] = NonFinite{};
}

// has_kv: kv is what is read, else args.values.
__global__ void __launch_bounds__(kThreads)
    CheckFiniteKernel(const __grid_constant__ CheckFiniteArgs args, bool has_kv,
                      const __grid_constant__ KvPool kv) {
  __shared__ int32_t first;
  const int32_t line = blockIdx.x;
  const int32_t row = args.line_rows != nullptr ? args.line_rows[line] : line;
  NonFinite* const found = args.found + row;
  // Uniform over the block, so that it leaves as one.
  if (args.rows.token[row] == kIdleToken || found->output != CheckedOutput::kNone) return;
  const int32_t position = args.rows.row_position[row];
  if (threadIdx.x == 0) first = args.width;
  __syncthreads();

  int64_t keys = 0;  // element 0 of the row's keys, as KvPool::ElementOffset has it; then values
  const int32_t side_width = args.width / 2;
  const int64_t side_stride = int64_t{kv.num_kv_heads} * kPageTokens * kv.head_dim;
  if (has_kv) {
    const int32_t page = kv.page_table[int64_t{args.rows.slot[row]} * kv.max_pages_per_slot +
                                       position / kPageTokens];
    keys = (int64_t{args.kv_layer} * kv.num_pages + page) * 2 * side_stride +
           int64_t{position % kPageTokens} * kv.head_dim;
  }
  for (int32_t i = threadIdx.x; i < args.width; i += kThreads) {
    const int64_t at = int64_t{line} * args.width + i;
    bool is_finite = true;
    if (has_kv) {
      const int32_t head = i % side_width / kv.head_dim;
      is_finite =
          IsFiniteInPool(kv, keys + i / side_width * side_stride +
                                 int64_t{head} * kPageTokens * kv.head_dim + i % kv.head_dim);
    } else if (args.is_act) {
      is_finite = IsFiniteBF16(static_cast<const uint16_t*>(args.values)[at]);
    } else {
      is_finite = IsFiniteF32(static_cast<const uint32_t*>(args.values)[at]);
    }
    if (!is_finite) {
      atomicMin(&first, i);
      break;  // the thread's later ones are behind it
    }
  }
  __syncthreads();
  if (threadIdx.x == 0 && first < args.width) *found = {args.output, args.layer, position, first};
}

}  // namespace

void LaunchCheckFinite(const CheckFiniteArgs& args, cudaStream_t stream) {
  const int32_t n = args.rows.num_rows;
  if (args.first) ClearFound<<<(n + kThreads - 1) / kThreads, kThreads, 0, stream>>>(args.found, n);
  if (args.num_lines == 0) return;
  CheckFiniteKernel<<<args.num_lines, kThreads, 0, stream>>>(
      args, args.kv != nullptr, args.kv != nullptr ? *args.kv : KvPool{});
}

}  // namespace tandem::kernels::cuda
