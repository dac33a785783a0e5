// Philox4x32-10: a counter-based generator. A block of four 32-bit words is a pure function of a
// 128-bit counter and a 64-bit key, so that any thread on any machine computes the words of any id
// without state. Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011.
#pragma once

#include <cstdint>

#include "kernels/draw/host_device.h"

namespace tandem::kernels {

struct PhiloxBlock {
  uint32_t word[4];
};

TANDEM_HD uint32_t MultiplyHigh(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>((static_cast<uint64_t>(a) * b) >> 32);
}

// The block of a counter {c0, c1, c2, c3} (c0 is the least significant word) under the key {k0,
// k1}.
TANDEM_HD PhiloxBlock Philox4x32(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t k0,
                                 uint32_t k1) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53u;
  constexpr uint32_t kMultiplier1 = 0xCD9E8D57u;
  constexpr uint32_t kWeyl0 = 0x9E3779B9u;  // golden ratio
  constexpr uint32_t kWeyl1 = 0xBB67AE85u;  // sqrt(3) - 1
#if defined(__CUDACC__)
#pragma unroll
#else
#pragma GCC unroll 10
#endif
  for (int round = 0; round < 10; ++round) {
    const uint32_t high0 = MultiplyHigh(kMultiplier0, c0);
    const uint32_t low0 = kMultiplier0 * c0;
    const uint32_t high1 = MultiplyHigh(kMultiplier1, c2);
    const uint32_t low1 = kMultiplier1 * c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return PhiloxBlock{{c0, c1, c2, c3}};
}

// The words of ids 4 * block to 4 * block + 3 for a draw: key = seed (low word, high word), counter
// words (block, position, choice, 0). position is that of the token to be drawn; the first prompt
// token has position 0.
TANDEM_HD PhiloxBlock DrawWords(uint64_t seed, uint32_t choice, int32_t position, uint32_t block) {
  return Philox4x32(block, static_cast<uint32_t>(position), choice, 0u, static_cast<uint32_t>(seed),
                    static_cast<uint32_t>(seed >> 32));
}

}  // namespace tandem::kernels
