// Weights drawn on the device: a model of any shape in the time that it takes to write it.
#include <algorithm>
#include <cstring>

#include "kernels/cuda/launch.h"
#include "kernels/random_weight.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 65536;

__global__ void RandomWeightKernel(uint64_t seed, float deviation, int64_t count, uint16_t* out) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += stride) {
    out[i] = RandomWeight(seed, i, deviation);
  }
}

}  // namespace

void LaunchRandomWeight(uint64_t seed, float deviation, int64_t count, __nv_bfloat16* out,
                        cudaStream_t stream) {
  const int64_t blocks = std::min(kMaxBlocks, (count + kThreads - 1) / kThreads);
  RandomWeightKernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
      seed, deviation, count, reinterpret_cast<uint16_t*>(out));
}

}  // namespace tandem::kernels::cuda
