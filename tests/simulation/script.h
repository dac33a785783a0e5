// What the text tier decides for one sequence, as a function of the request alone: neither time nor
// what happens to other requests changes a token. So a request that is opened again, anywhere, has
// to end with the same list.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "engine/sampling/parameters.h"

namespace tandem::test {

// One choice of a request.
struct SequenceSpec {
  uint64_t id = 0;  // unique
  uint32_t choice = 0;
  std::vector<int32_t> prompt;
  int32_t max_new = 0;   // 0: grows
  int32_t target = 0;    // it ends when it is so long; more than the prompt
  int32_t max_back = 0;  // tokens below the longest that a rewind reaches
  bool rewinds = false;
  bool several = false;
  SamplingParameters sampling;
  int32_t priority = 0;
  Nanos patience = 0;  // deadline, from the first open on; 0: none
  int32_t run_ahead = 0;
  int32_t drafts = 0;
  bool use_cache = true;
  std::string salt;
  bool prompt_logprobs = false;
  int32_t prompt_raw_top = 0;
};

class Script final {
 public:
  explicit Script(const SequenceSpec& spec);

  // "From position on, the list is these tokens."
  struct Action {
    enum class Kind : uint8_t { kDraw, kOther, kSeveral, kRewind };
    Kind kind = Kind::kDraw;
    int32_t position = 0;
    std::vector<int32_t> tokens;
  };
  // Whether the next action depends on the draw.
  bool NeedsDraw() const;
  // Decides what follows the list, given the draw (-1: undecided), and does it to the list.
  // REQUIRES !done().
  Action Next(int32_t draw);

  const std::vector<int32_t>& list() const { return list_; }
  int32_t size() const { return static_cast<int32_t>(list_.size()); }
  int32_t longest() const { return longest_; }
  bool done() const { return size() >= target_; }

 private:
  Action::Kind KindOf(uint64_t hash) const;
  uint64_t Decision() const;
  int32_t RewindTo(uint64_t hash) const;

  uint64_t seed_;
  int32_t target_;
  int32_t max_back_;
  bool rewinds_;
  bool several_;
  std::vector<int32_t> list_;
  int32_t longest_;
  int32_t num_rewinds_ = 0;
};

// The list that the sequence ends with, by the oracle alone.
std::vector<int32_t> FinalList(const SequenceSpec& spec);
// Of the parameters that a slot holds beside seed and choice.
uint64_t EditsOf(const SamplingParameters& sampling, int32_t prompt_length);

}  // namespace tandem::test
