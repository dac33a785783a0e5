// Random data and bitwise comparisons on the device, for probing algorithms against the chain.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/products.h"

namespace tandem::kernels::cuda {

// out[i] is a fixed function of (seed, i): both signs, magnitudes over eight powers of two, one in
// 4,096 values an outlier of up to 256. Sums of such products round at nearly every step, so that
// another order of summation shows.
void LaunchFillRandom(__nv_bfloat16* out, int64_t count, uint32_t seed, cudaStream_t stream);
void LaunchFillRandom(float* out, int64_t count, uint32_t seed, cudaStream_t stream);

// Adds to *differences how many of the y[i] are not, to the last bit, what `output` makes of
// sums[i] without a bias; kAdd: onto the float of LaunchFillRandom(y, count, seed).
void LaunchCountDifferences(const float* sums, const void* y, int64_t count, ProductOutput output,
                            uint32_t seed, unsigned long long* differences, cudaStream_t stream);

}  // namespace tandem::kernels::cuda
