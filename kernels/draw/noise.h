// The noise of an id: a Gumbel variable that is a pure function of (seed, choice, position, id).
//
// argmax over ids of s(id) + G(id) is distributed as softmax(s) (Gumbel-max: Gumbel 1954; Maddison,
// Tarlow, Minka 2014), so that a draw needs no sum over the row, and a part of the row can be drawn
// from alone.
#pragma once

#include <cstdint>

#include "kernels/draw/host_device.h"
#include "kernels/draw/math.h"
#include "kernels/draw/philox.h"

namespace tandem::kernels {

// min((float(word) + 0.5) * 2^-32, 1 - 2^-24), each operation rounded to nearest even: never 0,
// never 1.
//
// float(word) is written as two exact conversions of 16 bits and a sum, which rounds once and so
// gives the same number: signed conversions vectorise everywhere, unsigned ones do not.
TANDEM_HD float Uniform(uint32_t word) {
  constexpr float kScale = 2.3283064365386963e-10f;  // 2^-32
  constexpr uint32_t kLargest = 0x3F7FFFFFu;         // bits of 1 - 2^-24
  const float high = static_cast<float>(static_cast<int32_t>(word >> 16)) * 65536.0f;
  const float converted = high + static_cast<float>(static_cast<int32_t>(word & 0xFFFFu));
  const uint32_t bits = FloatBits((converted + 0.5f) * kScale);
  return BitsFloat(SelectBits(NegativeMask(static_cast<int32_t>(bits - kLargest)), bits, kLargest));
}

// G = -log(-log(1 - u)), in [-2.82, 22.88]; the largest values come from the smallest u, where
// log1p keeps u's precision.
TANDEM_HD float GumbelOfWord(uint32_t word) { return -Log(-Log1p(-Uniform(word))); }

// G of one id (>= 0). position is that of the token to be drawn.
TANDEM_HD float Gumbel(uint64_t seed, uint32_t choice, int32_t position, int32_t id) {
  const PhiloxBlock block = DrawWords(seed, choice, position, static_cast<uint32_t>(id) >> 2);
  return GumbelOfWord(block.word[id & 3]);
}

// G of ids [4 * first_block, 4 * (first_block + num_blocks)): a quarter of the generator's work per
// id. out [4 * num_blocks].
TANDEM_HD void GumbelRow(uint64_t seed, uint32_t choice, int32_t position, int32_t first_block,
                         int32_t num_blocks, float* out) {
  for (int32_t i = 0; i < num_blocks; ++i) {
    const PhiloxBlock block =
        DrawWords(seed, choice, position, static_cast<uint32_t>(first_block + i));
    out[4 * i] = GumbelOfWord(block.word[0]);
    out[4 * i + 1] = GumbelOfWord(block.word[1]);
    out[4 * i + 2] = GumbelOfWord(block.word[2]);
    out[4 * i + 3] = GumbelOfWord(block.word[3]);
  }
}

}  // namespace tandem::kernels
