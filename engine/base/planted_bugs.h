// Bugs that the simulation plants to show that it finds them. Only its own build of the engine
// (tests/simulation) has them: everywhere else Planted is a constant false and costs nothing.
#pragma once

#include <cstdint>

namespace tandem {

// Each names what goes wrong where it stands.
enum class Bug : uint8_t {
  kNone,
  // cache
  kWriteSharedPage,         // a write into a shared page, without a copy
  kCopyOneTokenLess,        // a copied page lacks its last token
  kForkForgetsPartialPage,  // a fork gets a page for the partial one, but not its tokens
  kHitWithoutCompare,       // a hash hit whose ids are not compared
  kHitIgnoresSalt,          // pages of another salt are reused
  kHitCoversWholePrompt,    // no row is left for the logits
  kRewindKeepsIndexed,      // a page that is written again stays in the index
  kIndexUnconfirmed,        // pages of drawn tokens are indexed
  kEvictKeepsIndexed,       // an evicted page stays in the index
  kOvercommit,              // admission counts promised pages as available
  kRetainForever,           // retained pages are never given up
  // engine
  kReleaseInFlight,      // pages go back while a step that uses them is in flight
  kCutKeepsComputed,     // rows behind a cut count as computed
  kCutKeepsUploaded,     // the device keeps tokens behind a cut
  kStaleTable,           // a slot keeps the last session's page table
  kOldEpochSent,         // results of rows from before a cut are sent
  kIdleRowCounts,        // the row behind an undecided draw counts as computed
  kRunAheadUnbounded,    // rows run ahead beyond the session's limit
  kDraftsUncounted,      // rows of drafts count the tokens without the drafts before them
  kDraftSentAsDrawn,     // Candidates say the draft in place of the draw
  kRejectedRowsSent,     // results of rows behind the first draft that is not drawn are sent
  kRejectedRowCounts,    // the row of a draft that is not drawn counts as computed
  kDraftsPassRunAhead,   // rows of drafts run ahead beyond the session's limit
  kPromptRowsFound,      // pages are found for rows of a prompt whose logprobs are wanted
  kPromptRowsLost,       // such rows in flight go with the choice that computed them
  kCloseTwice,           // a session that ends in a step is closed again
  kQueuedCloseLost,      // Close of a queued session is not answered
  kStreamEventsSurvive,  // events of an ended stream are given out
  // scheduler
  kQueueIgnoresDeadline,  // expired opens are admitted
  kPreemptOldest,         // the oldest session is preempted
  kPreemptCascade,        // a new victim at each step, while pages are on their way back
  kStarvePrefill,         // decode rows may take all rows of every step
  kUnfairQueue,           // one stream's opens go before another's
  kDrainAtOnce,           // a drain hands over everything at once
  kEnd,                   // none; how many there are
};

#ifdef TANDEM_PLANTED_BUGS
inline Bug planted_bug = Bug::kNone;
inline bool Planted(Bug bug) { return planted_bug == bug; }
#else
constexpr bool Planted(Bug) { return false; }
#endif

}  // namespace tandem
