// Random rows, parameters and histories for tests of decisions: pure functions of their seeds, the
// same on every machine.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/sampling/decision.h"

namespace tandem::test {

// What the cases of one step share.
struct RandomVocabulary {
  int32_t size = 0;
  std::vector<uint32_t> defined_bits;  // empty: all
};

struct RandomCase {
  int32_t vocab_size = 0;
  std::vector<float> logits;
  std::vector<int32_t> tokens;
  int32_t prompt_length = 0;
  uint32_t choice = 0;
  SamplingParameters parameters;
  std::vector<uint32_t> defined_bits;  // empty: all
};

// An independent seed for each index.
uint64_t SeedOf(uint64_t base, uint64_t index);

// Small vocabularies mostly, in which every rule's edge is near; [1, max_size].
int32_t RandomVocabSize(uint64_t seed, int32_t max_size);
// All ids defined, or four of five.
RandomVocabulary MakeRandomVocabulary(uint64_t seed, int32_t size);

// Rows with ties, zeros of both signs, huge and tiny logits, rarely one that is not finite;
// parameters at and beyond the edges of every rule; list sizes from 1 + 1 to beyond the row.
RandomCase MakeRandomCase(uint64_t seed, const RandomVocabulary& vocabulary);
// The same with finite logits and a vocabulary of its own.
RandomCase MakeRandomCase(std::mt19937_64& random, int32_t max_vocab);

// The case as a line that makes it again.
std::string Reproducer(uint64_t vocabulary_seed, int32_t vocab_size, uint64_t case_seed);

inline Decider MakeDecider(const RandomCase& it) {
  return Decider(it.parameters, it.choice, it.prompt_length, it.tokens, it.vocab_size,
                 it.defined_bits);
}

}  // namespace tandem::test
