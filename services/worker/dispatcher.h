// Hands the engine's events to the streams they belong to, and keeps quiet streams alive, in a
// thread of its own: encoding and gRPC cost the engine thread nothing, and a long step delays no
// heartbeat.
//
// A stream that does not take its events holds up nobody: its outbox is bounded, and one that
// overflows is aborted and its sessions are freed.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/clock.h"
#include "engine/decode_engine.h"
#include "services/worker/mailbox.h"
#include "services/worker/stream_outbox.h"

namespace tandem {

// Half of what the protocol allows between two frames.
inline constexpr Nanos kHeartbeat = kNanosPerSecond / 4;

class Dispatcher final {
 public:
  // The mailbox must outlive this.
  explicit Dispatcher(Mailbox& mailbox);
  ~Dispatcher();
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  // The stream gets events and heartbeats from now on until Remove; after EndAll it ends at once.
  void Add(int64_t stream, std::shared_ptr<StreamOutbox> outbox);
  void Remove(int64_t stream);
  int32_t num_streams() const;
  // The last that was posted.
  std::optional<EngineLoad> load() const;

  // From the engine thread, in order; does not wait. Events of streams that are gone are dropped.
  void Post(std::vector<EngineEvent> events, const EngineLoad& load);
  // Every stream ends with this status: behind everything posted before, or, for a fault, at once.
  void EndAll(const absl::Status& status);
  void AbortAll(const absl::Status& status);

 private:
  struct Batch {
    std::vector<EngineEvent> events;
    EngineLoad load;
    std::optional<absl::Status> end;  // after the events
  };
  void Run();
  void Deliver(Batch batch);
  void BeatAll();
  std::shared_ptr<StreamOutbox> Find(int64_t stream) const;
  std::map<int64_t, std::shared_ptr<StreamOutbox>> Streams() const;

  Mailbox& mailbox_;
  mutable std::mutex mutex_;
  std::condition_variable posted_;
  // Guarded by mutex_.
  std::map<int64_t, std::shared_ptr<StreamOutbox>> streams_;
  std::vector<Batch> batches_;
  std::optional<EngineLoad> load_;
  std::optional<absl::Status> end_;  // of streams that come now
  bool stop_ = false;

  std::thread thread_;
};

}  // namespace tandem
