// Random rows, parameters and histories for tests of decisions, the same for the same generator.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "engine/sampling/decision.h"

namespace tandem::test {

struct RandomCase {
  int32_t vocab_size = 0;
  std::vector<float> logits;
  std::vector<int32_t> tokens;
  int32_t prompt_length = 0;
  uint32_t choice = 0;
  SamplingParameters parameters;
  std::vector<uint32_t> defined_bits;  // empty: all
};

// Values on a coarse grid in some cases, so that ties are common; list sizes from 1 on.
RandomCase MakeRandomCase(std::mt19937_64& random, int32_t max_vocab);

inline Decider MakeDecider(const RandomCase& it) {
  return Decider(it.parameters, it.choice, it.prompt_length, it.tokens, it.vocab_size,
                 it.defined_bits);
}

}  // namespace tandem::test
