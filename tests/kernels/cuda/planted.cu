#include "kernels/check.h"
#include "tests/kernels/cuda/planted.h"

namespace tandem::kernels::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{64} << 20;
constexpr int kMostOffered = 32;

int32_t SplitOf(const cublasLtMatmulAlgo_t& algorithm) {
  int32_t split = 1;
  size_t written = 0;
  cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split,
                                       sizeof(split), &written);
  return split;
}

// One warp for 16 weight rows and 8 tokens; fragments as the PTX manual lays them out.
__global__ void PlantedProduct(const __nv_bfloat16* x, int32_t m, const __nv_bfloat16* w, int32_t n,
                               int32_t k, int num_accumulators, float* sums) {
  const int g = threadIdx.x / 4;
  const int t = threadIdx.x % 4;
  const int32_t row = blockIdx.x * 16 + g;
  const int32_t token = blockIdx.y * 8 + g;
  const __nv_bfloat16* const from_x = x + int64_t{min(token, m - 1)} * k;
  const auto pair = [](const __nv_bfloat16* at) { return *reinterpret_cast<const uint32_t*>(at); };
  float sum[2][4] = {};
  for (int32_t at = 0; at < k; at += 16) {
    const __nv_bfloat16* const low = w + int64_t{row} * k + at + 2 * t;
    const __nv_bfloat16* const high = low + int64_t{8} * k;
    const __nv_bfloat16* const tokens = from_x + at + 2 * t;
    float* const to = sum[num_accumulators == 1 ? 0 : at / 16 % 2];
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(to[0]), "+f"(to[1]), "+f"(to[2]), "+f"(to[3])
        : "r"(pair(low)), "r"(pair(high)), "r"(pair(low + 8)), "r"(pair(high + 8)),
          "r"(pair(tokens)), "r"(pair(tokens + 8)));
  }
  for (int i = 0; i < 4; ++i) {
    const int32_t to_token = blockIdx.y * 8 + 2 * t + i % 2;
    if (to_token >= m) continue;
    sums[int64_t{to_token} * n + row + i / 2 * 8] =
        num_accumulators == 1 ? sum[0][i] : __fadd_rn(sum[0][i], sum[1][i]);
  }
}

