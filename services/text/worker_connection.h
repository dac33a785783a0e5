// The Decode stream to one worker, kept up: dialled, checked, watched, and dialled again when it is
// lost.
//
// A connection is one stream from its Hello to its end; it has a number that no other has. It is
// connected once its Hello is checked and its model's tokenizer is here. It is lost when the stream
// ends, when the worker breaks the protocol, when no frame came for twice `silence`, or when it is
// dropped; then the stream is cut at once, which frees its sessions at the worker, and the next is
// dialled after a pause that doubles from min_pause to max_pause, give or take a quarter.
//
// After `silence` without a frame the worker is suspect, until the next one. A worker whose frames
// say that it has work and launches no step for `stall` is reported, again each second: whether
// that is a fault depends on whether a session waits for it, which the listener knows.
//
// Outgoing commands: what waits while a frame is being written goes into the next one, so there is
// one frame per wake-up.
//
// Thread-safe. Has one thread, which waits; frames are parsed by gRPC's.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "services/text/event_frame.h"
#include "services/text/frame_packer.h"
#include "services/text/model_text_cache.h"
#include "services/text/router.h"
#include "tandem/decode/v1/decode.grpc.pb.h"

namespace tandem::text {

// What happens to connections. Calls about one connection come in order, but for events, which may
// still come once after OnLost. Implementations do not block and do not call back.
class WorkerListener {
 public:
  virtual ~WorkerListener() = default;
  virtual void OnConnected(const WorkerRef& worker) = 0;
  virtual void OnLost(uint64_t connection, const absl::Status& status) = 0;
  // A frame with events for this shard: none of them a Hello or empty; every handle was given on
  // this connection.
  virtual void OnEvents(uint64_t connection, int32_t shard,
                        std::shared_ptr<const EventFrame> frame) = 0;
  virtual void OnLoad(uint64_t connection, const decode::v1::Load& load) = 0;
  // It should get no new sessions, or may again.
  virtual void OnSuspect(uint64_t connection, bool suspect) = 0;
  // It hands its sessions back, and takes no others on this connection. Before the events that say
  // so.
  virtual void OnDraining(uint64_t connection) = 0;
  // No step since then (SteadyNow), which is `stall` ago, though it has work.
  virtual void OnNoStep(uint64_t connection, Nanos since) = 0;
};

struct WorkerConnectionOptions {
  std::string address;  // for people
  std::shared_ptr<grpc::Channel> channel;
  int32_t worker = 0;  // which of the workers
  int32_t num_shards = 1;
  std::chrono::milliseconds silence{2000};  // no frame in so long: the worker is suspect
  std::chrono::milliseconds stall{10'000};  // no step in so long: it is stalled
  std::chrono::milliseconds hello_patience{10'000};
  std::chrono::milliseconds fetch_patience{60'000};  // of the tokenizer
  std::chrono::milliseconds min_pause{100};
  std::chrono::milliseconds max_pause{1000};
};

class WorkerConnection final : public WorkerLink {
 public:
  // cache and listener must outlive this.
  WorkerConnection(WorkerConnectionOptions options, ModelTextCache* cache,
                   WorkerListener* listener);
  // Stop and Join. No Send may run.
  ~WorkerConnection() override;
  WorkerConnection(const WorkerConnection&) = delete;
  WorkerConnection& operator=(const WorkerConnection&) = delete;

  // Begins to end, without waiting: of several connections each is told before any is waited for.
  void Stop();
  // Waits for the end; the listener is not called afterwards, and Send does nothing.
  void Join();

  std::vector<uint64_t> Send(int32_t shard, uint64_t connection,
                             std::span<decode::v1::Command> commands) override;
  void Drop(uint64_t connection, const absl::Status& status) override;

  // What it is now, for people.
  struct State {
    std::string address;
    uint64_t connection = 0;  // of the current stream, connected or not
    std::string device;       // as its Hello says; empty: none came
    std::string last_error;   // why the last connection was lost, or the last attempt failed
  };
  State state() const;

 private:
  class Stream;

  void Run();
  // One connection, from dialling to its end. OK: it was connected. Else why it never was.
  absl::Status Serve();
  // Until the stream fails, the worker falls silent, or this stops; says which.
  absl::Status Watch(std::unique_lock<std::mutex>& lock, uint64_t connection);
  absl::StatusOr<TokenizerData> FetchTokenizer();
  // A frame of the current stream; called by the stream, one call at a time.
  void OnFrame(std::shared_ptr<EventFrame> arrived);
  absl::Status CheckFrame(const decode::v1::DecodeResponse& frame, bool first) const;
  void PumpLocked();
  void SetLastError(const absl::Status& status);
  void FailLocked(absl::Status status);
  bool WaitUntilStopped(std::chrono::milliseconds pause);

  const WorkerConnectionOptions options_;
  ModelTextCache* const cache_;
  WorkerListener* const listener_;
  const std::unique_ptr<decode::v1::DecodeWorker::Stub> stub_;
  const std::shared_ptr<EventFramePool> frames_ = std::make_shared<EventFramePool>();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  bool stop_ = false;
  uint64_t connection_ = 0;  // of the current stream
  bool connected_ = false;
  Stream* stream_ = nullptr;  // null: none, or it may not be written to any more
  bool writing_ = false;
  bool ended_ = false;    // the stream's last call has come
  absl::Status failure_;  // why the current stream is to end
  std::optional<decode::v1::Hello> hello_;
  Nanos last_frame_ = 0;
  int64_t step_ = -1;    // as the last load said
  Nanos last_step_ = 0;  // when it changed, or there was no work
  bool drains_ = false;
  FramePacker packer_;
  std::string last_error_;
  grpc::ClientContext* fetch_context_ = nullptr;  // of a fetch in progress

  std::thread thread_;
};

}  // namespace tandem::text
