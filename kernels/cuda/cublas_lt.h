// As much of cuBLASLt as y = x W^T needs: its algorithms without a split of k, and running one.
#pragma once

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/products.h"

namespace tandem::kernels::cuda {

// One handle with its workspace, which all products share: one stream at a time.
class CublasLt final {
 public:
  static absl::StatusOr<std::unique_ptr<CublasLt>> Make();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  // What the heuristic offers for x [m, k], w [n, k], best guess first, with split-K 1 and no
  // reduction; for pointers aligned to 16 bytes. Whether an algorithm keeps the order of the chain
  // is not visible in its configuration: the caller compares. Empty where there is none.
  absl::StatusOr<std::vector<cublasLtMatmulAlgo_t>> Candidates(int32_t m, int32_t n, int32_t k,
                                                               ProductOutput output);

  // Enqueues y = x W^T (kAdd: y += x W^T). False: the algorithm does not take the shape, or
  // cuBLASLt fails; nothing was enqueued.
  bool Multiply(const cublasLtMatmulAlgo_t& algorithm, const __nv_bfloat16* x, int32_t m,
                const __nv_bfloat16* w, int32_t n, int32_t k, ProductOutput output, void* y,
                cudaStream_t stream);

 private:
  struct Destroy {
    void operator()(cublasLtHandle_t handle) const { cublasLtDestroy(handle); }
    void operator()(cublasLtMatmulDesc_t matmul) const { cublasLtMatmulDescDestroy(matmul); }
  };
  CublasLt() = default;

  std::unique_ptr<std::remove_pointer_t<cublasLtHandle_t>, Destroy> handle_;
  std::unique_ptr<std::remove_pointer_t<cublasLtMatmulDesc_t>, Destroy> matmul_;
  DeviceArray<uint8_t> workspace_;
};

}  // namespace tandem::kernels::cuda
