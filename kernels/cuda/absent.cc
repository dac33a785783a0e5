// In builds without the CUDA toolkit.
#include "kernels/cuda/cuda_ops.h"

namespace tandem::kernels {

absl::StatusOr<std::unique_ptr<Ops>> MakeCudaOps(const CudaOptions&) {
  return absl::FailedPreconditionError(
      "this build has no CUDA backend: no CUDA toolkit (nvcc) was found when it was configured");
}

}  // namespace tandem::kernels
