// Memory of the CPU backend: zeroed, aligned, on huge pages where the system gives them.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace tandem::kernels::cpu {

// Zeroed, aligned to 256 bytes; from 2 MiB on mapped at a multiple of 2 MiB with transparent huge
// pages asked for: a decode step reads every weight once, and 4 KiB pages cost it a third of the
// memory's speed. Physical pages come when they are first written. REQUIRES bytes >= 0.
// RESOURCE_EXHAUSTED names `what`, the bytes and the machine's memory.
absl::StatusOr<Buffer> AllocateZeroed(int64_t bytes, std::string_view what);

// Memory between the phases of an operation; grows to the largest step and stays.
class Scratch final {
 public:
  // At least count floats; what was there is lost. Aborts where the machine has no such memory.
  float* Floats(int64_t count);

 private:
  Buffer buffer_;
};

}  // namespace tandem::kernels::cpu
