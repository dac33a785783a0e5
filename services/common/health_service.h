// grpc.health.v1.Health: what Kubernetes' probes, grpcurl and our own clients ask.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>

#include "grpc/health/v1/health.grpc.pb.h"

namespace tandem {

// Thread-safe. Must outlive the server that it is registered with.
class HealthService final : public grpc::health::v1::Health::CallbackService {
 public:
  using Status = grpc::health::v1::HealthCheckResponse::ServingStatus;

  // Knows the services named here, NOT_SERVING, and "", which stands for the server as a whole and
  // serves iff all do.
  explicit HealthService(const std::vector<std::string>& services);
  ~HealthService() override;

  // REQUIRES a service that the constructor named.
  void Set(const std::string& service, bool serving);
  // Of every service. After a shutdown Set changes nothing: a server that drains does not come
  // back.
  void Shutdown();

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::health::v1::HealthCheckRequest* request,
                                  grpc::health::v1::HealthCheckResponse* response) override;
  // SERVICE_UNKNOWN for a service that this does not know, then nothing more, as the protocol has
  // it.
  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context,
      const grpc::health::v1::HealthCheckRequest* request) override;

 private:
  class Watcher;
  // SERVICE_UNKNOWN where there is none.
  Status StatusLocked(const std::string& service) const;
  void NotifyLocked();

  mutable std::mutex mutex_;
  // The rest is guarded by mutex_.
  std::map<std::string, bool> serving_;
  std::set<Watcher*> watchers_;
  bool shut_down_ = false;
};

}  // namespace tandem
