// What happens to the sum of a chain, the same wherever it is written.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/products.h"

namespace tandem::kernels::cuda {

// y[index] from the sum. addend: with kAdd what stands at y[index]. bias: null, or at this output's
// value.
__device__ __forceinline__ void StoreOutput(float sum, float addend, const float* bias,
                                            ProductOutput output, void* y, int64_t index) {
  const float value = bias != nullptr ? __fadd_rn(sum, *bias) : sum;
  switch (output) {
    case ProductOutput::kBf16:
      static_cast<__nv_bfloat16*>(y)[index] = __float2bfloat16_rn(value);
      break;
    case ProductOutput::kF32:
      static_cast<float*>(y)[index] = value;
      break;
    case ProductOutput::kAdd:
      static_cast<float*>(y)[index] = __fadd_rn(addend, value);
      break;
  }
}

}  // namespace tandem::kernels::cuda
