// One request: its choices over one prompt, from the Open to the end of the client's stream.
//
// Messages: Started with the first choice that a worker admits, Progress while it reads the prompt,
// then each choice's deltas and Finished. What ends before Started has no message, only the status.
// `done` once every choice has finished; the stream's status is then OK, or that of the first
// choice that failed: a choice that fails leaves the others running. A deadline is a finish reason
// and no error, once Started has gone out.
//
// A session is opened once, on one worker. It holds all tokens of all choices.
//
// No clock, no thread, no network. Not thread-safe: a shard owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/clock.h"
#include "services/text/choice.h"
#include "services/text/request.h"
#include "tandem/decode/v1/decode.pb.h"

namespace tandem::text {

class Session final {
 public:
  // Of the Open's tokens, and of each OpenMore's: both fit into a frame.
  static constexpr int32_t kTokensPerCommand = 16384;

  explicit Session(GenerationRequest request);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Adds Open, and OpenMore as often as needed, with first_handle 0: whoever sends them gives the
  // handles, which rise over a stream that sessions share. worker: the limits of the one that it
  // goes to, which may allow less run-ahead than the request asks for.
  void Open(const WorkerLimits& worker, Nanos now, SessionOutput* out);
  // The handles are first_handle and the choices - 1 behind it. A session that is done before it
  // has handles closes nothing: whoever sent its Open does.
  void SetHandles(uint64_t first_handle);

  // choice: which handle the event is for, counted from the first. REQUIRES 0 <= choice < choices.
  void OnEvent(const decode::v1::Event& event, int32_t choice, Nanos now, SessionOutput* out);
  // The worker is lost, or never was: every choice that runs ends with ERROR.
  void OnWorkerLost(const absl::Status& status, Nanos now, SessionOutput* out);
  // CANCELLED for every choice that runs; status becomes the stream's.
  void Cancel(const absl::Status& status, Nanos now, SessionOutput* out);
  // DEADLINE for every choice that runs, if it has passed.
  void OnTimer(Nanos now, SessionOutput* out);
  // While paused nothing is decided, so that no more messages come (but for the end).
  void SetPaused(bool paused, Nanos now, SessionOutput* out);

  bool done() const;
  // REQUIRES done().
  absl::Status FinalStatus() const;
  bool started() const { return started_; }
  const GenerationRequest& request() const { return request_; }
  const Choice& choice(int32_t index) const { return *choices_[index]; }

 private:
  void FinishAll(v1::FinishReason reason, const absl::Status& status, Nanos now,
                 SessionOutput* out);
  void Start(int32_t cached_tokens, SessionOutput* out);
  void OnPrefill(const decode::v1::Prefill& event, SessionOutput* out);

  const GenerationRequest request_;
  std::vector<std::unique_ptr<Choice>> choices_;
  uint64_t first_handle_ = 0;
  bool started_ = false;
  int32_t progress_ = -1;  // tokens of the last Progress
};

}  // namespace tandem::text
