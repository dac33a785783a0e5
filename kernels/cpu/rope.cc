#include "kernels/cpu/rope.h"

#include "kernels/check.h"

namespace tandem::kernels::cpu {
namespace {

// Pair i is (first[i * step], second[i * step]).
template <int kStep>
void TurnPairs(const float* cos, const float* sin, int32_t count, float* first, float* second) {
  for (int32_t i = 0; i < count; ++i) {
    const float a = first[i * kStep];
    const float b = second[i * kStep];
    first[i * kStep] = a * cos[i] - b * sin[i];
    second[i * kStep] = b * cos[i] + a * sin[i];
  }
}

}  // namespace

void TurnHead(const Rope& rope, int32_t position, float* head) {
  KERNELS_REQUIRE(position >= 0 && position < rope.context_length, "position %d of %d", position,
                  rope.context_length);
  const int32_t half = rope.rotary_dim / 2;
  const float* cos = rope.cos + int64_t{position} * half;
  const float* sin = rope.sin + int64_t{position} * half;
  if (rope.pairs == RopePairs::kInterleaved) {
    TurnPairs<2>(cos, sin, half, head, head + 1);
  } else {
    TurnPairs<1>(cos, sin, half, head, head + half);
  }
}

}  // namespace tandem::kernels::cpu
