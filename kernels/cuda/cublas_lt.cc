#include "kernels/cuda/cublas_lt.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::kernels::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // what NVIDIA recommends for Hopper
constexpr int kMostOffered = 16;

#define CUBLAS_RETURN_IF_ERROR(call)                                          \
  do {                                                                        \
    const cublasStatus_t cublas_status = (call);                              \
    if (cublas_status != CUBLAS_STATUS_SUCCESS) [[unlikely]] {                \
      return absl::InternalError(                                             \
          absl::StrCat(#call, ": ", cublasLtGetStatusString(cublas_status))); \
    }                                                                         \
  } while (false)

// cuBLASLt's matrices are column-major: it sees W as [k, n], which it transposes, x as [k, m], and
// y as [n, m], that is y^T = W x^T.
struct Layouts {
  cublasLtMatrixLayoutOpaque_t w;
  cublasLtMatrixLayoutOpaque_t x;
  cublasLtMatrixLayoutOpaque_t y;
};
cublasStatus_t InitLayouts(int32_t m, int32_t n, int32_t k, ProductOutput output,
                           Layouts* layouts) {
  const cudaDataType_t y_type = output == ProductOutput::kBf16 ? CUDA_R_16BF : CUDA_R_32F;
  for (const cublasStatus_t status : {cublasLtMatrixLayoutInit(&layouts->w, CUDA_R_16BF, k, n, k),
                                      cublasLtMatrixLayoutInit(&layouts->x, CUDA_R_16BF, k, m, k),
                                      cublasLtMatrixLayoutInit(&layouts->y, y_type, n, m, n)}) {
    if (status != CUBLAS_STATUS_SUCCESS) return status;
  }
  return CUBLAS_STATUS_SUCCESS;
}

template <typename T>
cublasStatus_t Set(cublasLtMatmulPreference_t preference,
                   cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  return cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value));
}

bool KeepsKWhole(const cublasLtMatmulAlgo_t& algorithm) {
  int32_t split = 0;
  uint32_t reduction = 0;
  size_t written = 0;
  return cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split,
                                              sizeof(split), &written) == CUBLAS_STATUS_SUCCESS &&
         cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                              &reduction, sizeof(reduction),
                                              &written) == CUBLAS_STATUS_SUCCESS &&
         split == 1 && reduction == CUBLASLT_REDUCTION_SCHEME_NONE;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CublasLt>> CublasLt::Make() {
  std::unique_ptr<CublasLt> lt(new CublasLt());
  cublasLtHandle_t handle = nullptr;
  CUBLAS_RETURN_IF_ERROR(cublasLtCreate(&handle));
  lt->handle_.reset(handle);
  cublasLtMatmulDesc_t matmul = nullptr;
  CUBLAS_RETURN_IF_ERROR(cublasLtMatmulDescCreate(&matmul, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  lt->matmul_.reset(matmul);
  const cublasOperation_t transpose = CUBLAS_OP_T;
  CUBLAS_RETURN_IF_ERROR(cublasLtMatmulDescSetAttribute(matmul, CUBLASLT_MATMUL_DESC_TRANSA,
                                                        &transpose, sizeof(transpose)));
  absl::StatusOr<DeviceArray<uint8_t>> workspace = AllocateDevice<uint8_t>(kWorkspaceBytes);
  if (!workspace.ok()) return workspace.status();
  lt->workspace_ = *std::move(workspace);
  return lt;
}

absl::StatusOr<std::vector<cublasLtMatmulAlgo_t>> CublasLt::Candidates(int32_t m, int32_t n,
                                                                       int32_t k,
                                                                       ProductOutput output) {
  Layouts layouts;
  CUBLAS_RETURN_IF_ERROR(InitLayouts(m, n, k, output, &layouts));
  cublasLtMatmulPreferenceOpaque_t preference;
  CUBLAS_RETURN_IF_ERROR(cublasLtMatmulPreferenceInit(&preference));
  CUBLAS_RETURN_IF_ERROR(
      Set(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspaceBytes}));
  CUBLAS_RETURN_IF_ERROR(Set(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                             uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE}));
  for (const cublasLtMatmulPreferenceAttributes_t alignment :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    CUBLAS_RETURN_IF_ERROR(Set(&preference, alignment, uint32_t{16}));
  }

  cublasLtMatmulHeuristicResult_t offered[kMostOffered] = {};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_.get(), matmul_.get(), &layouts.w, &layouts.x, &layouts.y, &layouts.y, &preference,
      kMostOffered, offered, &count);
  std::vector<cublasLtMatmulAlgo_t> found;
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return found;
  if (status != CUBLAS_STATUS_SUCCESS) {
    return absl::InternalError(
        absl::StrCat("cublasLtMatmulAlgoGetHeuristic: ", cublasLtGetStatusString(status)));
  }
  for (int i = 0; i < count; ++i) {
    if (offered[i].state == CUBLAS_STATUS_SUCCESS && KeepsKWhole(offered[i].algo)) {
      found.push_back(offered[i].algo);
    }
  }
  return found;
}

bool CublasLt::Multiply(const cublasLtMatmulAlgo_t& algorithm, const __nv_bfloat16* x, int32_t m,
                        const __nv_bfloat16* w, int32_t n, int32_t k, ProductOutput output, void* y,
                        cudaStream_t stream) {
  Layouts layouts;
  if (InitLayouts(m, n, k, output, &layouts) != CUBLAS_STATUS_SUCCESS) return false;
  const float alpha = 1.0f;
  const float beta = output == ProductOutput::kAdd ? 1.0f : 0.0f;
  return cublasLtMatmul(handle_.get(), matmul_.get(), &alpha, w, &layouts.w, x, &layouts.x, &beta,
                        y, &layouts.y, y, &layouts.y, &algorithm, workspace_.get(), kWorkspaceBytes,
                        stream) == CUBLAS_STATUS_SUCCESS;
}

}  // namespace tandem::kernels::cuda
