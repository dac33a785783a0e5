// The text tier as one object: connections to workers, router, shards, the public API, health. What
// main runs and tests start.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/health_service.h"
#include "services/common/http/http_server.h"
#include "services/common/server.h"
#include "services/text/api_keys.h"
#include "services/text/fleet_service.h"
#include "services/text/generation_service.h"
#include "services/text/http/http_door.h"
#include "services/text/intake.h"
#include "services/text/model_text_cache.h"
#include "services/text/router.h"
#include "services/text/shard.h"
#include "services/text/text_metrics.h"
#include "services/text/trace_recorder.h"
#include "services/text/worker_connection.h"

namespace tandem::text {

struct TextServerOptions {
  std::vector<std::string> workers;  // host:port of each decode worker, dialled directly
  TlsFiles worker_tls;
  std::string listen = "127.0.0.1:0";
  TlsFiles tls;
  // Of the HTTP API; listen empty: there is none.
  HttpServerOptions http;
  HttpDoorOptions http_door;
  std::string api_key_file;    // of both APIs; empty: whoever comes is served
  int32_t shards = 1;          // [1, kMaxShards]
  int32_t max_requests = 256;  // [1, kMaxRequests]
  // Most guesses of its next tokens that a session has verified in one step, where its worker makes
  // any: [0, kMaxDrafts], 0: none.
  int32_t drafts = 8;
  ReplayPolicy replay;
  TraceOptions trace;
  bool log_requests = false;  // a line of the log for each request that ends, not only for failures
  std::chrono::milliseconds worker_silence{2000};
  std::chrono::milliseconds worker_stall{10'000};
};

inline constexpr int32_t kMaxShards = 64;
// One for every four cores, [1, 8]: one decides hundreds of thousands of tokens a second, more of
// them let the answers of one step be decided side by side, and each costs a wake-up a step.
int32_t DefaultShards();
inline constexpr int32_t kMaxRequests = 65536;
inline constexpr int32_t kMaxDrafts = 32;
inline constexpr int32_t kMaxReplayTries = 100;
inline constexpr int32_t kMaxReplayWaitSeconds = 3600;

class TextServer final : public WorkerListener {
 public:
  // The name that health knows the API by: SERVING while a worker is connected that takes new
  // sessions, and its tokenizer is here.
  static constexpr char kServiceName[] = "tandem.v1.Generation";

  // Serves when it returns, with or without a worker. INVALID_ARGUMENT names the flag, the value
  // and the limit; else the errors of MakeChannel and RpcServer::Start.
  static absl::StatusOr<std::unique_ptr<TextServer>> Start(const TextServerOptions& options);
  ~TextServer() override;

  int port() const { return server_->port(); }
  const std::string& address() const { return server_->address(); }
  // REQUIRES options.http.listen.
  int http_port() const { return http_->port(); }
  const std::string& http_address() const { return http_->address(); }
  // Requests of both doors that are not done.
  int32_t active() const { return intake_->active(); }
  // A worker is connected that takes new sessions.
  bool serving() const { return router_.any(); }

  // What Prometheus reads, of media type kMetricsContentType. From any thread; costs no session
  // more than a copy of its shard's counts.
  std::string MetricsText() const { return ExposeMetrics(Snapshot()); }
  TextSnapshot Snapshot() const;

  // NOT_SERVING, no new requests; waits for those that run, at most `patience`, then cancels the
  // rest.
  void Drain(std::chrono::milliseconds patience);

  void OnConnected(const WorkerRef& worker) override;
  void OnLost(uint64_t connection, const absl::Status& status) override;
  void OnEvents(uint64_t connection, int32_t shard,
                std::shared_ptr<const EventFrame> frame) override;
  void OnLoad(uint64_t connection, const decode::v1::Load& load) override;
  void OnSuspect(uint64_t connection, bool suspect) override;
  void OnDraining(uint64_t connection) override;
  void OnNoStep(uint64_t connection, Nanos since) override;

 private:
  TextServer();

  std::mutex health_mutex_;  // orders changes of the router with those of health
  HealthService health_;
  Router router_;
  RefusalCounts refusals_;
  WorkerReports reports_;
  ModelTextCache cache_;
  // Destroyed in the opposite order: first the server, so that no call is left when the rest goes.
  std::unique_ptr<TraceRecorder> traces_;  // null: nothing is recorded
  std::vector<std::unique_ptr<WorkerConnection>> connections_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::optional<ApiKeys> keys_;  // absent: none is needed
  std::unique_ptr<Intake> intake_;
  std::unique_ptr<GenerationService> service_;
  std::unique_ptr<FleetService> fleet_;
  std::unique_ptr<HttpDoor> door_;
  std::unique_ptr<HttpServer> http_;  // null: no HTTP
  // The same, for its own threads too, which ask for metrics while http_ is set and reset.
  std::atomic<const HttpServer*> http_server_{nullptr};
  std::unique_ptr<RpcServer> server_;
};

}  // namespace tandem::text
