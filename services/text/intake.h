// What every door of the text tier has in common: requests are counted, wait for a thread, are
// checked, and go to a shard. Knows neither gRPC nor HTTP.
//
//   admitted = intake.Admit(&place);           // at the door
//   intake.Post([...] {                        // in a thread of the pool
//     prepared = intake.Prepare(request, received, deadline);
//     shard = intake.ShardOf(*prepared);
//     shard->Submit(key, *std::move(prepared), sink);
//   });
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "services/text/door.h"
#include "services/text/request.h"
#include "services/text/router.h"
#include "services/text/shard.h"
#include "services/text/task_pool.h"
#include "services/text/text_metrics.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::text {

struct IntakeOptions {
  int32_t max_requests = 256;  // at once; one more is RESOURCE_EXHAUSTED at once
  int32_t num_threads = 2;     // for templates and tokenizers
  int32_t drafts = 0;          // most drafts of a step, where the worker makes any
};

// The largest legal request has a text of kMaxEncodeBytes and some lists.
inline constexpr int32_t kMaxRequestBytes = 8 << 20;

class Intake final {
 public:
  // The places of requests at once, given back when it goes.
  class Place final {
   public:
    Place() = default;
    Place(Place&& other) noexcept { *this = std::move(other); }
    Place& operator=(Place&& other) noexcept {
      std::swap(active_, other.active_);
      std::swap(requests_, other.requests_);
      return *this;
    }
    ~Place() {
      if (active_ != nullptr) *active_ -= requests_;
    }

   private:
    friend class Intake;
    std::shared_ptr<std::atomic<int32_t>> active_;
    int32_t requests_ = 0;
  };

  // All of them must outlive this; at least one shard. refusals: counts requests to generate that
  // come to no shard; null: nobody counts them.
  Intake(const IntakeOptions& options, const Router* router, std::vector<Shard*> shards,
         RefusalCounts* refusals = nullptr);

  // Takes places for so many requests more. UNAVAILABLE: it drains; RESOURCE_EXHAUSTED: too many
  // at once. *place must be empty, or hold places of this intake, to which they are added.
  absl::Status Admit(int32_t requests, Place* place);
  // Of requests that have a place.
  int32_t active() const { return *active_; }
  // From now on nothing is admitted.
  void Drain() { draining_ = true; }
  bool draining() const { return draining_; }

  // A key for a request: never given twice.
  uint64_t NextKey() { return ++last_key_; }

  // Work that takes milliseconds to seconds, in a thread of its own. RESOURCE_EXHAUSTED: too much
  // waits; the task is not taken.
  absl::Status Post(std::function<void()> task);

  // Finds the model and checks all of the request (see CheckRequest). Not for a thread that others
  // wait for. REQUIRES CheckMessage passed. The errors of Router::Find and CheckRequest.
  absl::StatusOr<GenerationRequest> Prepare(const v1::GenerateRequest& request, Door door,
                                            Nanos received, Nanos deadline) const;
  // A request to generate comes to no shard: status is what its client is told.
  void CountRefusal(Door door, const absl::Status& status) const;
  // Whom it is to be submitted to.
  Shard* ShardOf(const GenerationRequest& request) const;

  const Router& router() const { return *router_; }
  // Tasks that wait for a thread.
  int32_t tasks_waiting() const { return pool_.waiting(); }

 private:
  const IntakeOptions options_;
  const Router* const router_;
  const std::vector<Shard*> shards_;
  RefusalCounts* const refusals_;
  // Shared with the places, which may outlive this.
  const std::shared_ptr<std::atomic<int32_t>> active_ = std::make_shared<std::atomic<int32_t>>(0);
  std::atomic<uint64_t> last_key_{0};
  std::atomic<bool> draining_{false};
  TaskPool pool_;  // last, so that its tasks end first
};

}  // namespace tandem::text
