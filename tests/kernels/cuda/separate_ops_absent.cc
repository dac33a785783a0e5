#include "kernels/cuda/cuda_ops.h"
#include "tests/kernels/cuda/separate_ops.h"

namespace tandem::kernels {

absl::StatusOr<std::unique_ptr<Ops>> MakeSeparableCudaOps() { return MakeCudaOps({}); }
absl::StatusOr<std::unique_ptr<Ops>> MakeSeparateCudaOps(const SeparateOptions&) {
  return MakeCudaOps({});
}

}  // namespace tandem::kernels
