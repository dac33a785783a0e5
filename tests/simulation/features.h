// What a scenario may contain, as a set that can be made smaller: to test an engine that lacks
// something, and to shrink a failure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::test {

enum class Feature : uint8_t {
  // What is expected of the engine.
  kRunAhead,   // sessions with run_ahead > 0
  kDrafts,     // and with drafts
  kCache,      // cached pages may be found
  kEpochs,     // an Extend may name tokens whose draws were not received
  kFairQueue,  // no stream's opens wait for all of another's
  kVictims,    // the youngest is preempted, and one at a time
  kDrain,      // a drain hands over at a bounded rate, the youngest first
  // What the requests do.
  kChoices,
  kGrow,
  kRewind,
  kSeveral,
  kFetch,
  kCancel,
  kMisbehave,
  kDeadlines,
  kPriorities,
  kEcho,  // prompts made of earlier outputs
  kPromptLogprobs,
  // What happens around them.
  kReplicas,
  kStreamLoss,
  kSlow,
  kTightPools,
  kTwoSteps,
  kCollisions,
  kEnd,
};
std::string_view Name(Feature feature);

class Features final {
 public:
  static Features All();
  // Names with commas; "all" stands for all, a name with a leading '-' takes one out. False: an
  // unknown name.
  static bool Parse(std::string_view text, Features* features);

  bool has(Feature feature) const { return (bits_ >> static_cast<int>(feature) & 1) != 0; }
  Features Without(Feature feature) const;
  // In the form that Parse takes.
  std::string ToString() const;
  friend bool operator==(const Features&, const Features&) = default;

 private:
  uint32_t bits_ = 0;
};

}  // namespace tandem::test
