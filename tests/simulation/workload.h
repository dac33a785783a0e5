// The requests of a scenario: random prompts that share prefixes, and random parameters, within
// what the scenario's engine can hold.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/decode_engine.h"
#include "tests/simulation/features.h"
#include "tests/simulation/random.h"
#include "tests/simulation/script.h"

namespace tandem::test {

// What kind of scenario it is.
struct Shape {
  enum class Pace : uint8_t {
    kSlow,   // most steps are through before the next command comes
    kHasty,  // most commands come while steps are in flight
    kBusy,   // next to no delay: there are decode rows for every step
  };
  Pace pace = Pace::kSlow;
  bool two_steps = false;     // in flight; drafts are had more often without
  int32_t grow_percent = 25;  // of requests without max_new
  int32_t longest_prompt = kFakeContext;
  int32_t shortest_new = 1;  // max_new of most requests
  int32_t longest_new = 40;
  EngineOptions options;
};
Shape RandomShape(Features features, Random* random);

class Workload final {
 public:
  Workload(uint64_t seed, const Shape& shape, Features features);

  // The choices of the next request: one, or a few with one prompt.
  std::vector<SequenceSpec> Next();
  // Tokens that some session held: later prompts may begin with them.
  void Remember(std::vector<int32_t> tokens);

 private:
  std::vector<int32_t> Prompt();
  SamplingParameters Sampling();

  Random random_;
  const Shape shape_;
  const EngineOptions& options_;
  const Features features_;
  const int32_t max_length_;  // longest sequence that surely fits
  std::vector<std::vector<int32_t>> prefixes_;
  std::vector<std::vector<int32_t>> remembered_;
  size_t next_remembered_ = 0;
  uint64_t next_id_ = 1;
};

}  // namespace tandem::test
