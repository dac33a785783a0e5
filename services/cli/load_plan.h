// What a bench sends, and when: the same for the same seed, on every machine.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/clock.h"

namespace tandem::cli {

// Poisson arrivals: the gaps are independent and exponential, with mean 1 / rate.
class PoissonArrivals final {
 public:
  // rate: a second, > 0.
  PoissonArrivals(double rate, uint64_t seed) : rate_(rate), random_(seed) {}
  // Time of the next arrival since the start, not falling.
  Nanos Next();

 private:
  const double rate_;
  std::mt19937_64 random_;
  double seconds_ = 0.0;
};

// Text, or token ids where there are any.
struct BenchPrompt {
  std::string text;
  std::vector<int32_t> ids;
};

struct RandomPrompts {
  int32_t tokens = 0;          // of a prompt, at least 1
  int32_t shared_prefix = 0;   // its first tokens, the same in all: [0, tokens]
  int32_t vocab_size = 0;      // ids are below
  std::vector<int32_t> avoid;  // ids that do not occur: not all there are
};

// Thread-safe.
class PromptSource final {
 public:
  // INVALID_ARGUMENT: sizes outside of the above.
  static absl::StatusOr<PromptSource> Random(RandomPrompts prompts, uint64_t seed);
  // The prompts of a file, one a line, in order and again from the beginning. A line that begins
  // with '{' or '"' is JSON: a string, or an object with "prompt" (or "text"), a string or an array
  // of ids; other lines are text as they are. Empty lines are left out. INVALID_ARGUMENT names the
  // line; NOT_FOUND: the file cannot be read; RESOURCE_EXHAUSTED: more than 256 MiB.
  static absl::StatusOr<PromptSource> FromFile(const std::string& path);

  // Of request `number`, from 0.
  BenchPrompt Get(int64_t number) const;

 private:
  PromptSource() = default;
  std::vector<BenchPrompt> fixed_;
  RandomPrompts random_;
  uint64_t seed_ = 0;
  std::vector<int32_t> prefix_;
};

}  // namespace tandem::cli
