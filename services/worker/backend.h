// The backend that --device names.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/ops.h"

namespace tandem {

// device: "auto" (the best that this build and machine have), "cpu", "reference" or "cuda".
// num_threads: 0 for one per core; cpu only. FAILED_PRECONDITION: what this build or machine lacks;
// INVALID_ARGUMENT: any other name.
absl::StatusOr<std::unique_ptr<kernels::Ops>> MakeOps(const std::string& device,
                                                      int32_t num_threads);

}  // namespace tandem
