// tandem.v1.Fleet: what this text tier knows of its workers.
#pragma once

#include <mutex>
#include <vector>

#include "services/text/api_keys.h"
#include "services/text/router.h"
#include "services/text/worker_connection.h"
#include "tandem/v1/fleet.grpc.pb.h"

namespace tandem::text {

// Thread-safe.
class FleetService final : public v1::Fleet::CallbackService {
 public:
  // Both must outlive this. keys: as GenerationService's.
  explicit FleetService(const Router* router, const ApiKeys* keys = nullptr)
      : router_(router), keys_(keys) {}
  FleetService(const FleetService&) = delete;
  FleetService& operator=(const FleetService&) = delete;

  // One more worker, behind those so far. It must live until no call is left.
  void Add(const WorkerConnection* connection);

  grpc::ServerUnaryReactor* ListWorkers(grpc::CallbackServerContext* context,
                                        const v1::ListWorkersRequest* request,
                                        v1::ListWorkersResponse* response) override;

 private:
  const Router* const router_;
  const ApiKeys* const keys_;
  std::mutex mutex_;
  std::vector<const WorkerConnection*> connections_;  // guarded by mutex_
};

}  // namespace tandem::text
