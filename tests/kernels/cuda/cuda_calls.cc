#include "tests/kernels/cuda/cuda_calls.h"

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <atomic>

namespace tandem::test {
namespace {

// (kind, result, name, parameters, arguments): every call that the CUDA backend makes in a step or
// could come to make there. CMakeLists.txt names the same ones for the linker.
#define TANDEM_CUDA_CALLS(CALL)                                                                    \
  CALL(kAllocates, cudaError_t, cudaMalloc, (void** a, size_t b), (a, b))                          \
  CALL(kAllocates, cudaError_t, cudaFree, (void* a), (a))                                          \
  CALL(kAllocates, cudaError_t, cudaMallocHost, (void** a, size_t b), (a, b))                      \
  CALL(kAllocates, cudaError_t, cudaHostAlloc, (void** a, size_t b, unsigned c), (a, b, c))        \
  CALL(kAllocates, cudaError_t, cudaFreeHost, (void* a), (a))                                      \
  CALL(kAllocates, cudaError_t, cudaMallocAsync, (void** a, size_t b, cudaStream_t c), (a, b, c))  \
  CALL(kAllocates, cudaError_t, cudaFreeAsync, (void* a, cudaStream_t b), (a, b))                  \
  CALL(kAllocates, cudaError_t, cudaMallocManaged, (void** a, size_t b, unsigned c), (a, b, c))    \
  CALL(kAllocates, cudaError_t, cudaStreamCreateWithFlags, (cudaStream_t * a, unsigned b), (a, b)) \
  CALL(kAllocates, cudaError_t, cudaEventCreateWithFlags, (cudaEvent_t * a, unsigned b), (a, b))   \
  CALL(kAllocates, cudaError_t, cudaGraphInstantiate,                                              \
       (cudaGraphExec_t * a, cudaGraph_t b, unsigned long long c), (a, b, c))                      \
  CALL(kAllocates, cudaError_t, cudaGraphExecDestroy, (cudaGraphExec_t a), (a))                    \
  CALL(kAllocates, cudaError_t, cudaStreamBeginCapture, (cudaStream_t a, cudaStreamCaptureMode b), \
       (a, b))                                                                                     \
  CALL(kAllocates, cudaError_t, cudaStreamEndCapture, (cudaStream_t a, cudaGraph_t * b), (a, b))   \
  CALL(kSynchronises, cudaError_t, cudaDeviceSynchronize, (), ())                                  \
  CALL(kSynchronises, cudaError_t, cudaStreamSynchronize, (cudaStream_t a), (a))                   \
  CALL(kSynchronises, cudaError_t, cudaEventSynchronize, (cudaEvent_t a), (a))                     \
  CALL(kSynchronises, cudaError_t, cudaMemcpy,                                                     \
       (void* a, const void* b, size_t c, cudaMemcpyKind d), (a, b, c, d))                         \
  CALL(kSynchronises, cudaError_t, cudaMemset, (void* a, int b, size_t c), (a, b, c))              \
  CALL(kAsks, cudaError_t, cudaEventQuery, (cudaEvent_t a), (a))                                   \
  CALL(kAsks, cudaError_t, cudaStreamQuery, (cudaStream_t a), (a))                                 \
  CALL(kAsks, cudaError_t, cudaGetLastError, (), ())                                               \
  CALL(kEnqueues, cudaError_t, cudaMemcpyAsync,                                                    \
       (void* a, const void* b, size_t c, cudaMemcpyKind d, cudaStream_t e), (a, b, c, d, e))      \
  CALL(kEnqueues, cudaError_t, cudaMemsetAsync, (void* a, int b, size_t c, cudaStream_t d),        \
       (a, b, c, d))                                                                               \
  CALL(kEnqueues, cudaError_t, cudaEventRecord, (cudaEvent_t a, cudaStream_t b), (a, b))           \
  CALL(kEnqueues, cudaError_t, cudaStreamWaitEvent, (cudaStream_t a, cudaEvent_t b, unsigned c),   \
       (a, b, c))                                                                                  \
  CALL(kEnqueues, cudaError_t, cudaGraphLaunch, (cudaGraphExec_t a, cudaStream_t b), (a, b))       \
  CALL(kEnqueues, cudaError_t, cudaLaunchKernelExC,                                                \
       (const cudaLaunchConfig_t* a, const void* b, void** c), (a, b, c))                          \
  CALL(kLibrary, cublasStatus_t, cublasLtMatmul,                                                   \
       (cublasLtHandle_t a, cublasLtMatmulDesc_t b, const void* c, const void* d,                  \
        cublasLtMatrixLayout_t e, const void* f, cublasLtMatrixLayout_t g, const void* h,          \
        const void* i, cublasLtMatrixLayout_t j, void* k, cublasLtMatrixLayout_t l,                \
        const cublasLtMatmulAlgo_t* m, void* n, size_t o, cudaStream_t p),                         \
       (a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p))

#define TANDEM_INDEX(kind, result, name, parameters, arguments) k_##name,
enum Index : int { TANDEM_CUDA_CALLS(TANDEM_INDEX) kNumCalls };

std::atomic<int64_t> counts[kNumCalls];

}  // namespace
}  // namespace tandem::test

#define TANDEM_WRAP(kind, result, name, parameters, arguments) \
  extern "C" result __real_##name parameters;                  \
  extern "C" result __wrap_##name parameters {                 \
    tandem::test::counts[tandem::test::k_##name].fetch_add(1); \
    return __real_##name arguments;                            \
  }
TANDEM_CUDA_CALLS(TANDEM_WRAP)

namespace tandem::test {

const char* CudaCallKindName(CudaCallKind kind) {
  switch (kind) {
    case CudaCallKind::kEnqueues:
      return "enqueues";
    case CudaCallKind::kAsks:
      return "asks";
    case CudaCallKind::kAllocates:
      return "allocates";
    case CudaCallKind::kSynchronises:
      return "synchronises";
    case CudaCallKind::kLibrary:
      return "library";
  }
  return "?";
}

std::vector<CudaCall> CudaCalls() {
#define TANDEM_ENTRY(kind, result, name, parameters, arguments) \
  {#name, CudaCallKind::kind, counts[k_##name].load()},
  return {TANDEM_CUDA_CALLS(TANDEM_ENTRY)};
}

}  // namespace tandem::test
