// Floats to the number formats of checkpoints, for tests that make weights. Plain rounding to the
// nearest code; what matters is that the bytes are valid and close.
#pragma once

#include <span>
#include <string>

#include "kernels/tensor.h"

namespace tandem::test {

// Bytes of consecutive blocks. REQUIRES a size that is a multiple of the format's block; not kI32.
std::string Quantize(std::span<const float> values, kernels::DType dtype);

}  // namespace tandem::test
