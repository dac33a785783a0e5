// The chain kernel: y = x W^T by the definition of products.h, for every shape.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/products.h"
#include "kernels/ops.h"

namespace tandem::kernels::cuda {

// Sets up the kernels for the current device; once, before the first LaunchChain.
cudaError_t PrepareChain();

// x [m, k], w [n, k], bias [n] fp32 or null, y [m, n]. REQUIRES m, n, k > 0, k % 16 == 0, x and w
// aligned to 16 bytes; w is read before the work ahead of it in the stream ends (programmatic.cuh),
// and must not be written by the kernel right before. num_multiprocessors: of the device; chooses
// the grid and no bits.
void LaunchChain(const __nv_bfloat16* x, int32_t m, const __nv_bfloat16* w, int32_t n, int32_t k,
                 const float* bias, ProductOutput output, void* y, int32_t num_multiprocessors,
                 cudaStream_t stream);

// kind(gate) * up of the product with a weight [n, k] whose halves are gate and up: the bits of
// LaunchChain to kBf16 and LaunchGate. y [m, n / 2]. REQUIRES n even, and as above.
void LaunchGatedChain(const __nv_bfloat16* x, int32_t m, const __nv_bfloat16* w, int32_t n,
                      int32_t k, const float* bias, GateKind kind, __nv_bfloat16* y,
                      int32_t num_multiprocessors, cudaStream_t stream);

// What follows the chain, for sums [m, n] that another kernel has stored. sums may be y for kF32.
void LaunchFinish(const float* sums, int32_t m, int32_t n, const float* bias, ProductOutput output,
                  void* y, cudaStream_t stream);

}  // namespace tandem::kernels::cuda
