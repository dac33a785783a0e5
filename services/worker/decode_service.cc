#include "services/worker/decode_service.h"

#include <grpcpp/support/byte_buffer.h>

#include <optional>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/status.h"
#include "services/common/decode_codec.h"
#include "services/common/grpc_status.h"
#include "services/common/logging.h"

namespace tandem {
namespace {

namespace pb = ::tandem::decode::v1;

constexpr size_t kTokenizerChunkBytes = 192 << 10;

// A call that ends before it began.
template <typename Reactor>
class RefusedCall final : public Reactor {
 public:
  explicit RefusedCall(const absl::Status& why) { this->Finish(ToGrpc(why)); }
  void OnDone() override { delete this; }
};

}  // namespace

// One Decode call. One read and one write are in flight at most; Finish is called once, when no
// write is. It owns itself from Open to OnDone; wake-ups from the dispatcher and the engine thread
// reach it through a weak pointer.
class DecodeService::DecodeStream final
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
      public std::enable_shared_from_this<DecodeStream> {
 public:
  static DecodeStream* Open(int64_t stream, std::shared_ptr<const ServedEngine> served,
                            grpc::CallbackServerContext* context) {
    auto self = std::make_shared<DecodeStream>(stream, std::move(served), context);
    self->self_ = self;
    self->Start();
    return self.get();
  }

  DecodeStream(int64_t stream, std::shared_ptr<const ServedEngine> served,
               grpc::CallbackServerContext* context)
      : stream_(stream), served_(std::move(served)), context_(context) {}

  void OnReadDone(bool ok) override {
    if (!ok) return Leave(absl::OkStatus());
    pb::DecodeRequest frame;
    if (!grpc::SerializationTraits<pb::DecodeRequest>::Deserialize(&request_, &frame).ok()) {
      return Leave(InvalidArgument("a frame is no DecodeRequest"));
    }
    const absl::StatusOr<bool> read_on = session_->Handle(frame, SteadyNow());
    if (!read_on.ok()) return Leave(read_on.status());
    if (*read_on) ReadNext();
  }

  void OnWriteDone(bool ok) override {
    {
      std::lock_guard lock(mutex_);
      writing_ = false;
    }
    if (!ok) Leave(absl::CancelledError("the peer is gone"));
    WriteNext();
  }

  void OnCancel() override { Leave(absl::CancelledError("the call was cancelled")); }

  void OnDone() override {
    served_->dispatcher->Remove(stream_);
    session_->End();
    LogInfo("stream ", stream_, " ended");
    self_.reset();
  }

 private:
  void Start() {
    outbox_ = std::make_shared<StreamOutbox>(served_->outbox_bytes, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->WriteNext();
    });
    const auto window = std::make_shared<ReadWindow>(kReadWindowBytes, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->ReadNext();
    });
    session_ = std::make_unique<StreamSession>(stream_, served_->limits, *served_->mailbox, outbox_,
                                               window, served_->ends);
    LogInfo("stream ", stream_, " opened by ", context_->peer());
    outbox_->PushHello(served_->hello, served_->dispatcher->load());
    served_->dispatcher->Add(stream_, outbox_);
    ReadNext();
  }

  void ReadNext() {
    std::lock_guard lock(mutex_);
    if (!finished_) StartRead(&request_);
  }

  // Starts the next write, or finishes, unless a write is in flight.
  void WriteNext() {
    std::lock_guard lock(mutex_);
    if (finished_) return;
    const std::optional<absl::Status> end = outbox_->ended();
    if (writing_) {
      if (end) CutOffLocked();
    } else if (end) {
      finished_ = true;
      if (!end->ok()) LogInfo("stream ", stream_, " ends: ", end->ToString());
      Finish(ToGrpc(*end));
    } else if (outbox_->NextFrame(&frame_)) {
      response_.Clear();
      bool own_buffer = false;
      const grpc::Status serialized =
          grpc::SerializationTraits<pb::DecodeResponse>::Serialize(frame_, &response_, &own_buffer);
      TANDEM_CHECK(serialized.ok()) << serialized.error_message();
      writing_ = true;
      StartWrite(&response_);
    }
  }

  // The stream is over but its last write waits for a peer that does not read: after some time the
  // call is cancelled.
  void CutOffLocked() {
    const Nanos now = SteadyNow();
    if (end_seen_ == 0) end_seen_ = now;
    if (now - end_seen_ >= kAbortPatience) context_->TryCancel();
  }

  // Frees the sessions and ends the call; `status` counts if the call was not ending already.
  void Leave(const absl::Status& status) {
    session_->End();
    outbox_->Abort(status);
  }

  const int64_t stream_;
  const std::shared_ptr<const ServedEngine> served_;
  grpc::CallbackServerContext* const context_;
  std::shared_ptr<DecodeStream> self_;
  std::shared_ptr<StreamOutbox> outbox_;
  std::unique_ptr<StreamSession> session_;
  grpc::ByteBuffer request_;  // of the read in flight

  std::mutex mutex_;
  // Guarded by mutex_.
  pb::DecodeResponse frame_;
  grpc::ByteBuffer response_;  // of the write in flight
  bool writing_ = false;
  bool finished_ = false;
  Nanos end_seen_ = 0;
};

