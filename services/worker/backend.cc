#include "services/worker/backend.h"

#include "engine/base/status.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/reference/reference_ops.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<kernels::Ops>> MakeOps(const std::string& device,
                                                      int32_t num_threads) {
  if (device == "auto" || device == "cpu") {
    kernels::CpuOptions options;
    options.num_threads = num_threads;
    return kernels::MakeCpuOps(options);
  }
  if (device == "reference") return kernels::MakeReferenceOps(kernels::ActDType::kF32);
  if (device == "cuda") {
    return FailedPrecondition(
        "--device cuda: this build has no CUDA backend, only cpu and reference");
  }
  return InvalidArgument("--device ", device, ": it must be auto, cpu, reference or cuda");
}

}  // namespace tandem
