#include "kernels/cpu/cpu_ops.h"

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/level.h"
#include "kernels/cpu/thread_pool.h"

namespace tandem::kernels {
namespace {

constexpr int32_t kMaxThreads = 256;
// Part of the numerics fingerprint: goes up with every change of a result's bits.
constexpr int32_t kKernelVersion = 1;

bool MachineHas(SimdLevel level) {
#if defined(TANDEM_CPU_HAS_X86_LEVELS)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  switch (level) {
    case SimdLevel::kPortable:
      return true;
    case SimdLevel::kAvx2:
      return avx2;
    case SimdLevel::kAvx512:
      return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
  return false;
#else
  return level == SimdLevel::kPortable;
#endif
}

const cpu::Kernels& KernelsOf(SimdLevel level) {
#if defined(TANDEM_CPU_HAS_X86_LEVELS)
  if (level == SimdLevel::kAvx512) return cpu::avx512::Table();
  if (level == SimdLevel::kAvx2) return cpu::avx2::Table();
#endif
  return cpu::portable::Table();
}

std::string ProcessorName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t start = line.find(": ");
    if (start != std::string::npos) return line.substr(start + 2);
  }
  return "unknown processor";
}

}  // namespace

std::string_view Name(SimdLevel level) {
  switch (level) {
    case SimdLevel::kPortable:
      return "portable";
    case SimdLevel::kAvx2:
      return "AVX2";
    case SimdLevel::kAvx512:
      return "AVX-512";
  }
  return "?";
}

SimdLevel DetectSimdLevel() {
  if (MachineHas(SimdLevel::kAvx512)) return SimdLevel::kAvx512;
  if (MachineHas(SimdLevel::kAvx2)) return SimdLevel::kAvx2;
  return SimdLevel::kPortable;
}

absl::StatusOr<std::unique_ptr<Ops>> MakeCpuOps(const CpuOptions& options) {
  if (options.num_threads < 0 || options.num_threads > kMaxThreads) {
    return absl::InvalidArgumentError(absl::StrCat("num_threads must be 0 (one per core) to ",
                                                   kMaxThreads, ", not ", options.num_threads));
  }
  const std::string level(Name(options.simd));
  if (!MachineHas(options.simd)) {
    return absl::FailedPreconditionError(absl::StrCat("this machine does not run the SIMD level ",
                                                      level, "; the best it runs is ",
                                                      std::string(Name(DetectSimdLevel()))));
  }
  const int32_t threads =
      options.num_threads > 0 ? options.num_threads : std::min(cpu::UsableCores(), kMaxThreads);
  BackendInfo info;
  info.name = "cpu";
  info.device = absl::StrCat(level, " (", ProcessorName(), "), ", threads,
                             threads == 1 ? " thread" : " threads");
  info.numerics = absl::StrCat("cpu-", kKernelVersion, " ", level, " fp32");
  info.act_bytes = 4;
  info.default_kv = KvFormat::kF32;
  return std::make_unique<cpu::CpuBackend>(std::move(info), KernelsOf(options.simd), threads);
}

}  // namespace tandem::kernels
