// One call of /v1/completions or /v1/chat/completions, from its body to its last byte: it is read,
// each of its prompts becomes a request of its own, and what they say goes out as one answer.
//
// Messages wait in each request's ClientCall until the connection has room; an event is written
// only then, so that what waits is joined, and sessions of a client that does not read are paused.
// Headers go out with the first message of a choice: what fails before has its HTTP status. A
// request that fails ends the call, and the others are cancelled; a client that goes away cancels
// all.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/clock.h"
#include "services/common/http/http_server.h"
#include "services/text/client_call.h"
#include "services/text/http/reply.h"
#include "services/text/intake.h"
#include "services/text/openai/completions.h"

namespace tandem::text {

// Thread-safe: shards, the intake's threads and the server's threads call it.
class HttpGeneration final : public HttpExchangeEvents,
                             public std::enable_shared_from_this<HttpGeneration> {
 public:
  struct Arrival {
    Endpoint endpoint = Endpoint::kCompletions;
    std::string body;
    std::string id;          // of the answer, and of a request that has no other
    std::string request_id;  // as the headers name it; empty: they do not
    Nanos received = 0;
    Nanos deadline = kNoDeadline;
    std::shared_ptr<std::atomic<int64_t>> streams;  // counts this while it is one
  };
  // Answers, at once or later. intake must outlive the call's last task.
  static void Start(Intake* intake, Arrival arrival, Reply reply);

  HttpGeneration(Intake* intake, Arrival arrival, Reply reply);
  ~HttpGeneration() override;

  void OnDrained() override;
  void OnGone() override;

 private:
  // Where the shard writes for one prompt.
  class Sink final : public ResponseSink {
   public:
    Sink(HttpGeneration* owner, int32_t prompt) : owner_(owner), prompt_(prompt) {}
    bool Write(v1::GenerateResponse* message) override { return owner_->Write(prompt_, message); }
    void Flush() override { owner_->Flush(); }
    void Finish(absl::Status status) override { owner_->Finish(prompt_, std::move(status)); }
    bool cancelled() const override { return owner_->cancelled(prompt_); }

   private:
    HttpGeneration* const owner_;
    const int32_t prompt_;
  };
  struct Part {
    Part(HttpGeneration* owner, int32_t prompt, uint64_t key) : sink(owner, prompt), call(key) {}
    Sink sink;
    ClientCall call;
    bool submitted = false;
    bool answered = false;  // all that it said is in the answer
  };
  // What shards are to be told once the mutex is free: (shard, key).
  struct Told {
    std::vector<std::pair<Shard*, uint64_t>> resumed;
    std::vector<std::pair<Shard*, uint64_t>> cancelled;
  };

  // In a thread of the intake.
  void Run();
  absl::Status Prepare(std::vector<GenerationRequest>* prepared, int32_t* prompt);
  // Of all of its requests, from headers or body; a number is put behind it if there are several.
  absl::StatusOr<std::string> ChooseRequestId() const;
  void Submit(std::vector<GenerationRequest> prepared);

  bool Write(int32_t prompt, v1::GenerateResponse* message);
  void Flush();
  void Finish(int32_t prompt, absl::Status status);
  bool cancelled(int32_t prompt) const;

  // Moves what waits to the connection, as much as it has room for.
  void PumpLocked(Told* told);
  void AcceptLocked(int32_t prompt, Told* told);
  // Ends the call with an error. prompt: whose it is; -1: of all.
  void FailLocked(const absl::Status& status, int32_t prompt, Told* told);
  void CompleteLocked();
  void OpenLocked();
  void CancelAllLocked(Told* told);
  // The places, once no shard has anything of this any more.
  Intake::Place TakePlaceLocked();
  bool stream() const { return call_.stream; }
  static void Tell(const Told& told);

  Intake* const intake_;
  Reply reply_;          // changed by the task before there are parts, with the mutex
  Arrival arrival_;      // the task's
  CompletionCall call_;  // written by the task before there are parts

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  Intake::Place place_;
  std::deque<Part> parts_;  // one for each prompt; they stay where they are
  std::optional<CompletionAnswer> answer_;
  v1::GenerateResponse taken_;  // kept for its memory
  std::string out_;             // of the answer, not written yet
  int32_t first_ = 0;           // whose messages go out first, in turn
  int32_t answered_ = 0;        // parts
  bool has_output_ = false;     // some text or token was decided
  bool opened_ = false;         // headers are out
  bool done_ = false;           // the response is whole, or the client gone
};

}  // namespace tandem::text
