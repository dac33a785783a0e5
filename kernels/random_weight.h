// Weights that are drawn, not stored: models of any shape for benches and tests, with the same
// values on every backend.
//
// Value i of a matrix: deviation * sqrt(3) * (u0 + u1 + u2 + u3 - 2), each u uniform in [0, 1) from
// 32 bits of Philox4x32-10 under the key `seed` at counter (i, 0, 0, 1); so about normal with that
// standard deviation, and never beyond 3.5 of it. Rounded to the nearest bf16.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/draw/host_device.h"
#include "kernels/draw/philox.h"
#include "kernels/tensor.h"

namespace tandem::kernels {

// The bits of the bf16 value.
TANDEM_HD uint16_t RandomWeight(uint64_t seed, int64_t index, float deviation) {
  const PhiloxBlock block =
      Philox4x32(static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0u, 1u,
                 static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  // An integer sum: no rounding but the conversion's and the product's.
  const int64_t sum =
      int64_t{block.word[0]} + block.word[1] + block.word[2] + block.word[3] - (int64_t{2} << 32);
  const float value = static_cast<float>(sum) * (deviation * (1.7320508f / 4294967296.0f));
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// A drawn matrix (data null) with its values in memory, [rows, cols] bf16.
inline std::vector<uint16_t> DrawMatrix(const HostMatrix& matrix) {
  std::vector<uint16_t> values(static_cast<size_t>(matrix.rows) * static_cast<size_t>(matrix.cols));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = RandomWeight(matrix.seed, static_cast<int64_t>(i), matrix.deviation);
  }
  return values;
}

}  // namespace tandem::kernels
