// The CUDA backend with every seam as the sequence of its separate operations: norm, product into
// fp32 sums, bias and rounding, RoPE, gate, add, each a launch of its own with its result in
// memory. By the roundings of launch.h that has the bits of the fused forms; and in the separate
// form a test can put another kernel in the place of one operation: a violation of the bits
// contract, which comparisons must find.
//
// Slow: each seam waits for the device. Records no graphs while it works separately.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "tests/kernels/forwarding_ops.h"

namespace tandem::kernels {

struct SeparateOptions {
  // Of products of at most kFewRows rows; larger ones are always the chain.
  enum class Product : uint8_t {
    kChain,
    kOneAccumulator,     // the planted kernel as it should be
    kSecondAccumulator,  // even and odd steps of k apart, added at the end
    kSplitK,             // an algorithm of cuBLASLt that splits k
  };
  enum class Attention : uint8_t {
    kBackend,
    kConstantSplits,  // the planted kernel as it should be: splits of 512 keys
    kSplitsByLength,  // an eighth of the longest sequence of the step
    kStaleValues,     // multiplies values behind the length by zero
  };
  Product product = Product::kChain;
  Attention attention = Attention::kBackend;
};
inline constexpr int32_t kFewRows = 16;

class SeparableOps : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;
  // From now on by separate operations, or the backend's own.
  virtual void UseSeparate(bool separate) = 0;
};

// The backend itself until UseSeparate(true). FAILED_PRECONDITION: no CUDA device, or none built
// in.
absl::StatusOr<std::unique_ptr<Ops>> MakeSeparableCudaOps();
// Always separate. The same errors.
absl::StatusOr<std::unique_ptr<Ops>> MakeSeparateCudaOps(const SeparateOptions& options);

}  // namespace tandem::kernels
