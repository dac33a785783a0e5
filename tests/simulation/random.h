// Pseudo-random numbers that are the same on every machine: SplitMix64.
#pragma once

#include <cstdint>

#include "tests/simulation/fake_arithmetic.h"

namespace tandem::test {

class Random final {
 public:
  explicit Random(uint64_t seed) : state_(Mix(seed + 0x632BE59BD9B4E019u)) {}

  uint64_t Next() {
    state_ += 0x9E3779B97F4A7C15u;
    return Mix(state_);
  }
  // In [0, n). REQUIRES n >= 1.
  int64_t Below(int64_t n) { return static_cast<int64_t>(Next() % static_cast<uint64_t>(n)); }
  // In [low, high].
  int64_t Between(int64_t low, int64_t high) { return low + Below(high - low + 1); }
  bool Percent(int32_t percent) { return Below(100) < percent; }

 private:
  uint64_t state_;
};

}  // namespace tandem::test
