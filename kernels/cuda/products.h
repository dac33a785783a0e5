// y = x W^T with bf16 inputs and fp32 accumulation. The definition, for every shape and every m:
// one chain of mma.sync.m16n8k16 along ascending k with one accumulator. Products of many rows go
// to cuBLASLt algorithms with split-K 1, which have the same bits: each algorithm that is chosen is
// first compared with the chain kernel on this device, and one that differs is not used. Where none
// is left, and where n is not a multiple of 8, the chain kernel does the work.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/ops.h"

namespace tandem::kernels::cuda {

enum class ProductOutput : uint8_t {
  kBf16,  // y = bf16(sum + bias), bias added in fp32
  kF32,   // y = sum + bias
  kAdd,   // y fp32, in and out: y + (sum + bias), each add rounded once
};

inline constexpr int32_t kMaxProductWidth = 262144;

// Run and RunChain may be captured into graphs. All products of one object share a workspace: their
// work must not overlap, so that one stream at a time is used.
class Products final {
 public:
  // max_rows: most rows of a product. INTERNAL: cuBLASLt or the device fails.
  static absl::StatusOr<std::unique_ptr<Products>> Make(int32_t max_rows);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // Chooses and probes the algorithms for weights [n, k]; allocates and waits; once for each shape,
  // before the first Run with it. Until it returns it holds up to 1 GiB for outputs, and for
  // weights 128 MiB or n * k * 2 bytes, whichever is more. What it times chooses the speed of Run,
  // never its bits. INTERNAL as above. REQUIRES 1 <= n <= kMaxProductWidth, k > 0, k % 16 == 0.
  absl::Status Prepare(int32_t n, int32_t k);
  // x [m, k], w [n, k], bias [n] fp32 or null, y [m, n]. REQUIRES k % 16 == 0, 1 <= m <= max_rows,
  // Prepare(n, k); x, w and y aligned to 16 bytes. Errors of the device stay with the context, for
  // whoever waits for the stream.
  void Run(const __nv_bfloat16* x, int32_t m, const __nv_bfloat16* w, int32_t n, int32_t k,
           const float* bias, ProductOutput output, void* y, cudaStream_t stream);
  // kind(gate) * up, y [m, n / 2], of a weight whose halves are gate and up, in one kernel, with
  // the bits of Run to kBf16 and LaunchGate. False, and nothing is done, where Run would not take
  // the chain kernel.
  bool RunGated(const __nv_bfloat16* x, int32_t m, const __nv_bfloat16* w, int32_t n, int32_t k,
                const float* bias, GateKind kind, __nv_bfloat16* y, cudaStream_t stream);
  // The chain kernel alone, for tests and probes.
  void RunChain(const __nv_bfloat16* x, int32_t m, const __nv_bfloat16* w, int32_t n, int32_t k,
                const float* bias, ProductOutput output, void* y, cudaStream_t stream);

 private:
  Products();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::kernels::cuda
