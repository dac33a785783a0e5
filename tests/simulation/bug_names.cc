#include <iterator>

#include "tests/simulation/simulation.h"

namespace tandem::test {
namespace {

constexpr const char* kNames[] = {"None",
                                  "WriteSharedPage",
                                  "CopyOneTokenLess",
                                  "ForkForgetsPartialPage",
                                  "HitWithoutCompare",
                                  "HitIgnoresSalt",
                                  "HitCoversWholePrompt",
                                  "RewindKeepsIndexed",
                                  "IndexUnconfirmed",
                                  "EvictKeepsIndexed",
                                  "Overcommit",
                                  "RetainForever",
                                  "ReleaseInFlight",
                                  "CutKeepsComputed",
                                  "CutKeepsUploaded",
                                  "StaleTable",
                                  "OldEpochSent",
                                  "IdleRowCounts",
                                  "RunAheadUnbounded",
                                  "DraftsUncounted",
                                  "DraftSentAsDrawn",
                                  "RejectedRowsSent",
                                  "RejectedRowCounts",
                                  "DraftsPassRunAhead",
                                  "PromptRowsFound",
                                  "PromptRowsLost",
                                  "CloseTwice",
                                  "QueuedCloseLost",
                                  "StreamEventsSurvive",
                                  "QueueIgnoresDeadline",
                                  "PreemptOldest",
                                  "PreemptCascade",
                                  "StarvePrefill",
                                  "UnfairQueue",
                                  "DrainAtOnce"};
static_assert(std::size(kNames) == static_cast<size_t>(Bug::kEnd));

}  // namespace

std::string BugName(Bug bug) { return kNames[static_cast<size_t>(bug)]; }

Bug BugByName(const std::string& name) {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (name == kNames[i]) return static_cast<Bug>(i);
  }
  return Bug::kEnd;
}

}  // namespace tandem::test