// One block for a row and head, a thread for each value of the head.
__global__ void PlantedAttentionKernel(const __grid_constant__ AttentionArgs args,
                                       PlantedAttention kind) {
  __shared__ float scores[kPlantedSplit];
  const int32_t row = blockIdx.x;
  const int32_t head = blockIdx.y;
  const int32_t head_dim = args.shape.head_dim;
  const int32_t kv_head = head / (args.shape.num_heads / args.shape.num_kv_heads);
  const bool is_idle = args.rows.token[row] == kIdleToken;
  const int32_t last = is_idle ? -1 : args.rows.row_position[row];
  const int64_t line = (int64_t{row} * args.shape.num_heads + head) * head_dim;
  const __nv_bfloat16* const q = static_cast<const __nv_bfloat16*>(args.q) + line;
  const auto* const cache = static_cast<const __nv_bfloat16*>(args.kv.data);
  // As KvPool::ElementOffset has it.
  const auto at = [&](int32_t side, int32_t key) {
    const int32_t page =
        args.kv.page_table[int64_t{args.rows.slot[row]} * args.kv.max_pages_per_slot +
                           key / kPageTokens];
    const int64_t block =
        ((int64_t{args.layer} * args.kv.num_pages + page) * 2 + side) * args.kv.num_kv_heads +
        kv_head;
    return cache + (block * kPageTokens + key % kPageTokens) * head_dim;
  };

  int32_t split = kPlantedSplit;
  if (kind == PlantedAttention::kSplitsByLength) {
    int32_t longest = 0;
    for (int32_t i = 0; i < args.rows.num_rows; ++i) {
      longest = max(longest, args.rows.row_position[i] + 1);
    }
    split = min(kPlantedSplit, (longest / 8 + kPageTokens) / kPageTokens * kPageTokens);
  }
  float largest = -INFINITY, sum = 0.0f, out = 0.0f;
  for (int32_t first = 0; first <= last; first += split) {
    const int32_t num_keys = min(split, last + 1 - first);
    const int32_t num_read = kind == PlantedAttention::kStaleValues
                                 ? (num_keys + kPageTokens - 1) / kPageTokens * kPageTokens
                                 : num_keys;
    for (int32_t i = threadIdx.x; i < num_read; i += blockDim.x) {
      float score = -INFINITY;
      if (i < num_keys) {
        score = 0.0f;
        const __nv_bfloat16* const key = at(0, first + i);
        for (int32_t j = 0; j < head_dim; ++j) {
          score = __fmaf_rn(__bfloat162float(q[j]), __bfloat162float(key[j]), score);
        }
      }
      scores[i] = __fmul_rn(score, args.scale);
    }
    __syncthreads();
    float split_largest = -INFINITY, split_sum = 0.0f, split_out = 0.0f;
    for (int32_t i = 0; i < num_keys; ++i) split_largest = fmaxf(split_largest, scores[i]);
    for (int32_t i = 0; i < num_read; ++i) {
      const float p = i < num_keys ? expf(scores[i] - split_largest) : 0.0f;
      split_sum = __fadd_rn(split_sum, p);
      if (threadIdx.x < head_dim) {
        split_out = __fmaf_rn(p, __bfloat162float(at(1, first + i)[threadIdx.x]), split_out);
      }
    }
    const float both = fmaxf(largest, split_largest);
    const float old_weight = expf(largest - both);
    const float new_weight = expf(split_largest - both);
    sum = __fmaf_rn(split_sum, new_weight, __fmul_rn(sum, old_weight));
    out = __fmaf_rn(split_out, new_weight, __fmul_rn(out, old_weight));
    largest = both;
    __syncthreads();
  }
  if (threadIdx.x < head_dim) {
    static_cast<__nv_bfloat16*>(args.out)[line + threadIdx.x] =
        __float2bfloat16_rn(last < 0 ? 0.0f : __fdiv_rn(out, sum));
  }
}

}  // namespace

void LaunchPlantedProduct(const __nv_bfloat16* x, int32_t m, const __nv_bfloat16* w, int32_t n,
                          int32_t k, int num_accumulators, float* sums, cudaStream_t stream) {
  KERNELS_REQUIRE(m > 0 && n % 16 == 0 && k % 16 == 0, "m %d, n %d, k %d", m, n, k);
  PlantedProduct<<<dim3(n / 16, (m + 7) / 8), 32, 0, stream>>>(x, m, w, n, k, num_accumulators,
                                                               sums);
}

void LaunchPlantedAttention(const AttentionArgs& args, PlantedAttention kind, cudaStream_t stream) {
  KERNELS_REQUIRE(args.kv.format == KvFormat::kBF16 && args.shape.head_dim <= 256 &&
                      args.soft_cap == 0.0f && args.window == 0,
                  "head_dim %d, cap %g, window %d", args.shape.head_dim, args.soft_cap,
                  args.window);
  const int threads = args.shape.head_dim <= 128 ? 128 : 256;
  PlantedAttentionKernel<<<dim3(args.rows.num_rows, args.shape.num_heads), threads, 0, stream>>>(
      args, kind);
}

