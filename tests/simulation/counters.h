// How often a simulation did what: a test that never met a case has not tested it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::test {

enum class Counter : uint8_t {
  kRequests,
  kFinished,
  kClosedQueued,
  kClosedPrefill,
  kClosedWaiting,
  kClosedInFlight,
  kDuplicateCloses,
  kDuplicateExtends,
  kLateCommands,  // for handles that are closed
  kExtends,
  kDrawsTaken,
  kOtherTokens,
  kSeveralTokens,
  kRewinds,
  kBlindExtends,    // of tokens whose draws were not received
  kNeedlessEpochs,  // epoch + 1 where the current one would do
  kStaleCandidates,
  kUndecided,
  kRunAheadCandidates,
  kDrafted,
  kDraftsTaken,
  kForks,
  kFetchedMore,
  kFetchedIds,
  kFetchedRow,
  kFetchesCut,
  kHits,
  kLateHits,
  kRefusedBadCommand,
  kRefusedNeverFits,
  kRefusedQueueFull,
  kGaveUp,
  kExpired,
  kPreempted,
  kReopened,
  kStreamsLost,
  kDrains,
  kDrainedQueued,
  kDrainedRunning,
  kSteps,
  kRows,
  kPrefillEvents,
  kPromptLogprobs,       // positions
  kPromptLogprobsAgain,  // Opens that asked for the rest
  kPromptLogprobsMoved,  // to the next choice, when the one that computed them ended
  kCommands,
  kEvents,
  kEnd,
};
std::string_view Name(Counter counter);

class Counters final {
 public:
  void Add(Counter counter, int64_t n = 1) { values_[static_cast<size_t>(counter)] += n; }
  int64_t of(Counter counter) const { return values_[static_cast<size_t>(counter)]; }
  void Add(const Counters& other) {
    for (size_t i = 0; i < values_.size(); ++i) values_[i] += other.values_[i];
  }
  // "name value" of each, one a line.
  std::string ToString() const;

 private:
  std::array<int64_t, static_cast<size_t>(Counter::kEnd)> values_{};
};

}  // namespace tandem::test
