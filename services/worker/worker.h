// A decode worker: server, model and engine in one process, from NOT_SERVING over SERVING to its
// end.
//
//   Listen -> Load -> Run (until RequestDrain or a fault)
//
// The server listens before the model loads, so that whoever asks is told NOT_SERVING instead of
// being refused. SERVING is said after load, self-test (which warms up) and the start of the
// engine.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/decode_engine.h"
#include "engine/model/model.h"
#include "kernels/ops.h"
#include "services/common/health_service.h"
#include "services/common/server.h"
#include "services/worker/decode_service.h"
#include "services/worker/dispatcher.h"
#include "services/worker/engine_loop.h"
#include "services/worker/mailbox.h"
#include "services/worker/session_ends.h"
#include "services/worker/worker_metrics.h"

namespace tandem {

// The longest that a drain takes: sessions to be handed back, so long after EngineOptions.
// drain_spread, then streams to take what is queued for them.
inline constexpr Nanos kDrainPatience = 10 * kNanosPerSecond;
inline constexpr std::chrono::milliseconds kStreamPatience{5000};

class Worker final {
 public:
  // Message limits of `options` are set here. Errors: RpcServer::Start's.
  static absl::StatusOr<std::unique_ptr<Worker>> Listen(ServerOptions options);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  int port() const { return server_->port(); }
  const std::string& address() const { return server_->address(); }

  struct LoadOptions {
    std::string name;           // that the model is served under
    bool checked = false;       // Model::Options::checked
    EngineOptions engine;       // kv_format is set to the backend's, hash_seed to a random number
    bool log_sessions = false;  // a line of the log for each session that ends
  };
  // Loads, tests itself, serves. Once. Errors: OUT_OF_RANGE for a context beyond the model's;
  // INTERNAL for a failed self-test; else those of the parts. The checkpoint may go afterwards.
  absl::Status Load(const Checkpoint& checkpoint, std::unique_ptr<kernels::Ops> ops,
                    LoadOptions options, const Model::Progress& progress);

  // Blocks until RequestDrain or a fault, then ends everything in bounded time. OK after a drain;
  // else what broke.
  absl::Status Run();
  // From any thread, at any time; Run then drains.
  void RequestDrain();

  // What Prometheus reads, of media type kMetricsContentType; at any time, from any thread.
  std::string MetricsText() const { return ExposeMetrics(Snapshot()); }
  WorkerSnapshot Snapshot() const;

  // OK while it serves; else why not, for people. From any thread, at any time.
  absl::Status Health() const;

  // For people: what was loaded, and on what. REQUIRES Load succeeded.
  const std::string& description() const { return description_; }
  // As its peers see it. REQUIRES Load succeeded.
  const decode::v1::Hello& hello() const { return served_->hello; }

 private:
  Worker();
  void OnFatal(const absl::Status& status);
  absl::Status Drain();

  // In the order of construction: each may use those before it.
  HealthService health_;
  DecodeService service_;
  SessionEnds ends_;
  Mailbox mailbox_;
  Dispatcher dispatcher_;
  std::unique_ptr<kernels::Ops> ops_;
  std::unique_ptr<Model> model_;
  std::shared_ptr<const ServedEngine> served_;
  std::string description_;
  Nanos drain_patience_ = kDrainPatience;
  std::unique_ptr<EngineLoop> loop_;
  std::unique_ptr<RpcServer> server_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  bool drain_requested_ = false;
  std::optional<absl::Status> fault_;
  std::optional<WorkerSnapshot> loaded_;  // what stays the same, once the engine runs
};

}  // namespace tandem
