// Passes over a logits row for the candidate lists. The definitions are those of kernels/draw,
// called from loops that the compiler vectorises; they use no fused operation, so that every level
// gives the reference's bits.
#include "kernels/cpu/level_functions.h"
#include "kernels/draw/edit.h"
#include "kernels/draw/noise.h"
#include "kernels/draw/weight.h"

namespace tandem::kernels::cpu::TANDEM_CPU_LEVEL {
namespace {

constexpr int kLanes = 16;
constexpr int kTogether = 64;  // ids of a round of the scoring loops: 16 blocks of the generator
constexpr float kOutside = -__builtin_inff();

// G of 64 ids from a multiple of 64 on.
TANDEM_SIMD void NoiseOf64(const DrawParams& params, int32_t position, int32_t first_id,
                           float* noise) {
  uint32_t words[4][kLanes];
  for (int i = 0; i < kLanes; ++i) {
    const PhiloxBlock block =
        DrawWords(params.seed, params.choice, position, static_cast<uint32_t>(first_id / 4 + i));
    words[0][i] = block.word[0];
    words[1][i] = block.word[1];
    words[2][i] = block.word[2];
    words[3][i] = block.word[3];
  }
  float values[4][kLanes];
  for (int lane = 0; lane < 4; ++lane) {
    for (int i = 0; i < kLanes; ++i) values[lane][i] = GumbelOfWord(words[lane][i]);
  }
  for (int i = 0; i < kLanes; ++i) {
    for (int lane = 0; lane < 4; ++lane) noise[4 * i + lane] = values[lane][i];
  }
}

}  // namespace

bool ClampRow(const float* raw, int32_t count, float* adjusted) {
  uint32_t nonfinite = 0;
  for (int32_t i = 0; i < count; ++i) {
    nonfinite |= (FloatBits(raw[i]) & 0x7F800000u) == 0x7F800000u ? 1u : 0u;
    adjusted[i] = ClampLogit(raw[i]);
  }
  return nonfinite == 0;
}

void ExcludeIds(const uint32_t* bits, int32_t count, float* adjusted) {
  for (int32_t i = 0; i < count; ++i) {
    adjusted[i] = (bits[i / 32] >> (i % 32) & 1u) != 0 ? adjusted[i] : kOutside;
  }
}

float BlockMaxima(const float* values, int32_t count, float* maxima) {
  F largest = Set1(kOutside);
  for (int32_t i = 0; i < count; i += kMaximaBlock) {
    F block = Set1(kOutside);
    for (int32_t j = i; j < i + kMaximaBlock && j < count; j += kLanes) {
      const int32_t left = count - j;
      // Lanes past the end repeat the first value.
      const F v = left >= kLanes
                      ? Load(values + j)
                      : Select(FirstLanes(left), LoadFirst(values + j, left), Set1(values[j]));
      block = Max(block, v);
    }
    maxima[i / kMaximaBlock] = ReduceMax(block);
    largest = Max(largest, block);
  }
  return ReduceMax(largest);
}

int32_t CountInRow(const float* adjusted, int32_t count) {
  int32_t in_row = 0;
  for (int32_t i = 0; i < count; ++i) in_row += adjusted[i] > kOutside ? 1 : 0;
  return in_row;
}

uint64_t ScoreIds(const DrawParams& params, int32_t position, float row_max, int32_t first_id,
                  int32_t count, const float* adjusted, float* perturbed, uint64_t* weights) {
  uint64_t total = 0;
  float s[kTogether], noise[kTogether];
  for (int32_t begin = 0; begin < count; begin += kTogether) {
    const int32_t left = count - begin < kTogether ? count - begin : kTogether;
    for (int i = 0; i < left; ++i) s[i] = ScaledLogit(adjusted[begin + i], row_max, params);
    for (int i = left; i < kTogether; ++i) s[i] = kOutside;
    uint64_t w[kTogether];
    for (int i = 0; i < kTogether; ++i) w[i] = DrawWeight(s[i]);
    for (int i = 0; i < kTogether; ++i) total += w[i];
    for (int i = 0; i < left; ++i) weights[begin + i] = w[i];
    if (params.greedy) {
      for (int i = 0; i < left; ++i) perturbed[begin + i] = s[i];
    } else {
      NoiseOf64(params, position, first_id + begin, noise);
      for (int i = 0; i < left; ++i) perturbed[begin + i] = s[i] + noise[i];
    }
  }
  return total;
}

uint64_t TotalRawWeight(const float* raw, int32_t count, float raw_max) {
  uint64_t total = 0;
  for (int32_t i = 0; i < count; ++i) total += DrawWeight(raw[i] - raw_max);
  return total;
}

Above CountAbove(const float* values, const uint64_t* weights, const float* maxima, int32_t count,
                 float limit, int32_t ties_before) {
  Above above = {0, 0};
  for (int32_t begin = 0; begin < count; begin += kMaximaBlock) {
    if (maxima[begin / kMaximaBlock] < limit) continue;
    const int32_t left = count - begin;
    const int32_t size = left < kMaximaBlock ? left : kMaximaBlock;
    const float* v = values + begin;
    const int32_t ties = ties_before - begin;
    int32_t number = 0;
    for (int32_t i = 0; i < size; ++i) {
      number += (v[i] > limit) | ((v[i] == limit) & (i < ties)) ? 1 : 0;
    }
    above.count += number;
    if (weights == nullptr) continue;
    const uint64_t* w = weights + begin;
    uint64_t mass = 0;
    for (int32_t i = 0; i < size; ++i) {
      mass += (v[i] > limit) | ((v[i] == limit) & (i < ties)) ? w[i] : 0;
    }
    above.mass += mass;
  }
  return above;
}

}  // namespace tandem::kernels::cpu::TANDEM_CPU_LEVEL
