// The CPU backend: threads, SIMD chosen at run time, quantised blocks multiplied as they are with
// fp32 activations. Activations and, by default, the KV cache are fp32. Every row's sums have a
// fixed order per SIMD level, whatever the threads and the batch.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/ops.h"

namespace tandem::kernels {

enum class SimdLevel : uint8_t { kPortable, kAvx2, kAvx512 };

std::string_view Name(SimdLevel level);
// The best level that this machine runs.
SimdLevel DetectSimdLevel();

struct CpuOptions {
  int32_t num_threads = 0;  // 0: one per core that this process may use (affinity and cgroup quota)
  SimdLevel simd = DetectSimdLevel();
};

// INVALID_ARGUMENT: threads outside [0, 256]; FAILED_PRECONDITION: a SIMD level that this machine
// lacks.
absl::StatusOr<std::unique_ptr<Ops>> MakeCpuOps(const CpuOptions& options);

}  // namespace tandem::kernels
