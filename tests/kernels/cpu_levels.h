// The kernel tables of the SIMD levels that this machine runs.
#pragma once

#include <vector>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/level.h"

namespace tandem::kernels::cpu {

struct NamedLevel {
  SimdLevel level;
  const Kernels* kernels;
};

inline std::vector<NamedLevel> LevelsHere() {
  std::vector<NamedLevel> levels = {{SimdLevel::kPortable, &portable::Table()}};
#if defined(__x86_64__)
  if (DetectSimdLevel() >= SimdLevel::kAvx2) levels.push_back({SimdLevel::kAvx2, &avx2::Table()});
  if (DetectSimdLevel() >= SimdLevel::kAvx512) {
    levels.push_back({SimdLevel::kAvx512, &avx512::Table()});
  }
#endif
  return levels;
}

}  // namespace tandem::kernels::cpu
