#include "services/text/generate_call.h"

#include <utility>

#include <grpcpp/impl/codegen/proto_utils.h>

#include "engine/base/check.h"
#include "services/common/grpc_status.h"

namespace tandem::text {

class GenerateCall::Reactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  explicit Reactor(std::shared_ptr<GenerateCall> call) : call_(std::move(call)) {}
  void OnWriteDone(bool ok) override { call_->OnWriteDone(ok); }
  void OnCancel() override { call_->OnCancel(); }
  void OnDone() override {
    call_->OnDone();
    delete this;
  }

 private:
  const std::shared_ptr<GenerateCall> call_;
};

grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateCall::MakeReactor() {
  std::lock_guard lock(mutex_);
  TANDEM_CHECK(reactor_ == nullptr) << "one reactor a call";
  reactor_ = new Reactor(shared_from_this());
  return reactor_;
}

void GenerateCall::SetPlace(Intake::Place place) {
  std::lock_guard lock(mutex_);
  place_ = std::move(place);
}

void GenerateCall::SetShard(Shard* shard) {
  std::lock_guard lock(mutex_);
  call_.SetShard(shard);
}

bool GenerateCall::Write(v1::GenerateResponse* message) {
  std::lock_guard lock(mutex_);
  return call_.Write(message);
}

void GenerateCall::Flush() {
  Shard* resume = nullptr;
  {
    std::lock_guard lock(mutex_);
    PumpLocked();
    resume = call_.TakeResume();
  }
  if (resume != nullptr) resume->Resume(key_);
}

void GenerateCall::Finish(absl::Status status) {
  std::lock_guard lock(mutex_);
  call_.Finish(std::move(status));
  PumpLocked();
}

bool GenerateCall::cancelled() const {
  std::lock_guard lock(mutex_);
  return call_.cancelled();
}

void GenerateCall::OnWriteDone(bool ok) {
  Shard* resume = nullptr;
  {
    std::lock_guard lock(mutex_);
    writing_ = false;
    if (!ok) call_.Drop();  // the client is gone; OnCancel says so to the shard
    PumpLocked();
    resume = call_.TakeResume();
  }
  if (resume != nullptr) resume->Resume(key_);
}

void GenerateCall::OnCancel() {
  Shard* shard = nullptr;
  {
    std::lock_guard lock(mutex_);
    shard = call_.Cancel();
    PumpLocked();
  }
  if (shard != nullptr) shard->Cancel(key_);
}

void GenerateCall::OnDone() {
  Intake::Place given_back;
  std::lock_guard lock(mutex_);
  given_back = std::move(place_);
}

void GenerateCall::PumpLocked() {
  if (writing_ || reactor_ == nullptr) return;
  if (call_.Take(&taken_)) {
    outgoing_.Clear();
    bool own_buffer = false;
    const grpc::Status serialised =
        grpc::SerializationTraits<v1::GenerateResponse>::Serialize(taken_, &outgoing_, &own_buffer);
    TANDEM_CHECK(serialised.ok()) << serialised.error_message();
    writing_ = true;
    reactor_->StartWrite(&outgoing_);
  } else if (const absl::Status* end = call_.end(); end != nullptr) {
    // The reactor may be gone as soon as this returns.
    std::exchange(reactor_, nullptr)->Finish(ToGrpc(*end));
  }
}

}  // namespace tandem::text
