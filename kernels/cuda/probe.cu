#include <algorithm>

#include "kernels/cuda/finish.cuh"
#include "kernels/cuda/launch_check.h"
#include "kernels/cuda/probe.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// Finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators,
// OOPSLA 2014).
__device__ uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

__device__ float ProbeValue(int64_t index, uint32_t seed) {
  const uint64_t bits =
      Mix((uint64_t{seed} << 40) + (static_cast<uint64_t>(index) + 1) * 0x9E3779B97F4A7C15ull);
  const int fraction = static_cast<int>(bits & 0xFFFFFF) - (1 << 23);  // [-2^23, 2^23)
  const int exponent = -23 - static_cast<int>(bits >> 24 & 7);
  const bool is_outlier = (bits >> 32 & 4095) == 0;
  return ldexpf(static_cast<float>(fraction), is_outlier ? exponent + 8 : exponent);
}

__device__ int64_t FirstIndex() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ int64_t IndexStep() { return int64_t{gridDim.x} * blockDim.x; }

__global__ void FillBf16(__nv_bfloat16* out, int64_t count, uint32_t seed) {
  for (int64_t i = FirstIndex(); i < count; i += IndexStep()) {
    out[i] = __float2bfloat16_rn(ProbeValue(i, seed));
  }
}

__global__ void FillFloat(float* out, int64_t count, uint32_t seed) {
  for (int64_t i = FirstIndex(); i < count; i += IndexStep()) out[i] = ProbeValue(i, seed);
}

__global__ void CountDifferences(const float* sums, const void* y, int64_t count,
                                 ProductOutput output, uint32_t seed,
                                 unsigned long long* differences) {
  unsigned long long found = 0;
  for (int64_t i = FirstIndex(); i < count; i += IndexStep()) {
    if (output == ProductOutput::kBf16) {
      __nv_bfloat16 expected;
      StoreOutput(sums[i], 0.0f, nullptr, output, &expected, 0);
      found += __bfloat16_as_ushort(expected) !=
               __bfloat16_as_ushort(static_cast<const __nv_bfloat16*>(y)[i]);
    } else {
      const float addend = ProbeValue(i, seed);
      float expected;
      StoreOutput(sums[i], addend, nullptr, output, &expected, 0);
      found += __float_as_uint(expected) != __float_as_uint(static_cast<const float*>(y)[i]);
    }
  }
  if (found != 0) atomicAdd(differences, found);
}

template <typename... Parameters, typename... Arguments>
void Launch(void (*kernel)(Parameters...), int64_t count, cudaStream_t stream,
            Arguments... arguments) {
  constexpr int64_t kMostBlocks = 4096;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(std::min<int64_t>((count + kThreads - 1) / kThreads, kMostBlocks));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  CUDA_REQUIRE_LAUNCHED(cudaLaunchKernelEx(&config, kernel, arguments...));
}

}  // namespace

void LaunchFillRandom(__nv_bfloat16* out, int64_t count, uint32_t seed, cudaStream_t stream) {
  Launch(FillBf16, count, stream, out, count, seed);
}
void LaunchFillRandom(float* out, int64_t count, uint32_t seed, cudaStream_t stream) {
  Launch(FillFloat, count, stream, out, count, seed);
}

void LaunchCountDifferences(const float* sums, const void* y, int64_t count, ProductOutput output,
                            uint32_t seed, unsigned long long* differences, cudaStream_t stream) {
  Launch(CountDifferences, count, stream, sums, y, count, output, seed, differences);
}

}  // namespace tandem::kernels::cuda
