// The CUDA backend: bf16 weights and activations, fp32 residual stream and logits. Built where the
// CUDA toolkit is found; runs on compute 8.0 and newer (tried on 9.0).
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/ops.h"

namespace tandem::kernels {

struct CudaOptions {
  int32_t device = 0;
  int32_t max_rows = 4096;  // most rows of a step
};

// FAILED_PRECONDITION says what is missing: a driver, a device, its compute capability. INTERNAL:
// the device or cuBLASLt fails.
absl::StatusOr<std::unique_ptr<Ops>> MakeCudaOps(const CudaOptions& options);

}  // namespace tandem::kernels
