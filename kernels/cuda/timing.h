// How long work takes on the device, for choosing between equals.
#pragma once

#include <cuda_runtime.h>

#include <functional>

#include "absl/status/statusor.h"

namespace tandem::kernels::cuda {

// Microseconds of one enqueue(i), i = 0, 1, .., repeats - 1, back to back in a graph, as steps run
// it; the best of a few launches. Infinity where enqueue returns false or cannot be captured.
absl::StatusOr<float> TimeInGraph(cudaStream_t stream, int repeats,
                                  const std::function<bool(int)>& enqueue);

}  // namespace tandem::kernels::cuda
