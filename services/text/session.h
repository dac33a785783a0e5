// One request: its choices over one prompt, from the Open to the end of the client's stream.
//
// Messages: Started with the first choice that a worker admits, Progress and what the client wants
// to hear of the prompt while it is read (PromptOutput), then each choice's deltas and Finished.
// What ends before Started has no message, only the status. `done` once every choice has finished;
// the stream's status is then OK, or that of the first choice that failed: a choice that fails
// leaves the others running. A deadline is a finish reason and no error, once Started has gone out.
//
// Choices begin on one worker, with one Open. One that has lost its worker is opened again, with
// all its tokens, alone or with those beside it that have no output yet; so choices may come to be
// on several workers. Whoever drives the session asks it for openings, finds workers for them, and
// gives each Open's handles back.
//
// A client that does not read for kParkAfter has its choices closed, so that their pages serve
// others, and opened again once it reads.
//
// No clock, no thread, no network. Not thread-safe: a shard owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/clock.h"
#include "services/text/choice.h"
#include "services/text/prompt_output.h"
#include "services/text/request.h"
#include "tandem/decode/v1/decode.pb.h"

namespace tandem::text {

class Session final {
 public:
  // Of the Open's tokens, and of each OpenMore's: both fit into a frame.
  static constexpr int32_t kTokensPerCommand = 16384;

  static constexpr Nanos kParkAfter = 2 * kNanosPerSecond;

  // Choices that one Open is to open.
  struct Opening {
    int64_t ticket = 0;  // from Open on: which Open it is
    int32_t first_choice = 0;
    int32_t choices = 1;
    bool again = false;  // a worker had them before
    uint64_t avoid = 0;  // a connection that should not have them; 0: none
  };

  explicit Session(GenerationRequest request, const ReplayPolicy& policy = ReplayPolicy());
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Call first. Ends a request whose output is complete: resumed behind its last token.
  void Begin(Nanos now, SessionOutput* out);

  // What is to be opened now, if anything. Each time it is to be answered with Open or OnNoWorker.
  std::optional<Opening> NextOpening(Nanos now) const;
  // Adds Open, and OpenMore as often as needed, with first_handle 0: whoever sends them gives the
  // handles, which rise over a stream that sessions share. worker: the model as the one that it
  // goes to serves it. Returns the opening with its ticket.
  Opening Open(const Opening& opening, uint64_t connection, const ServedModel& worker, Nanos now,
               SessionOutput* out);
  // None can be had. busy: only because many are being opened again.
  void OnNoWorker(const Opening& opening, const absl::Status& why, bool busy, Nanos now,
                  SessionOutput* out);
  // The handles are first_handle and the choices - 1 behind it. Those of choices that have ended
  // since are closed.
  void SetHandles(const Opening& opening, uint64_t connection, uint64_t first_handle,
                  SessionOutput* out);

  // The choice that is there now; -1: none, so that what comes from there is stale.
  int32_t ChoiceAt(uint64_t connection, uint64_t handle) const;
  // choice: ChoiceAt the event's handle. REQUIRES 0 <= choice < choices.
  void OnEvent(const decode::v1::Event& event, int32_t choice, Nanos now, SessionOutput* out);
  // Every choice that is there leaves it.
  void OnWorkerLost(uint64_t connection, const absl::Status& status, Nanos now, SessionOutput* out);
  // Some choice there has waited for the worker's answer since `since`, or longer.
  bool AwaitsSince(uint64_t connection, Nanos since) const;
  // CANCELLED for every choice that runs; status becomes the stream's.
  void Cancel(const absl::Status& status, Nanos now, SessionOutput* out);
  // When OnTimer and NextOpening are to be asked next, if nothing comes before; kNoDeadline: never.
  Nanos NextTimer() const;
  // DEADLINE for every choice that runs, if it has passed; closes choices of a client that does not
  // read.
  void OnTimer(Nanos now, SessionOutput* out);
  // While paused nothing is decided, so that no more messages come (but for the end, and what a
  // worker sends of the prompt until its choices are closed).
  void SetPaused(bool paused, Nanos now, SessionOutput* out);

  bool done() const;
  // REQUIRES done().
  absl::Status FinalStatus() const;
  bool started() const { return started_; }
  // Of the worker that its tokens began on; empty: none yet.
  const std::string& numerics_fingerprint() const { return numerics_fingerprint_; }
  const GenerationRequest& request() const { return request_; }
  const Choice& choice(int32_t index) const { return *choices_[index]; }

 private:
  void FinishAll(v1::FinishReason reason, const absl::Status& status, Nanos now,
                 SessionOutput* out);
  void Start(int32_t cached_tokens, SessionOutput* out);
  void OnPrefill(const decode::v1::Prefill& event, Choice& target, SessionOutput* out);
  void OnPromptLogprobs(const decode::v1::PromptLogprobs& event, Choice& target, Nanos now,
                        SessionOutput* out);
  // Whether the prompt's logprobs are here, as they must be before anything is decided; if not, it
  // is the end of the choice.
  bool HasPromptLogprobs(Choice& target, Nanos now, SessionOutput* out);
  std::vector<int32_t> RunningChoices() const;

  const GenerationRequest request_;
  std::vector<std::unique_ptr<Choice>> choices_;
  PromptOutput prompt_;
  // Of the worker that Started names; before Started, of the one that it was opened on last.
  std::string weights_fingerprint_;
  std::string numerics_fingerprint_;
  Nanos first_opened_at_ = -1;  // -1: never
  int64_t last_ticket_ = 0;
  bool started_ = false;
  Nanos paused_at_ = -1;   // -1: it is not
  int32_t progress_ = -1;  // tokens of the last Progress
};

}  // namespace tandem::text
