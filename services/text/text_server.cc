#include "services/text/text_server.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "engine/base/status.h"
#include "services/common/channel.h"
#include "services/common/decode_codec.h"
#include "services/text/queries.h"
#include "services/text/web/files.h"

namespace tandem::text {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kDrainPoll{20};
constexpr milliseconds kCancelPatience{1000};  // for clients to read their last message

// host:port, since a worker is dialled directly.
absl::Status CheckAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  int32_t port = 0;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 1 || port > 65535) {
    return InvalidArgument("--worker ", address, ": it must be host:port, the port 1 to 65535");
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const TextServerOptions& options) {
  if (options.workers.empty()) return InvalidArgument("--worker is not given: at least one");
  for (const std::string& worker : options.workers) RETURN_IF_ERROR(CheckAddress(worker));
  if (options.shards < 1 || options.shards > kMaxShards) {
    return InvalidArgument("--shards is ", options.shards, ": it must be 1 to ", kMaxShards);
  }
  if (options.max_requests < 1 || options.max_requests > kMaxRequests) {
    return InvalidArgument("--max-requests is ", options.max_requests, ": it must be 1 to ",
                           kMaxRequests);
  }
  if (options.drafts < 0 || options.drafts > kMaxDrafts) {
    return InvalidArgument("--drafts is ", options.drafts, ": it must be 0 to ", kMaxDrafts);
  }
  if (options.replay.tries < 0 || options.replay.tries > kMaxReplayTries) {
    return InvalidArgument("--replay-tries is ", options.replay.tries, ": it must be 0 to ",
                           kMaxReplayTries);
  }
  if (options.replay.wait < 0 || options.replay.wait > kMaxReplayWaitSeconds * kNanosPerSecond) {
    return InvalidArgument("--replay-wait-seconds is ", options.replay.wait / kNanosPerSecond,
                           ": it must be 0 to ", kMaxReplayWaitSeconds);
  }
  return absl::OkStatus();
}

}  // namespace

int32_t DefaultShards() {
  return std::clamp(static_cast<int32_t>(std::thread::hardware_concurrency()) / 4, 1, 8);
}

TextServer::TextServer() : health_({kServiceName}) {}

absl::StatusOr<std::unique_ptr<TextServer>> TextServer::Start(const TextServerOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  std::unique_ptr<TextServer> out(new TextServer());
  out->reports_.SetAddresses(options.workers);
  if (!options.api_key_file.empty()) {
    ASSIGN_OR_RETURN(out->keys_, ApiKeys::Load(options.api_key_file));
  }
  const ApiKeys* const keys = out->keys_.has_value() ? &*out->keys_ : nullptr;
  if (!options.trace.folder.empty()) {
    ASSIGN_OR_RETURN(out->traces_, TraceRecorder::Start(options.trace));
  }
  std::vector<Shard*> shards;
  for (int32_t i = 0; i < options.shards; ++i) {
    out->shards_.push_back(std::make_unique<Shard>(i, &out->router_, options.replay, SteadyNow,
                                                   out->traces_.get(), options.log_requests));
    shards.push_back(out->shards_.back().get());
  }
  out->intake_ = std::make_unique<Intake>(
      IntakeOptions{.max_requests = options.max_requests, .drafts = options.drafts}, &out->router_,
      shards, &out->refusals_);
  out->service_ = std::make_unique<GenerationService>(out->intake_.get(), keys);
  out->fleet_ = std::make_unique<FleetService>(&out->router_, keys);
  grpc::Service* const services[] = {out->service_.get(), out->fleet_.get(), &out->health_};
  ASSIGN_OR_RETURN(out->server_, RpcServer::Start({.listen = options.listen,
                                                   .tls = options.tls,
                                                   .max_receive_bytes = kMaxRequestBytes,
                                                   .max_send_bytes = kMaxResponseBytes},
                                                  services));
  if (!options.http.listen.empty()) {
    HttpDoorOptions door = options.http_door;
    door.metrics = [server = out.get()] { return server->MetricsText(); };
    if (door.files.empty()) door.files = WebFiles();
    ASSIGN_OR_RETURN(out->door_, HttpDoor::Make(std::move(door), out->intake_.get(), keys));
    ASSIGN_OR_RETURN(out->http_, HttpServer::Start(options.http, out->door_.get()));
    out->http_server_ = out->http_.get();
  }
  // Last, since they call into all of the above.
  for (const std::string& address : options.workers) {
    WorkerConnectionOptions connection;
    connection.address = address;
    ASSIGN_OR_RETURN(connection.channel, MakeChannel({.target = address,
                                                      .tls = options.worker_tls,
                                                      .max_receive_bytes = kMaxFrameBytes,
                                                      .max_send_bytes = kMaxFrameBytes}));
    connection.worker = static_cast<int32_t>(out->connections_.size());
    connection.num_shards = options.shards;
    connection.silence = options.worker_silence;
    connection.stall = options.worker_stall;
    out->connections_.push_back(
        std::make_unique<WorkerConnection>(std::move(connection), &out->cache_, out.get()));
    out->fleet_->Add(out->connections_.back().get());
  }
  return out;
}