absl::StatusOr<std::unique_ptr<HeuristicProducts>> HeuristicProducts::Make(Wanted wanted) {
  std::unique_ptr<HeuristicProducts> out(new HeuristicProducts(wanted));
  cublasLtHandle_t handle = nullptr;
  if (cublasLtCreate(&handle) != CUBLAS_STATUS_SUCCESS) {
    return absl::InternalError("cublasLtCreate fails");
  }
  out->handle_.reset(handle);
  cublasLtMatmulDesc_t matmul = nullptr;
  if (cublasLtMatmulDescCreate(&matmul, CUBLAS_COMPUTE_32F, CUDA_R_32F) != CUBLAS_STATUS_SUCCESS) {
    return absl::InternalError("cublasLtMatmulDescCreate fails");
  }
  out->matmul_.reset(matmul);
  const cublasOperation_t transpose = CUBLAS_OP_T;
  if (cublasLtMatmulDescSetAttribute(matmul, CUBLASLT_MATMUL_DESC_TRANSA, &transpose,
                                     sizeof(transpose)) != CUBLAS_STATUS_SUCCESS) {
    return absl::InternalError("cublasLtMatmulDescSetAttribute fails");
  }
  CUDA_ASSIGN_OR_RETURN(out->workspace_, AllocateDevice<uint8_t>(kWorkspaceBytes));
  return out;
}

bool HeuristicProducts::Multiply(const __nv_bfloat16* x, int32_t m, const __nv_bfloat16* w,
                                 int32_t n, int32_t k, float* sums, cudaStream_t stream) {
  // cuBLASLt's matrices are column-major: sums^T = W x^T.
  cublasLtMatrixLayoutOpaque_t of_w, of_x, of_sums;
  cublasLtMatmulPreferenceOpaque_t preference;
  if (cublasLtMatrixLayoutInit(&of_w, CUDA_R_16BF, k, n, k) != CUBLAS_STATUS_SUCCESS ||
      cublasLtMatrixLayoutInit(&of_x, CUDA_R_16BF, k, m, k) != CUBLAS_STATUS_SUCCESS ||
      cublasLtMatrixLayoutInit(&of_sums, CUDA_R_32F, n, m, n) != CUBLAS_STATUS_SUCCESS ||
      cublasLtMatmulPreferenceInit(&preference) != CUBLAS_STATUS_SUCCESS) {
    return false;
  }
  cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                       &kWorkspaceBytes, sizeof(kWorkspaceBytes));
  cublasLtMatmulHeuristicResult_t offered[kMostOffered] = {};
  int count = 0;
  if (cublasLtMatmulAlgoGetHeuristic(handle_.get(), matmul_.get(), &of_w, &of_x, &of_sums, &of_sums,
                                     &preference, kMostOffered, offered,
                                     &count) != CUBLAS_STATUS_SUCCESS) {
    return false;
  }
  const float alpha = 1.0f, beta = 0.0f;
  const auto multiply = [&](const cublasLtMatmulAlgo_t& algorithm) {
    return cublasLtMatmul(handle_.get(), matmul_.get(), &alpha, w, &of_w, x, &of_x, &beta, sums,
                          &of_sums, sums, &of_sums, &algorithm, workspace_.get(), kWorkspaceBytes,
                          stream) == CUBLAS_STATUS_SUCCESS;
  };
  for (int i = 0; i < count; ++i) {
    if (offered[i].state != CUBLAS_STATUS_SUCCESS) continue;
    if (wanted_ == Wanted::kSplitK && SplitOf(offered[i].algo) <= 1) continue;
    if (multiply(offered[i].algo)) return true;
  }
  if (wanted_ != Wanted::kSplitK) return false;
  // None is offered: one that keeps k whole is told to split it, if it can.
  for (int i = 0; i < count; ++i) {
    cublasLtMatmulAlgo_t algorithm = offered[i].algo;
    const int32_t split = 2;
    const uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cublasLtMatmulHeuristicResult_t checked = {};
    if (cublasLtMatmulAlgoConfigSetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split,
                                             sizeof(split)) == CUBLAS_STATUS_SUCCESS &&
        cublasLtMatmulAlgoConfigSetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                             &scheme, sizeof(scheme)) == CUBLAS_STATUS_SUCCESS &&
        cublasLtMatmulAlgoCheck(handle_.get(), matmul_.get(), &of_w, &of_x, &of_sums, &of_sums,
                                &algorithm, &checked) == CUBLAS_STATUS_SUCCESS &&
        checked.workspaceSize <= kWorkspaceBytes && multiply(algorithm)) {
      return true;
    }
  }
  return false;
}

}  // namespace tandem::kernels::cuda
