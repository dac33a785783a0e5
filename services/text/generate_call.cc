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
    call_->on_done_();
    delete this;
  }

 private:
  const std::shared_ptr<GenerateCall> call_;
};

GenerateCall::GenerateCall(uint64_t key, std::function<void()> on_done)
    : key_(key), on_done_(std::move(on_done)) {}

grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateCall::MakeReactor() {
  std::lock_guard lock(mutex_);
  TANDEM_CHECK(reactor_ == nullptr) << "one reactor a call";
  reactor_ = new Reactor(shared_from_this());
  return reactor_;
}

void GenerateCall::SetShard(Shard* shard) {
  std::lock_guard lock(mutex_);
  shard_ = shard;
}

bool GenerateCall::Write(v1::GenerateResponse* message) {
  std::lock_guard lock(mutex_);
  if (cancelled_) return false;
  outbox_.Add(message);
  slow_ |= outbox_.full();
  return outbox_.full();
}

void GenerateCall::Flush() {
  Shard* resume = nullptr;
  {
    std::lock_guard lock(mutex_);
    PumpLocked();
    resume = ResumeOwedLocked();
  }
  if (resume != nullptr) resume->Resume(key_);
}

void GenerateCall::Finish(absl::Status status) {
  std::lock_guard lock(mutex_);
  TANDEM_CHECK(!final_.has_value()) << "a call is finished once";
  final_ = std::move(status);
  PumpLocked();
}

bool GenerateCall::cancelled() const {
  std::lock_guard lock(mutex_);
  return cancelled_;
}

void GenerateCall::OnWriteDone(bool ok) {
  Shard* resume = nullptr;
  {
    std::lock_guard lock(mutex_);
    writing_ = false;
    if (!ok) outbox_.Clear();  // the client is gone; OnCancel says so to the shard
    PumpLocked();
    resume = ResumeOwedLocked();
  }
  if (resume != nullptr) resume->Resume(key_);
}

Shard* GenerateCall::ResumeOwedLocked() {
  if (!slow_ || !outbox_.drained()) return nullptr;
  slow_ = false;
  return shard_;
}

void GenerateCall::OnCancel() {
  Shard* shard = nullptr;
  {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
    outbox_.Clear();
    PumpLocked();
    shard = shard_;
  }
  if (shard != nullptr) shard->Cancel(key_);
}

void GenerateCall::PumpLocked() {
  if (writing_ || reactor_ == nullptr) return;
  if (outbox_.Take(&taken_)) {
    outgoing_.Clear();
    bool own_buffer = false;
    const grpc::Status serialised =
        grpc::SerializationTraits<v1::GenerateResponse>::Serialize(taken_, &outgoing_, &own_buffer);
    TANDEM_CHECK(serialised.ok()) << serialised.error_message();
    writing_ = true;
    reactor_->StartWrite(&outgoing_);
  } else if (final_.has_value()) {
    // The reactor may be gone as soon as this returns.
    std::exchange(reactor_, nullptr)->Finish(ToGrpc(*final_));
  }
}

}  // namespace tandem::text
