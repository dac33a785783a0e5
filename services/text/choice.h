// One choice of a request: the state machine between a worker's candidates and a client's text.
//
//   kQueued    Opened                       -> kWaiting
//   kWaiting   Candidates, decided          -> kWaiting (Extend), or kFinished (Close)
//              Candidates, not decided      -> kFetching (Fetch wider lists, or the row)
//   kFetching  Fetched, decided             -> kWaiting (Extend), or kFinished (Close)
//              Fetched, not decided         -> kFetching (Fetch more)
//   any        Closed, cancel, deadline, ... -> kFinished
//
// The choice is the authority on its tokens: it holds all of them, so that it could be opened again
// on another worker.
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
// Ending, in the order of precedence at one token: a stop token id, an end token, a stop string,
// max_tokens, the context. A stop token's text stays out unless include_stop; the text of the
// model's end tokens always does. What the stop matcher and the detokenizer hold back is given out
// on every end but a stop string. All tokens decided, the last one too, count as output and are
// reported with token_ids, also where text was cut: they are what the worker's sequence holds.
// Close goes out with the decision that ends the choice, and whatever the worker sends after it is
// ignored.
//
// Paused (its client does not read), a choice keeps what arrives, at most run_ahead + 1 positions,
// and decides nothing, so that it is not extended.
//
// No clock, no thread, no network: inputs are calls, outputs are appended to a SessionOutput.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/clock.h"
#include "engine/sampling/decision.h"
#include "engine/text/detokenizer.h"
#include "engine/text/stop_matcher.h"
#include "services/text/logprobs.h"
#include "services/text/request.h"
#include "tandem/decode/v1/decode.pb.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::text {

// What a session asks of the world in answer to one input, in order.
struct SessionOutput {
  std::vector<decode::v1::Command> commands;   // for its worker
  std::vector<v1::GenerateResponse> messages;  // for its client
};

class Choice final {
 public:
  // request must outlive this. index: which choice, which is also its Philox choice.
  Choice(const GenerationRequest& request, int32_t index);
  Choice(const Choice&) = delete;
  Choice& operator=(const Choice&) = delete;

  // The worker knows it by this handle from now on.
  void SetHandle(uint64_t handle) { handle_ = handle; }

  void OnOpened(const decode::v1::Opened& event, Nanos now);
  void OnPrefill(const decode::v1::Prefill& event);
  void OnCandidates(const decode::v1::Candidates& event, Nanos now, SessionOutput* out);
  void OnFetched(const decode::v1::Fetched& event, Nanos now, SessionOutput* out);
  void OnClosed(const decode::v1::Closed& event, Nanos now, SessionOutput* out);

  // Ends it from outside; nothing if it has ended. status is what becomes of the request if this is
  // its first failure.
  void Finish(v1::FinishReason reason, absl::Status status, Nanos now, SessionOutput* out);
  // The worker is lost: its handle needs no Close any more.
  void ForgetHandle() { handle_ = 0; }

  void SetPaused(bool paused, Nanos now, SessionOutput* out);

  bool opened() const { return opened_at_ >= 0; }
  bool finished() const { return state_ == State::kFinished; }
  // OK, or why it finished with an error.
  const absl::Status& status() const { return status_; }
  // Prompt and output so far.
  const std::vector<int32_t>& tokens() const { return decider_.tokens(); }
  const v1::Counters& counters() const { return counters_; }

 private:
  enum class State : uint8_t { kQueued, kWaiting, kFetching, kFinished };

  struct Pending {  // what a worker sent for one position
    int32_t position = 0;
    int32_t drawn = -1;
    Candidates candidates;
  };

  bool InEpoch(uint32_t epoch, Nanos now, SessionOutput* out);
  void DecideWhatIsPending(Nanos now, SessionOutput* out);
  void Act(const Decision& decision, Nanos now, SessionOutput* out);
  void FetchMore(SessionOutput* out);
  void FetchRow(SessionOutput* out);
  decode::v1::Fetch* AddFetch(SessionOutput* out);
  void OnFetchedRow(const decode::v1::Fetched::Values& values, Nanos now, SessionOutput* out);
  // A token is decided; pending_.front() is the position's.
  void Take(int32_t token, Nanos now, SessionOutput* out);
  // Joins the Extend of the position before, where that is the last command.
  void Extend(int32_t token, bool differs, SessionOutput* out);
  void EmitToken(int32_t token, std::string text, std::optional<v1::PositionLogprobs> logprobs,
                 SessionOutput* out);
  std::optional<v1::PositionLogprobs> LogprobsOf(int32_t token) const;
  bool IsStopToken(int32_t token) const;
  bool IsEndToken(int32_t token) const;
  // The text that a stop token leaves in the output.
  std::string StopTokenText(int32_t token);
  void Close(SessionOutput* out);
  void EmitFinished(v1::FinishReason reason, Nanos now, SessionOutput* out);
  // A worker that breaks the protocol costs its session, nothing else.
  void Broken(std::string what, Nanos now, SessionOutput* out);

  const GenerationRequest& request_;
  const int32_t index_;
  State state_ = State::kQueued;
  bool paused_ = false;
  uint64_t handle_ = 0;  // 0: none, or no longer live
  uint32_t epoch_ = 0;

  Decider decider_;
  Detokenizer detokenizer_;
  StopMatcher stop_matcher_;
  std::deque<Pending> pending_;  // in position order; the first is the next to be decided
  int32_t fetch_top_ = 0;        // sizes of the lists that were asked for
  int32_t fetch_perturbed_ = 0;
  bool fetching_row_ = false;
  bool by_row_ = false;     // after a fault
  std::vector<float> row_;  // received so far; whole once the decision is made from it

  int32_t output_tokens_ = 0;
  int32_t cached_tokens_ = 0;
  int32_t stop_ = -1;  // index of the stop string that matched
  int32_t stop_token_ = -1;
  absl::Status status_;
  v1::Counters counters_;
  Nanos opened_at_ = -1;  // -1: not yet
  Nanos first_candidates_at_ = -1;
  Nanos first_token_at_ = -1;
  Nanos last_token_at_ = -1;
};

}  // namespace tandem::text
