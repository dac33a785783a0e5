// kind(gate) * up, the same wherever it is computed.
//
// Contraction is off; nothing here is fused.
#pragma once

#include <cuda_bf16.h>

#include "kernels/ops.h"

namespace tandem::kernels::cuda {

__device__ __forceinline__ float Activated(GateKind kind, float g) {
  switch (kind) {
    case GateKind::kSilu:
      return g / (1.0f + expf(-g));
    case GateKind::kGeluTanh: {
      constexpr float kSqrt2OverPi = 0.797884561f;
      return 0.5f * g * (1.0f + tanhf(kSqrt2OverPi * (g + 0.044715f * g * g * g)));
    }
    case GateKind::kGeluErf: {
      constexpr float kSqrtHalf = 0.707106781f;
      return 0.5f * g * (1.0f + erff(g * kSqrtHalf));
    }
  }
  return 0.0f;  // not reached
}

// gate and up: values of bf16.
__device__ __forceinline__ __nv_bfloat16 Gated(GateKind kind, float gate, float up) {
  return __float2bfloat16_rn(Activated(kind, gate) * up);
}

}  // namespace tandem::kernels::cuda
