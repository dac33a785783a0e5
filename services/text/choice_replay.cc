// Choices that come to a worker, leave it, and are opened again.
#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/status.h"
#include "services/common/decode_codec.h"
#include "services/text/choice.h"

namespace tandem::text {
namespace {

namespace pb = decode::v1;
using Cause = Replay::Cause;

// How long a worker is asked to keep the pages of a choice whose client does not read.
constexpr Nanos kParkedRetain = 60 * kNanosPerSecond;

}  // namespace

void Choice::Place(uint64_t connection, int64_t ticket, const WorkerLimits& worker,
                   bool approximate, Nanos now) {
  TANDEM_CHECK(wants_worker()) << "it is on a worker, paused or finished";
  state_ = State::kQueued;
  connection_ = connection;
  ticket_ = ticket;
  limits_ = worker;
  asked_at_ = now;
  if (replay_.placed_before()) {
    counters_.set_reopened(counters_.reopened() + 1);
    if (approximate) counters_.set_approximate(counters_.approximate() + 1);
  }
  replay_.OnPlaced(connection, now);
}

void Choice::OnNoPlace(const absl::Status& why, bool busy, Nanos now, SessionOutput* out) {
  if (!wants_worker()) return;
  const absl::Status status = replay_.OnNoPlace(why, busy, now);
  if (!status.ok()) Finish(v1::FINISH_REASON_ERROR, status, now, out);
}

void Choice::ForgetWorker() {
  handle_ = 0;
  epoch_ = 0;
  goes_on_ = false;
  pending_.clear();
  row_.clear();
  fetch_top_ = fetch_perturbed_ = 0;
}

void Choice::Unplace(Cause cause, const absl::Status& why, Nanos now, SessionOutput* out) {
  if (!placed()) return;
  out->unplaced = true;
  state_ = State::kUnplaced;
  ForgetWorker();
  const absl::Status status = replay_.OnUnplaced(cause, why, decider_.position(), now);
  if (!status.ok()) Finish(v1::FINISH_REASON_ERROR, status, now, out);
}

void Choice::Park(Nanos now, SessionOutput* out) {
  if (!placed()) return;
  Close(std::min(kParkedRetain, limits_.max_retain), out);
  Unplace(Cause::kUnread, absl::UnavailableError("the client did not read"), now, out);
}

void Choice::Close(Nanos retain, SessionOutput* out) {
  if (handle_ == 0) return;
  pb::Close* close = AddCommand(out)->mutable_close();
  close->set_handle(handle_);
  if (retain > 0) ToProto(retain, close->mutable_retain());
  handle_ = 0;
}

bool Choice::AwaitsSince(uint64_t connection, Nanos since) const {
  if (!IsOn(connection) || asked_at_ > since) return false;
  return state_ != State::kWaiting || (!paused_ && pending_.empty());
}

void Choice::OnClosed(const pb::Closed& event, Nanos now, SessionOutput* out) {
  handle_ = 0;
  if (!placed()) return;
  const std::string& detail = event.detail();
  switch (event.reason()) {
    case pb::CLOSE_REASON_EXPIRED:
      return Finish(v1::FINISH_REASON_DEADLINE,
                    absl::DeadlineExceededError("the deadline passed at the worker"), now, out);
    case pb::CLOSE_REASON_REFUSED:
      // Once admitted, a command of ours was bad. Before, it is a lack of room: the end of a
      // request that never ran, but no reason to lose one that did.
      if (state_ != State::kQueued) {
        return Finish(v1::FINISH_REASON_ERROR, Internal("the worker refused: ", detail), now, out);
      }
      if (counters_.reopened() == 0) {
        return Finish(v1::FINISH_REASON_ERROR, ResourceExhausted("the worker refused: ", detail),
                      now, out);
      }
      return Unplace(Cause::kRefused, ResourceExhausted("the worker refused: ", detail), now, out);
    case pb::CLOSE_REASON_PREEMPTED:
      return Unplace(Cause::kPreempted, ResourceExhausted("the worker has no page left: ", detail),
                     now, out);
    case pb::CLOSE_REASON_DRAINING:
      return Unplace(Cause::kDraining, absl::UnavailableError("the worker is draining"), now, out);
    case pb::CLOSE_REASON_FAULT:
      return Unplace(Cause::kFault, Internal("the worker had a fault: ", detail), now, out);
    case pb::CLOSE_REASON_NON_FINITE:
      return Finish(v1::FINISH_REASON_ERROR, Internal("not finite: ", detail), now, out);
    default:
      return Finish(v1::FINISH_REASON_ERROR,
                    Internal("the worker closed the session (",
                             pb::CloseReason_Name(event.reason()), "): ", detail),
                    now, out);
  }
}

}  // namespace tandem::text
