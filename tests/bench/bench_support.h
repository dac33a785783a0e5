// What the benches of DecodeEngine share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::test {

// The value; a status ends the program with its text.
template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(value);
}

// REQUIRES values, 0 <= q <= 1.
inline double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

// Ids spread over the vocabulary, the same for the same seed.
inline std::vector<int32_t> Tokens(uint64_t seed, int32_t count, int32_t vocab_size) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    tokens.push_back(static_cast<int32_t>((seed >> 33) % static_cast<uint64_t>(vocab_size)));
  }
  return tokens;
}

}  // namespace tandem::test
