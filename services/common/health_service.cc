#include "services/common/health_service.h"

#include <algorithm>

#include "engine/base/check.h"

namespace tandem {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// One Watch call. A change that comes while a write is in flight is sent after it; of several only
// the last.
class HealthService::Watcher final : public grpc::ServerWriteReactor<HealthCheckResponse> {
 public:
  Watcher(HealthService* owner, std::string service) : owner_(owner), service_(std::move(service)) {
    std::lock_guard lock(owner_->mutex_);
    owner_->watchers_.insert(this);
    SendLocked();
  }

  // Writes the status if it is not the one last written and no write is in flight.
  void SendLocked() {
    const Status status = owner_->StatusLocked(service_);
    if (writing_ || finished_ || status == sent_) return;
    sent_ = status;
    response_.set_status(status);
    writing_ = true;
    StartWrite(&response_);
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(owner_->mutex_);
    writing_ = false;
    if (!ok || cancelled_) return FinishLocked();
    SendLocked();
  }

  void OnCancel() override {
    std::lock_guard lock(owner_->mutex_);
    cancelled_ = true;
    if (!writing_) FinishLocked();
  }

  void OnDone() override {
    {
      std::lock_guard lock(owner_->mutex_);
      owner_->watchers_.erase(this);
    }
    delete this;
  }

 private:
  void FinishLocked() {
    if (finished_) return;
    finished_ = true;
    Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the call was cancelled"));
  }

  HealthService* const owner_;
  const std::string service_;
  // Guarded by owner_->mutex_.
  HealthCheckResponse response_;
  Status sent_ = HealthCheckResponse::UNKNOWN;
  bool writing_ = false;
  bool cancelled_ = false;
  bool finished_ = false;
};

HealthService::HealthService(const std::vector<std::string>& services) {
  for (const std::string& service : services) serving_[service] = false;
}

HealthService::~HealthService() {
  std::lock_guard lock(mutex_);
  TANDEM_CHECK(watchers_.empty()) << watchers_.size() << " watchers outlive the server";
}

void HealthService::Set(const std::string& service, bool serving) {
  std::lock_guard lock(mutex_);
  const auto found = serving_.find(service);
  TANDEM_CHECK(found != serving_.end()) << "unknown service " << service;
  if (shut_down_) return;
  found->second = serving;
  NotifyLocked();
}

void HealthService::Shutdown() {
  std::lock_guard lock(mutex_);
  shut_down_ = true;
  for (auto& [service, serving] : serving_) serving = false;
  NotifyLocked();
}

HealthService::Status HealthService::StatusLocked(const std::string& service) const {
  bool serving = false;
  if (service.empty()) {
    serving = std::all_of(serving_.begin(), serving_.end(), [](const auto& s) { return s.second; });
  } else {
    const auto found = serving_.find(service);
    if (found == serving_.end()) return HealthCheckResponse::SERVICE_UNKNOWN;
    serving = found->second;
  }
  return serving ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

void HealthService::NotifyLocked() {
  for (Watcher* watcher : watchers_) watcher->SendLocked();
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context,
                                               const HealthCheckRequest* request,
                                               HealthCheckResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  Status status;
  {
    std::lock_guard lock(mutex_);
    status = StatusLocked(request->service());
  }
  if (status == HealthCheckResponse::SERVICE_UNKNOWN) {
    reactor->Finish(grpc::Status(grpc::StatusCode::NOT_FOUND, "the server has no such service"));
  } else {
    response->set_status(status);
    reactor->Finish(grpc::Status::OK);
  }
  return reactor;
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(
    grpc::CallbackServerContext*, const HealthCheckRequest* request) {
  return new Watcher(this, request->service());
}

}  // namespace tandem
