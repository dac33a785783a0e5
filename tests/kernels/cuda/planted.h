// Kernels for one operation each that a test puts in the place of the backend's: plain, slow, and
// with the mistake that a parameter asks for.
#pragma once

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/ops.h"

namespace tandem::kernels::cuda {

// sums [m, n] = x [m, k] w [n, k]^T in fp32 by m16n8k16 steps along ascending k. num_accumulators
// 1: the chain, with its bits; 2: even and odd steps apart, then one add. REQUIRES k % 16 == 0, n %
// 16
// == 0, num_accumulators 1 or 2.
void LaunchPlantedProduct(const __nv_bfloat16* x, int32_t m, const __nv_bfloat16* w, int32_t n,
                          int32_t k, int num_accumulators, float* sums, cudaStream_t stream);

enum class PlantedAttention : uint8_t { kConstantSplits, kSplitsByLength, kStaleValues };
// Attention in fp32 with probabilities that are not rounded, splits of kPlantedSplit keys in
// ascending order (kSplitsByLength: an eighth of the longest sequence of the step, in whole pages).
// REQUIRES a bf16 cache, head_dim <= 256, no cap, no window, context of at most 8 * kPlantedSplit.
inline constexpr int32_t kPlantedSplit = 512;
void LaunchPlantedAttention(const AttentionArgs& args, PlantedAttention kind, cudaStream_t stream);

// Products by the algorithms that cuBLASLt's heuristic offers first, whatever their order of
// summation.
class HeuristicProducts final {
 public:
  enum class Wanted : uint8_t {
    kAny,
    kSplitK,  // those that split k
  };
  static absl::StatusOr<std::unique_ptr<HeuristicProducts>> Make(Wanted wanted);

  // Enqueues sums = x w^T; false, and nothing is enqueued, where no algorithm is offered.
  bool Multiply(const __nv_bfloat16* x, int32_t m, const __nv_bfloat16* w, int32_t n, int32_t k,
                float* sums, cudaStream_t stream);

 private:
  explicit HeuristicProducts(Wanted wanted) : wanted_(wanted) {}
  struct Destroy {
    void operator()(cublasLtHandle_t handle) const { cublasLtDestroy(handle); }
    void operator()(cublasLtMatmulDesc_t matmul) const { cublasLtMatmulDescDestroy(matmul); }
  };
  std::unique_ptr<std::remove_pointer_t<cublasLtHandle_t>, Destroy> handle_;
  std::unique_ptr<std::remove_pointer_t<cublasLtMatmulDesc_t>, Destroy> matmul_;
  DeviceArray<uint8_t> workspace_;
  const Wanted wanted_;
};

}  // namespace tandem::kernels::cuda
