// Kernels that begin while the kernel before them in the stream still runs (programmatic dependent
// launch, compute 9.0 and newer): a grid's start, and the reading of what is old, pass beside the
// end of the one before.
//
// Every thread of a kernel that LaunchOverlapping launches calls BeginOverlapping before it writes
// anything, or reads what the work right before it in the stream wrote. What older work wrote it
// may read at once: a kernel begins when all blocks of the one before have come past their own
// BeginOverlapping, that is when all work before that one is complete. Kernels that write what
// later ones read early (rows, slots, copied pages) are followed by Settle.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "kernels/cuda/launch_check.h"

namespace tandem::kernels::cuda {

// Waits for the kernel before and what it wrote, then lets the next kernel begin.
__device__ __forceinline__ void BeginOverlapping() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Of the current device; asked for once.
inline bool LaunchesOverlap() {
  static const bool overlap = [] {
    int device = 0, major = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           major >= 9;
  }();
  return overlap;
}

template <typename... Params, typename... Args>
void LaunchOverlapping(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes,
                       cudaStream_t stream, Args&&... args) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = LaunchesOverlap() ? 1 : 0;
  CUDA_REQUIRE_LAUNCHED(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...));
}

static __global__ void NothingKernel() {}

// All work before is complete, and its results are there, when the next kernel begins, early or
// not: a kernel that is not launched to overlap stands between.
inline void Settle(cudaStream_t stream) { NothingKernel<<<1, 1, 0, stream>>>(); }

}  // namespace tandem::kernels::cuda
