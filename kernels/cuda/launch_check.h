// CUDA_REQUIRE_LAUNCHED(call): for the status that a kernel launch itself returns. A launch that
// the kernel's own parameters make impossible (grid, shared memory, no code for the device) is a
// mistake of the program and aborts. Every other error is the device's: it stays with the context,
// and the next wait of the caller reports it.
#pragma once

#include <cuda_runtime.h>

#include "kernels/check.h"

namespace tandem::kernels::cuda {

inline bool IsLaunchMistake(cudaError_t error) {
  switch (error) {
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorLaunchOutOfResources:
      return true;
    default:
      return false;
  }
}

}  // namespace tandem::kernels::cuda

#define CUDA_REQUIRE_LAUNCHED(call)                                                           \
  do {                                                                                        \
    const cudaError_t launch_error = (call);                                                  \
    KERNELS_REQUIRE(!::tandem::kernels::cuda::IsLaunchMistake(launch_error), "%s: %s", #call, \
                    cudaGetErrorString(launch_error));                                        \
  } while (false)
