#include "services/text/intake.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>

#include "absl/hash/hash.h"
#include "engine/base/check.h"
#include "engine/base/status.h"
#include "services/common/status_detail.h"

namespace tandem::text {
namespace {

constexpr int32_t kMaxWaitingTasks = 64;  // beside those of generations

uint64_t RandomBits() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

}  // namespace

Intake::Intake(const IntakeOptions& options, const Router* router, std::vector<Shard*> shards,
               RefusalCounts* refusals)
    : options_(options),
      router_(router),
      shards_(std::move(shards)),
      refusals_(refusals),
      pool_(options.num_threads, options.max_requests + kMaxWaitingTasks) {}

absl::Status Intake::Admit(int32_t requests, Place* place) {
  TANDEM_CHECK(place->active_ == nullptr || place->active_ == active_)
      << "a place of another intake";
  if (draining_) return absl::UnavailableError("the server is shutting down");
  if ((*active_ += requests) > options_.max_requests) {
    *active_ -= requests;
    return RetryAfter(
        ResourceExhausted("too many requests at once: at most ", options_.max_requests),
        kNanosPerSecond);
  }
  place->active_ = active_;
  place->requests_ += requests;
  return absl::OkStatus();
}

absl::Status Intake::Post(std::function<void()> task) {
  if (pool_.Post(std::move(task))) return absl::OkStatus();
  return RetryAfter(ResourceExhausted("too many requests wait to be read"), kNanosPerSecond);
}

absl::StatusOr<GenerationRequest> Intake::Prepare(const v1::GenerateRequest& request, Door door,
                                                  Nanos received, Nanos deadline) const {
  ASSIGN_OR_RETURN(std::shared_ptr<const ServedModel> model, router_->Find(request.model()));
  ASSIGN_OR_RETURN(GenerationRequest out, CheckRequest(request, std::move(model), RandomBits));
  out.drafts = std::min(options_.drafts, out.model->limits.max_drafts);
  out.run_ahead += out.drafts;
  out.door = door;
  out.received = received;
  out.deadline = deadline;
  return out;
}

void Intake::CountRefusal(Door door, const absl::Status& status) const {
  if (refusals_ == nullptr) return;
  const bool drains = draining_ && absl::IsUnavailable(status);
  refusals_->Count(door, drains ? Refusal::kDraining : RefusalOf(status), status);
}

Shard* Intake::ShardOf(const GenerationRequest& request) const {
  return shards_[absl::Hash<std::string>()(request.request_id) % shards_.size()];
}

}  // namespace tandem::text
