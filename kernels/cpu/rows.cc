// Operations on single rows: norms, gates, caps.
#include "kernels/cpu/level_functions.h"
#include "kernels/cpu/vec_math.h"

namespace tandem::kernels::cpu::TANDEM_CPU_LEVEL {
namespace {

constexpr int kLanes = 16;

// Sum of squares: vector j of the row goes to accumulator j mod 4; then (0 + 1) + (2 + 3),
// ReduceAdd.
float SumOfSquares(const float* x, int32_t width) {
  F sum[4] = {Zero(), Zero(), Zero(), Zero()};
  int32_t i = 0;
  for (; i + 4 * kLanes <= width; i += 4 * kLanes) {
    TANDEM_UNROLL for (int j = 0; j < 4; ++j) {
      const F v = Load(x + i + j * kLanes);
      sum[j] = Fma(v, v, sum[j]);
    }
  }
  TANDEM_UNROLL for (int j = 0; j < 4; ++j) {
    const int32_t left = width - i - j * kLanes;
    if (left > 0) {
      const F v = LoadFirst(x + i + j * kLanes, left < kLanes ? left : kLanes);
      sum[j] = Fma(v, v, sum[j]);
    }
  }
  return ReduceAdd(Add(Add(sum[0], sum[1]), Add(sum[2], sum[3])));
}

template <typename Function>
TANDEM_SIMD void ForEachVector(int32_t count, Function function) {
  int32_t i = 0;
  for (; i + kLanes <= count; i += kLanes) function(i, kLanes);
  if (i < count) function(i, count - i);
}

template <F (*kFunction)(F)>
void GateBy(const float* gate, const float* up, int32_t count, float* out) {
  ForEachVector(
      count, [=](int32_t i, int32_t n) __attribute__((always_inline)) {
        StoreFirst(out + i, n, Mul(kFunction(LoadFirst(gate + i, n)), LoadFirst(up + i, n)));
      });
}

}  // namespace

void NormRow(const NormTask& task, const float* x, float* out) {
  const float mean = SumOfSquares(x, task.width) / static_cast<float>(task.width);
  const F inverse = Div(Set1(1.0f), Sqrt(Set1(mean + task.epsilon)));
  const F offset = Set1(task.offset);
  ForEachVector(
      task.width, [=](int32_t i, int32_t n) __attribute__((always_inline)) {
        const F weight = Add(offset, LoadFirst(task.weight + i, n));
        StoreFirst(out + i, n, Mul(Mul(LoadFirst(x + i, n), inverse), weight));
      });
}

void GateRow(int32_t kind, const float* gate, const float* up, int32_t count, float* out) {
  switch (kind) {
    case 0:
      return GateBy<Silu>(gate, up, count, out);
    case 1:
      return GateBy<GeluTanh>(gate, up, count, out);
    default:
      return GateBy<GeluErf>(gate, up, count, out);
  }
}

void ScaleAndCap(float scale, float cap, float* x, int32_t count) {
  const F factor = Set1(scale), limit = Set1(cap);
  ForEachVector(
      count, [=](int32_t i, int32_t n) __attribute__((always_inline)) {
        F v = Mul(LoadFirst(x + i, n), factor);
        if (cap != 0.0f) v = Mul(limit, Tanh(Div(v, limit)));
        StoreFirst(x + i, n, v);
      });
}

}  // namespace tandem::kernels::cpu::TANDEM_CPU_LEVEL
