#include <cuda_fp16.h>

#include <algorithm>

#include "kernels/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/launch_check.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int kBlockElements = 32;  // of the quantised types

__device__ float Half(const uint8_t* bytes) {
  return __half2float(__ushort_as_half(*reinterpret_cast<const uint16_t*>(bytes)));
}

// Element i of the low (i < 16) or high nibbles.
__device__ int Nibble(const uint8_t* nibbles, int i) {
  return i < 16 ? nibbles[i] & 15 : nibbles[i - 16] >> 4;
}

// The value of an element as fp32, rounded once. A matrix is one array of blocks, since its rows
// are whole blocks.
template <DType kType>
__device__ float ValueAt(const uint8_t* data, int64_t index) {
  constexpr DTypeInfo kInfo = Info(kType);
  const uint8_t* block = data + index / kInfo.block_elements * kInfo.block_bytes;
  const int i = static_cast<int>(index % kInfo.block_elements);
  if constexpr (kType == DType::kF32) {
    return *reinterpret_cast<const float*>(block);
  } else if constexpr (kType == DType::kF16) {
    return Half(block);
  } else if constexpr (kType == DType::kBF16) {
    return __bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(block));
  } else {
    static_assert(kInfo.block_elements == kBlockElements);
    const float d = Half(block);
    if constexpr (kType == DType::kQ8_0) {
      return __fmul_rn(d, static_cast<float>(static_cast<int8_t>(block[2 + i])));
    } else if constexpr (kType == DType::kQ4_0) {
      return __fmul_rn(d, static_cast<float>(Nibble(block + 2, i) - 8));
    } else {
      static_assert(kType == DType::kQ4_1);
      // The product is exact, so that the sum is the one rounding.
      return __fadd_rn(__fmul_rn(d, static_cast<float>(Nibble(block + 4, i))), Half(block + 2));
    }
  }
}

template <DType kType>
__global__ void Dequantize(const uint8_t* data, int64_t count, __nv_bfloat16* out) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    out[i] = __float2bfloat16_rn(ValueAt<kType>(data, i));
  }
}

template <DType kType>
void Launch(const void* data, int64_t count, __nv_bfloat16* out, cudaStream_t stream) {
  constexpr int kThreads = 256;
  constexpr int64_t kMostBlocks = 8192;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(std::min<int64_t>((count + kThreads - 1) / kThreads, kMostBlocks));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  CUDA_REQUIRE_LAUNCHED(cudaLaunchKernelEx(&config, Dequantize<kType>,
                                           static_cast<const uint8_t*>(data), count, out));
}

}  // namespace

void LaunchDequantize(const void* data, DType dtype, int32_t rows, int32_t cols, __nv_bfloat16* out,
                      cudaStream_t stream) {
  KERNELS_REQUIRE(rows >= 0 && cols >= 0 && cols % Info(dtype).block_elements == 0,
                  "%d rows, %d columns, blocks of %d", rows, cols, Info(dtype).block_elements);
  const int64_t count = int64_t{rows} * cols;
  if (count == 0) return;
  switch (dtype) {
    case DType::kF32:
      return Launch<DType::kF32>(data, count, out, stream);
    case DType::kF16:
      return Launch<DType::kF16>(data, count, out, stream);
    case DType::kBF16:
      return Launch<DType::kBF16>(data, count, out, stream);
    case DType::kQ8_0:
      return Launch<DType::kQ8_0>(data, count, out, stream);
    case DType::kQ4_0:
      return Launch<DType::kQ4_0>(data, count, out, stream);
    case DType::kQ4_1:
      return Launch<DType::kQ4_1>(data, count, out, stream);
    case DType::kI32:
      KERNELS_REQUIRE(dtype != DType::kI32, "I32 is not a weight");
  }
}

}  // namespace tandem::kernels::cuda
