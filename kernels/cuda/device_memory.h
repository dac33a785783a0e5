// Owned device memory and streams for set-up code, and CUDA errors as absl::Status.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace tandem::kernels::cuda {

// OK, or INTERNAL: "<call>: <what CUDA says>".
inline absl::Status CudaStatus(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(call, ": ", cudaGetErrorString(error)));
}

struct CudaFree {
  void operator()(void* memory) const { cudaFree(memory); }
};
template <typename T>
using DeviceArray = std::unique_ptr<T[], CudaFree>;

// Memory for count > 0 elements, aligned to 256 bytes, its content undefined.
template <typename T>
absl::StatusOr<DeviceArray<T>> AllocateDevice(int64_t count) {
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, count * sizeof(T));
  if (error != cudaSuccess) {
    cudaGetLastError();  // returned here, it is not for the next caller to find
    return absl::InternalError(absl::StrCat("cudaMalloc of ", count * int64_t{sizeof(T)},
                                            " bytes: ", cudaGetErrorString(error)));
  }
  return DeviceArray<T>(static_cast<T*>(memory));
}

struct StreamDestroy {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
};
using OwnedStream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, StreamDestroy>;

}  // namespace tandem::kernels::cuda

// For functions that return absl::Status or StatusOr: leaves them with the call's error.
#define CUDA_RETURN_IF_ERROR(call)                                   \
  do {                                                               \
    const cudaError_t cuda_error = (call);                           \
    if (cuda_error != cudaSuccess) [[unlikely]] {                    \
      return ::tandem::kernels::cuda::CudaStatus(cuda_error, #call); \
    }                                                                \
  } while (false)

// variable = *expr of an absl::StatusOr; leaves such a function with the error where there is one.
#define CUDA_ASSIGN_OR_RETURN(variable, expr) \
  do {                                        \
    auto status_or = (expr);                  \
    if (!status_or.ok()) [[unlikely]] {       \
      return std::move(status_or).status();   \
    }                                         \
    variable = *std::move(status_or);         \
  } while (false)
