// Requests of a bench to a text tier's own API, asynchronously: a call costs its messages, not a
// thread.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "absl/status/statusor.h"
#include "services/cli/connection.h"
#include "services/cli/load_generator.h"
#include "services/cli/load_plan.h"
#include "tandem/v1/generation.grpc.pb.h"

namespace tandem::cli {

struct GrpcTargetOptions {
  v1::GenerateRequest request;  // of all, but for the prompt
  int32_t connections = 1;      // at least 1; calls take turns
  double timeout_seconds = 0;   // of a call; 0: none
};

// Thread-safe.
class GrpcTarget final : public LoadTarget {
 public:
  // prompts and meter must outlive this. Errors: Connection::Dial's.
  static absl::StatusOr<std::unique_ptr<GrpcTarget>> Dial(const ConnectionFlags& flags,
                                                          GrpcTargetOptions options,
                                                          const PromptSource* prompts,
                                                          LoadMeter* meter);
  // REQUIRES nothing in flight.
  ~GrpcTarget() override;

  void Send(int64_t number, std::function<void(LoadResult)> done) override;
  void CancelAll() override;

 private:
  class Call;

  GrpcTarget(std::vector<std::unique_ptr<Connection>> connections, GrpcTargetOptions options,
             const PromptSource* prompts, LoadMeter* meter);

  const std::vector<std::unique_ptr<Connection>> connections_;
  const GrpcTargetOptions options_;
  const PromptSource* const prompts_;
  LoadMeter* const meter_;
  std::mutex mutex_;
  std::set<Call*> calls_;  // in flight; guarded by mutex_
};

}  // namespace tandem::cli
