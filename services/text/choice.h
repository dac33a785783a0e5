// One choice of a request: the state machine between a worker's candidates and a client's text.
//
//   kUnplaced  Place                        -> kQueued
//   kQueued    Opened                       -> kWaiting
//   kWaiting   Candidates, decided          -> kWaiting (Extend), or kFinished (Close)
//              Candidates, not decided      -> kFetching (Fetch wider lists, or the row)
//   kFetching  Fetched, decided             -> kWaiting (Extend), or kFinished (Close)
//              Fetched, not decided         -> kFetching (Fetch more)
//   placed     lost, drained, evicted, ...  -> kUnplaced, or kFinished if it is given up
//   any        other Closed, cancel, ...    -> kFinished
//
// The choice is the authority on its tokens: it holds all of them, so that it can be opened again
// on another worker. Noise belongs to the position, so the tokens are those that it would have had;
// what the first worker sent that is not decided yet is dropped, and epochs begin again. When it
// may be opened again, and how often, is Replay's.
//
// Deciding: the worker's lists first (Decider); where they do not decide, wider ones, K' doubled up
// to the worker's limit, then K; then the whole row. After a fault (an entry is not what this side
// computes) every position is decided from its row.
//
// Run-ahead: a worker sends candidates of up to run_ahead + 1 positions before the first of them is
// confirmed. They wait here and are decided in order. What is decided goes out as Extend, positions
// that one input decides as one. An Extend names only positions whose candidates are here, so that
// its sender knows whether it cuts: one whose last token differs from the worker's draw carries the
// next epoch, and what waits or comes of an older epoch is dropped. Behind a position without a
// draw the worker holds nothing, so that any token there is no difference.
//
// All tokens decided, the last one too, count as output and are reported with token_ids, also where
// text was cut: they are what the worker's sequence holds. The text that a token completes, and
// that its end gives out, goes out in one message with it: OutputText.
// Close goes out with the decision that ends the choice, and whatever the worker sends after it is
// ignored.
//
// Paused (its client does not read), a choice keeps what arrives, at most run_ahead + 1 positions,
// and decides nothing, so that it is not extended.
//
// No clock, no thread, no network: inputs are calls, outputs are appended to a SessionOutput.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/clock.h"
#include "engine/sampling/decision.h"
#include "services/text/logprobs.h"
#include "services/text/output_text.h"
#include "services/text/recycled.h"
#include "services/text/replay.h"
#include "services/text/request.h"
#include "tandem/decode/v1/decode.pb.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::text {

struct WorkerCommand {
  uint64_t connection = 0;
  decode::v1::Command command;
};

inline void Reuse(WorkerCommand* command) { Reuse(&command->command); }

// What a session asks of the world in answer to one input, in order. To be used again: once warm,
// an input that decides a token allocates nothing.
struct SessionOutput {
  RecycledVector<WorkerCommand> commands;         // for its workers
  RecycledVector<v1::GenerateResponse> messages;  // for its client
  bool unplaced = false;                          // a choice has left its worker
  void clear() {
    commands.clear();
    messages.clear();
    unplaced = false;
  }
};

class Choice final {
 public:
  // request must outlive this. index: which choice of the request.
  Choice(const GenerationRequest& request, int32_t index, const ReplayPolicy& policy);
  Choice(const Choice&) = delete;
  Choice& operator=(const Choice&) = delete;

  // Finishes it if the tokens that it begins with end its output; a client has their text.
  void FinishIfComplete(Nanos now, SessionOutput* out);

  // It is to be opened, once replay().next_attempt() has come.
  bool wants_worker() const { return state_ == State::kUnplaced && !paused_; }
  // An Open with this ticket is on its way. worker: the limits of the one that it goes to.
  // approximate: its numerics are not those of the tokens so far. REQUIRES wants_worker().
  void Place(uint64_t connection, int64_t ticket, const WorkerLimits& worker, bool approximate,
             Nanos now);
  // No worker takes it now.
  void OnNoPlace(const absl::Status& why, bool busy, Nanos now, SessionOutput* out);
  // The worker knows it by this handle from now on. REQUIRES it has this ticket.
  void SetHandle(uint64_t handle) { handle_ = handle; }
  // Its Open with this ticket was sent, and nothing has ended that since.
  bool has_ticket(int64_t ticket) const { return placed() && ticket_ == ticket; }
  // It leaves its worker, where it needs no Close. Nothing if it is on none.
  void Unplace(Replay::Cause cause, const absl::Status& why, Nanos now, SessionOutput* out);
  // Closes it at its worker, which is asked to keep its pages for a while; it is opened again once
  // it is not paused any more. Nothing if it is on none.
  void Park(Nanos now, SessionOutput* out);

  void OnOpened(const decode::v1::Opened& event, Nanos now);
  void OnPrefill(const decode::v1::Prefill& event);
  void OnCandidates(const decode::v1::Candidates& event, Nanos now, SessionOutput* out);
  void OnFetched(const decode::v1::Fetched& event, Nanos now, SessionOutput* out);
  void OnClosed(const decode::v1::Closed& event, Nanos now, SessionOutput* out);

  // Ends it from outside; nothing if it has ended. status is what becomes of the request if this is
  // its first failure.
  void Finish(v1::FinishReason reason, absl::Status status, Nanos now, SessionOutput* out);
  void SetPaused(bool paused, Nanos now, SessionOutput* out);

