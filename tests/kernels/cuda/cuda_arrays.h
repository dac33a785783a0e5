// Vectors to and from the GPU, for tests of single kernels.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "kernels/cuda/device_memory.h"

namespace tandem::kernels::cuda {

// Skips its tests where there is no GPU.
class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0) {
      GTEST_SKIP() << "no GPU: " << cudaGetErrorString(error);
    }
  }
};

// Device memory with the content of a host vector.
template <typename T>
DeviceArray<T> ToDevice(const std::vector<T>& host) {
  absl::StatusOr<DeviceArray<T>> device = AllocateDevice<T>(host.size());
  if (!device.ok()) {
    ADD_FAILURE() << device.status();
    return nullptr;
  }
  EXPECT_EQ(cudaMemcpy(device->get(), host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice),
            cudaSuccess);
  return *std::move(device);
}

// The first `count` elements, after all work of the device.
template <typename T>
std::vector<T> ToHost(const T* device, size_t count) {
  std::vector<T> host(count);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost),
            cudaSuccess);
  return host;
}

}  // namespace tandem::kernels::cuda
