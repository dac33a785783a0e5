// What lets these headers compile alike for the host and, under nvcc, for the device.
//
// TANDEM_HD gives internal linkage and forces inlining: a source file that is compiled for several
// instruction sets gets its own copy of each function, and no copy built for a wider set can leak
// into code that runs on a narrower one.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define TANDEM_HD static __host__ __device__ __forceinline__
#else
#define TANDEM_HD static inline __attribute__((always_inline))
#endif

namespace tandem::kernels {

// The bits of a float, and back.
TANDEM_HD uint32_t FloatBits(float value) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  return __builtin_bit_cast(uint32_t, value);
#endif
}
TANDEM_HD float BitsFloat(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return __builtin_bit_cast(float, bits);
#endif
}

// All ones where value is negative, else 0. Choices between numbers are written with masks in these
// headers, because compilers turn a conditional into a branch as soon as one side is a constant,
// and then do not vectorise the loop.
TANDEM_HD uint32_t NegativeMask(int32_t value) { return static_cast<uint32_t>(value >> 31); }

// where a mask has ones, if_set, else if_clear.
TANDEM_HD uint32_t SelectBits(uint32_t mask, uint32_t if_set, uint32_t if_clear) {
  return (if_set & mask) | (if_clear & ~mask);
}

}  // namespace tandem::kernels
