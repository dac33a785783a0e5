// Sixteen fp32 lanes, whatever the machine's registers are: one 512-bit register, two of 256 bits,
// or four of 128. Every level has the same lanes, the same order of sums and the same types:
//
//   F   16 floats        I   16 int32        B   16 booleans
//
// so that a kernel is written once and compiled once per level (CMakeLists.txt), into the namespace
// TANDEM_CPU_LEVEL. AVX2 and AVX-512 give the same bits; the portable level differs by Fma, which
// rounds the product there.
//
// Everything here has internal linkage and is always inlined. No source that is compiled per level
// may use an inline function or template with external linkage (std::min, a member function of
// KvPool): the linker would keep one copy of it for all levels, perhaps one that this machine
// cannot run. tests/kernels/cpu_levels_test.cc looks at the objects' symbols.
//
// The functions of each level:
//   Zero Set1 Load Store; LoadFirst, StoreFirst (the first n lanes, others zero / untouched)
//   LoadHalf LoadBf16 LoadInt8   sixteen elements to fp32, exact
//   Add Sub Mul Div Fma Max Sqrt Select Less LessInt
//   SetI LoadI AddI ShiftLeft    int32; Round: to the nearest integer, ties to even, |x| < 2^22
//   ToFloat Bits FromBits        int32 to fp32; reinterpretation
//   Nibbles<S>(words, table)     (word >> S) & 15 of each lane, as fp32, minus the table's offset
//   ReduceAdd(F)                 ((lane l + lane l + 8) + 4 lanes on) + 2 lanes on) + 1 lane on
//   ReduceAdd16(F v[16])         lane i = ReduceAdd(v[i])
//   ReduceMax(F)
#pragma once

#include <stdint.h>

#define TANDEM_SIMD static inline __attribute__((always_inline))
#define TANDEM_UNROLL _Pragma("GCC unroll 16")

#if defined(TANDEM_CPU_AVX512)
#define TANDEM_CPU_LEVEL avx512
#include "kernels/cpu/simd_avx512.h"  // IWYU pragma: export
#elif defined(TANDEM_CPU_AVX2)
#define TANDEM_CPU_LEVEL avx2
#include "kernels/cpu/simd_avx2.h"  // IWYU pragma: export
#else
#define TANDEM_CPU_LEVEL portable
#include "kernels/cpu/simd_portable.h"  // IWYU pragma: export
#endif