// One GetTokenizer call: the data in chunks, one write in flight.
class DecodeService::TokenizerStream final
    : public grpc::ServerWriteReactor<pb::GetTokenizerResponse> {
 public:
  explicit TokenizerStream(std::shared_ptr<const ServedEngine> served)
      : served_(std::move(served)) {
    response_.set_fingerprint(served_->hello.tokenizer_fingerprint());
    response_.set_total_bytes(static_cast<int64_t>(served_->tokenizer.size()));
    WriteNext();
  }

  void OnWriteDone(bool ok) override {
    if (!ok) {
      Finish(ToGrpc(absl::CancelledError("the peer is gone")));
    } else if (sent_ == served_->tokenizer.size()) {
      Finish(grpc::Status::OK);
    } else {
      response_.Clear();
      WriteNext();
    }
  }

  void OnDone() override { delete this; }

 private:
  void WriteNext() {
    response_.set_chunk(served_->tokenizer.substr(sent_, kTokenizerChunkBytes));
    sent_ += response_.chunk().size();
    StartWrite(&response_);
  }

  const std::shared_ptr<const ServedEngine> served_;
  size_t sent_ = 0;
  pb::GetTokenizerResponse response_;
};

int64_t OutboxBytes(int32_t max_sessions, int32_t max_run_ahead, int32_t vocab_size) {
  const int64_t row_bytes = int64_t{4} * vocab_size;
  const int64_t answer_bytes = int64_t{32} << 10;
  return 2 * int64_t{max_sessions} * (row_bytes + (int64_t{max_run_ahead} + 1) * answer_bytes);
}

DecodeService::DecodeService() : refusal_(absl::UnavailableError("the model is being loaded")) {}
DecodeService::~DecodeService() = default;

void DecodeService::Serve(std::shared_ptr<const ServedEngine> served) {
  std::lock_guard lock(mutex_);
  served_ = std::move(served);
}

void DecodeService::Refuse(const absl::Status& why) {
  std::lock_guard lock(mutex_);
  served_.reset();
  refusal_ = why;
}

absl::StatusOr<std::shared_ptr<const ServedEngine>> DecodeService::served() const {
  std::lock_guard lock(mutex_);
  if (served_ == nullptr) return refusal_;
  return served_;
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* DecodeService::Decode(
    grpc::CallbackServerContext* context) {
  using Refused = RefusedCall<grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>>;
  absl::StatusOr<std::shared_ptr<const ServedEngine>> engine = served();
  if (!engine.ok()) return new Refused(engine.status());
  const int32_t streams = (*engine)->dispatcher->num_streams();
  if (streams >= kMaxStreams) {
    return new Refused(ResourceExhausted(streams, " streams are open: the limit is ", kMaxStreams));
  }
  int64_t stream = 0;
  {
    std::lock_guard lock(mutex_);
    stream = next_stream_++;
  }
  return DecodeStream::Open(stream, *std::move(engine), context);
}

grpc::ServerWriteReactor<pb::GetTokenizerResponse>* DecodeService::GetTokenizer(
    grpc::CallbackServerContext*, const pb::GetTokenizerRequest*) {
  using Refused = RefusedCall<grpc::ServerWriteReactor<pb::GetTokenizerResponse>>;
  absl::StatusOr<std::shared_ptr<const ServedEngine>> engine = served();
  if (!engine.ok()) return new Refused(engine.status());
  return new TokenizerStream(*std::move(engine));
}

}  // namespace tandem