  // Was once admitted by a worker.
  bool opened() const { return opened_at_ >= 0; }
  bool placed() const { return state_ != State::kUnplaced && state_ != State::kFinished; }
  // The worker that it is on.
  bool IsOn(uint64_t connection) const { return placed() && connection_ == connection; }
  bool IsAt(uint64_t connection, uint64_t handle) const {
    return IsOn(connection) && handle_ == handle && handle != 0;
  }
  // It has waited for that worker's answer since `since` or longer.
  bool AwaitsSince(uint64_t connection, Nanos since) const;
  bool finished() const { return state_ == State::kFinished; }
  // OK, or why it finished with an error.
  const absl::Status& status() const { return status_; }
  // Prompt and output so far.
  const std::vector<int32_t>& tokens() const { return decider_.tokens(); }
  int32_t output_tokens() const { return output_.num_tokens(); }
  const v1::Counters& counters() const { return counters_; }
  // Tokens that its worker had drawn as well, so that it went on without waiting for them.
  int64_t confirmed_draws() const { return confirmed_draws_; }
  // Prompt tokens that were found in a worker's cache.
  int32_t cached_tokens() const { return cached_tokens_; }
  // When the last token was decided; -1: none yet.
  Nanos last_token_at() const { return last_token_at_; }
  // Since when it has had nothing to decide and waits for its worker; -1: it does not.
  Nanos idle_since() const {
    return state_ == State::kWaiting && !paused_ && pending_.empty() ? asked_at_ : -1;
  }
  // When the first Fetch of the position that is being fetched went out; -1: none is.
  Nanos fetching_since() const { return state_ == State::kFetching ? fetching_since_ : -1; }
  // UNSPECIFIED until it has finished.
  v1::FinishReason finish_reason() const { return finish_reason_; }
  const Replay& replay() const { return replay_; }

 private:
  enum class State : uint8_t { kUnplaced, kQueued, kWaiting, kFetching, kFinished };

  struct Pending {  // what a worker sent for one position
    int32_t position = 0;
    int32_t drawn = -1;
    Candidates candidates;
  };

  bool InEpoch(uint32_t epoch, Nanos now, SessionOutput* out);
  void DecideWhatIsPending(Nanos now, SessionOutput* out);
  void Act(const Decision& decision, Nanos now, SessionOutput* out);
  void FetchMore(Nanos now, SessionOutput* out);
  void FetchRow(Nanos now, SessionOutput* out);
  decode::v1::Fetch* AddFetch(Nanos now, SessionOutput* out);
  void OnFetchedRow(const decode::v1::Fetched::Values& values, Nanos now, SessionOutput* out);
  // A token is decided; pending_.front() is the position's.
  void Take(int32_t token, Nanos now, SessionOutput* out);
  // Joins the Extend of the position before, where that is the last command.
  void Extend(int32_t token, bool differs, SessionOutput* out);
  void EmitToken(int32_t token, std::string text, std::optional<v1::PositionLogprobs> logprobs,
                 SessionOutput* out);
  // The delta of the tokens that stream_interval holds back.
  void EmitHeld(SessionOutput* out);
  std::optional<v1::PositionLogprobs> LogprobsOf(int32_t token) const;
  // Of the position's token, before anything of the position is dropped.
  void FillDetail(int32_t token, Nanos now, v1::TokenDetail* out) const;
  decode::v1::Command* AddCommand(SessionOutput* out) const;
  void Close(Nanos retain, SessionOutput* out);
  // Forgets what its worker sent and was told.
  void ForgetWorker();
  void EmitFinished(v1::FinishReason reason, Nanos now, SessionOutput* out);
  // A worker that breaks the protocol costs its session, nothing else.
  void Broken(std::string what, Nanos now, SessionOutput* out);

  const GenerationRequest& request_;
  const int32_t index_;
  State state_ = State::kUnplaced;
  bool paused_ = false;
  Replay replay_;

  // Of the worker that it is on.
  uint64_t connection_ = 0;
  int64_t ticket_ = 0;
  uint64_t handle_ = 0;  // 0: none yet, or no longer live
  WorkerLimits limits_;
  uint32_t epoch_ = 0;
  Nanos asked_at_ = 0;    // when the worker was last asked for something
  bool goes_on_ = false;  // it drew the last token itself, and need not be told to go on

  OutputText output_;
  Decider decider_;
  RecycledQueue<Pending> pending_;  // in position order; the first is the next to be decided
  int32_t fetch_top_ = 0;           // sizes of the lists that were asked for
  int32_t fetch_perturbed_ = 0;
  bool fetching_row_ = false;
  bool by_row_ = false;     // after a fault
  std::vector<float> row_;  // received so far; whole once the decision is made from it

  v1::Delta held_;  // of held_tokens_ tokens, until they are stream_interval
  int32_t held_tokens_ = 0;

  int32_t cached_tokens_ = 0;
  absl::Status status_;
  v1::FinishReason finish_reason_ = v1::FINISH_REASON_UNSPECIFIED;
  v1::Counters counters_;
  int64_t confirmed_draws_ = 0;
  Nanos fetching_since_ = -1;
  Nanos opened_at_ = -1;  // -1: not yet
  Nanos first_candidates_at_ = -1;
  Nanos first_token_at_ = -1;
  Nanos last_token_at_ = -1;
};

}  // namespace tandem::text
