#include "services/worker/backend.h"

#include "engine/base/status.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/reference/reference_ops.h"
#include "services/common/logging.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<kernels::Ops>> MakeOps(const std::string& device,
                                                      int32_t num_threads) {
  if (device == "auto") {
    absl::StatusOr<std::unique_ptr<kernels::Ops>> cuda = kernels::MakeCudaOps({});
    if (cuda.ok()) return cuda;
    LogInfo("--device auto takes the CPU: ", std::string(cuda.status().message()));
  }
  if (device == "auto" || device == "cpu") {
    kernels::CpuOptions options;
    options.num_threads = num_threads;
    return kernels::MakeCpuOps(options);
  }
  if (device == "reference") return kernels::MakeReferenceOps(kernels::ActDType::kF32);
  if (device == "cuda") {
    absl::StatusOr<std::unique_ptr<kernels::Ops>> cuda = kernels::MakeCudaOps({});
    if (cuda.ok()) return cuda;
    return absl::Status(cuda.status().code(),
                        absl::StrCat("--device cuda: ", std::string(cuda.status().message())));
  }
  return InvalidArgument("--device ", device, ": it must be auto, cpu, reference or cuda");
}

}  // namespace tandem