TextServer::~TextServer() {
  // Calls end before what they stand on does.
  health_.Shutdown();
  if (intake_ != nullptr) intake_->Drain();
  for (const auto& shard : shards_) {
    shard->CancelAll(absl::UnavailableError("the server is shutting down"));
  }
  server_.reset();
  http_.reset();
  http_server_ = nullptr;
  service_.reset();
  intake_.reset();
  // Connections call into shards and shards into connections, so the first only stop, and go once
  // the second are gone.
  for (const auto& connection : connections_) connection->Stop();
  for (const auto& connection : connections_) connection->Join();
  shards_.clear();
  connections_.clear();
}

void TextServer::Drain(milliseconds patience) {
  health_.Shutdown();
  intake_->Drain();
  const auto end = std::chrono::steady_clock::now() + patience;
  while (active() > 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kDrainPoll);
  }
  for (const auto& shard : shards_) {
    shard->CancelAll(absl::UnavailableError("the server is shutting down"));
  }
  if (http_ != nullptr) {
    // Answers that are made, and that clients still read, have the time that is left.
    const auto left = std::chrono::ceil<milliseconds>(end - std::chrono::steady_clock::now());
    http_->Shutdown(std::max(left, kCancelPatience));
  }
  server_->Shutdown(kCancelPatience);
}

TextSnapshot TextServer::Snapshot() const {
  TextSnapshot out;
  for (const auto& shard : shards_) out.shards.Add(shard->counts());
  out.refusals = refusals_.snapshot();
  out.workers = reports_.snapshot();
  out.tasks_waiting = intake_->tasks_waiting();
  if (const HttpServer* const http = http_server_; http != nullptr) {
    out.http = {.connections = http->connections(), .streams = door_->streams()};
  }
  return out;
}

void TextServer::OnConnected(const WorkerRef& worker) {
  std::lock_guard lock(health_mutex_);
  router_.Connected(worker);
  reports_.Connected(worker.worker, worker.connection);
  health_.Set(kServiceName, router_.any());
}

void TextServer::OnLost(uint64_t connection, const absl::Status& status) {
  {
    std::lock_guard lock(health_mutex_);
    router_.Lost(connection);
    reports_.Lost(connection);
    health_.Set(kServiceName, router_.any());
  }
  for (const auto& shard : shards_) shard->OnWorkerLost(connection, status);
}

void TextServer::OnEvents(uint64_t connection, int32_t shard,
                          std::shared_ptr<const EventFrame> frame) {
  shards_[shard]->OnEvents(connection, std::move(frame));
}

void TextServer::OnLoad(uint64_t connection, const decode::v1::Load& load) {
  router_.Report(connection, load);
  reports_.Update(connection, load);
}

void TextServer::OnSuspect(uint64_t connection, bool suspect) {
  std::lock_guard lock(health_mutex_);
  router_.SetSuspect(connection, suspect);
  reports_.SetSuspect(connection, suspect);
  health_.Set(kServiceName, router_.any());
}

void TextServer::OnDraining(uint64_t connection) {
  std::lock_guard lock(health_mutex_);
  router_.SetDraining(connection);
  reports_.SetDraining(connection);
  health_.Set(kServiceName, router_.any());
}

void TextServer::OnNoStep(uint64_t connection, Nanos since) {
  for (const auto& shard : shards_) shard->OnNoStep(connection, since);
}

}  // namespace tandem::text
