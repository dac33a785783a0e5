#include "kernels/cuda/timing.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <type_traits>

#include "kernels/cuda/device_memory.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int kLaunches = 3;

struct Destroy {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
  void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
template <typename Handle>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy>;

}  // namespace

absl::StatusOr<float> TimeInGraph(cudaStream_t stream, int repeats,
                                  const std::function<bool(int)>& enqueue) {
  CUDA_RETURN_IF_ERROR(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  bool is_enqueued = true;
  for (int i = 0; i < repeats && is_enqueued; ++i) is_enqueued = enqueue(i);
  cudaGraph_t captured = nullptr;
  const cudaError_t end = cudaStreamEndCapture(stream, &captured);
  const Owned<cudaGraph_t> graph(captured);
  if (!is_enqueued || end != cudaSuccess) {
    cudaGetLastError();  // a failed capture is an answer here; a lost device fails the next call
                         // too
    return std::numeric_limits<float>::infinity();
  }
  cudaGraphExec_t instance = nullptr;
  CUDA_RETURN_IF_ERROR(cudaGraphInstantiate(&instance, graph.get(), 0));
  const Owned<cudaGraphExec_t> runnable(instance);
  cudaEvent_t event = nullptr;
  CUDA_RETURN_IF_ERROR(cudaEventCreate(&event));
  const Owned<cudaEvent_t> begin(event);
  CUDA_RETURN_IF_ERROR(cudaEventCreate(&event));
  const Owned<cudaEvent_t> finish(event);

  float best = std::numeric_limits<float>::infinity();
  for (int i = 0; i < kLaunches; ++i) {
    CUDA_RETURN_IF_ERROR(cudaEventRecord(begin.get(), stream));
    CUDA_RETURN_IF_ERROR(cudaGraphLaunch(instance, stream));
    CUDA_RETURN_IF_ERROR(cudaEventRecord(finish.get(), stream));
    CUDA_RETURN_IF_ERROR(cudaEventSynchronize(finish.get()));
    float milliseconds = 0.0f;
    CUDA_RETURN_IF_ERROR(cudaEventElapsedTime(&milliseconds, begin.get(), finish.get()));
    best = std::min(best, milliseconds * 1000.0f / static_cast<float>(repeats));
  }
  return best;
}

}  // namespace tandem::kernels::cuda
