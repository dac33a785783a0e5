// When a choice that has lost its worker may be opened again, and when it is given up: what one
// choice remembers of the workers that had it.
//
// Counted as a try: a lost worker and a fault. Not counted: a drain, an eviction, a full queue, a
// client that did not read; there is no limit to how often they may come to a request that goes
// on. What comes again before another token was decided waits, 10 ms at first, doubling to 250 ms;
// and once a choice has waited for ReplayPolicy::wait without a token, for whatever reason but the
// turns of others, it is given up. So nothing goes round in a circle.
//
// No clock, no thread, no network. Not thread-safe: its choice owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/clock.h"

namespace tandem::text {

struct ReplayPolicy {
  // How often a choice is opened again after a lost worker or a fault; 0: it is never opened again,
  // whatever its worker does.
  int32_t tries = 3;
  // How long a choice waits for a worker that takes it, since its last token.
  Nanos wait = 30 * kNanosPerSecond;
};

class Replay final {
 public:
  enum class Cause : uint8_t {
    kLost,       // the connection has ended
    kFault,      // the worker's own error
    kDraining,   // the worker goes away
    kPreempted,  // its pages were needed
    kRefused,    // the worker has no room for one that was opened before
    kUnread,     // its client does not read
  };
  static constexpr size_t kNumCauses = 6;
  static constexpr Nanos kFirstPause = kNanosPerSecond / 100;
  static constexpr Nanos kLongestPause = kNanosPerSecond / 4;

  explicit Replay(const ReplayPolicy& policy) : policy_(policy) {}

  // An Open is on its way to this connection.
  void OnPlaced(uint64_t connection, Nanos now);
  // The choice is on no worker any more. tokens: how many it has. OK: it may be opened again from
  // next_attempt() on. Else the end of it: `why`, with what happened before.
  absl::Status OnUnplaced(Cause cause, const absl::Status& why, int32_t tokens, Nanos now);
  // No worker could take it, or each has enough that others want to open again (busy), which is
  // only a matter of time. As OnUnplaced.
  absl::Status OnNoPlace(const absl::Status& why, bool busy, Nanos now);

  // It was not to be opened until now, so that it has not waited either.
  void OnWanted(Nanos now) { unplaced_at_ = now; }

  bool placed_before() const { return placed_before_; }
  Nanos next_attempt() const { return next_attempt_; }
  // The connection that it was on last and should not go to again; 0: none.
  uint64_t avoid() const { return avoid_; }
  // Tries used.
  int32_t tries() const { return tries_; }
  // What it left its last worker for.
  Cause cause() const { return cause_; }
  // Why it is opened again.
  const std::string& reason() const { return reason_; }

 private:
  static constexpr size_t kRemembered = 8;

  void Pause(Nanos now);
  absl::Status WithHistory(const absl::Status& why) const;

  const ReplayPolicy policy_;
  bool placed_before_ = false;
  uint64_t connection_ = 0;
  uint64_t avoid_ = 0;
  int32_t tries_ = 0;
  int32_t failures_ = 0;              // that came to the choice, but for an unread client
  std::vector<std::string> history_;  // of the last kRemembered of them
  Cause cause_ = Cause::kLost;
  std::string reason_;
  int32_t tokens_ = -1;     // at the last failure
  Nanos pause_ = 0;         // of the last wait
  Nanos next_attempt_ = 0;  // 0: at once
  Nanos unplaced_at_ = 0;
  Nanos waited_ = 0;  // before unplaced_at_, without a token
};

}  // namespace tandem::text
