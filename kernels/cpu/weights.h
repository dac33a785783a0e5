// A Weight (device.h) on the CPU: parts in the packed form of packed.h behind each other in its
// storage, and products with it on all threads.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/cpu/level.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tandem::kernels::cpu {

// Ops::PrepareWeight.
absl::StatusOr<Weight> PackWeight(std::span<const HostMatrix> parts, std::string_view what,
                                  ThreadPool* pool);

// One row of a weight as fp32, out [weight.cols]. row in [0, weight.rows).
void UnpackWeightRow(const Weight& weight, int32_t row, float* out);

class Multiplier final {
 public:
  Multiplier(const Kernels& kernels, ThreadPool* pool) : kernels_(kernels), pool_(*pool) {}
  Multiplier(const Multiplier&) = delete;
  Multiplier& operator=(const Multiplier&) = delete;

  // y = x W^T + bias, or y += where accumulate; the order of the sums is ProductTask's (level.h). x
  // [num_rows, weight.cols], y [num_rows, weight.rows], bias [weight.rows] or null.
  void Multiply(const Weight& weight, const float* x, int32_t num_rows, const float* bias,
                bool accumulate, float* y);

 private:
  const Kernels& kernels_;
  ThreadPool& pool_;
  Scratch block_sums_;
};

}  // namespace tandem::kernels::cpu
