#include "tests/support/scripted_worker.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "engine/base/check.h"
#include "engine/text/tokenizer_data.h"
#include "services/common/decode_codec.h"

namespace tandem::test {
namespace {

namespace pb = decode::v1;
using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTick{2};
constexpr size_t kChunkBytes = 1000;  // small, so that a small tokenizer comes in several

}  // namespace

// One Decode stream. All its state is guarded by the worker's mutex.
class ScriptedWorker::Stream final
    : public grpc::ServerBidiReactor<pb::DecodeRequest, pb::DecodeResponse> {
 public:
  explicit Stream(ScriptedWorker* owner) : owner_(owner) {
    std::lock_guard lock(owner_->mutex_);
    step_time_ = owner_->options_.step_time;
    decoder_ = std::make_unique<ScriptedDecoder>(owner_->options_.decoder);
    owner_->streams_.insert(this);
    ++owner_->ended_.streams;
    pb::Hello* hello = waiting_.emplace_back().mutable_hello();
    *hello = decoder_->Hello();
    if (owner_->options_.tamper_hello) owner_->options_.tamper_hello(hello);
    FlushLocked(true);
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    std::lock_guard lock(owner_->mutex_);
    if (!ok) return FinishLocked(grpc::Status::OK);
    if (finished_) return;  // a frame that was on its way when the stream ended
    ++frames_;
    max_frame_bytes_ = std::max<int64_t>(max_frame_bytes_, incoming_.ByteSizeLong());
    for (const pb::Command& command : incoming_.commands()) {
      for (pb::Event& event : decoder_->Apply(command)) {
        waiting_.push_back(std::move(event));
        ready_at_.push_back(steady_clock::now() + step_time_);
      }
    }
    if (step_time_.count() == 0) FlushLocked(false);
    if (owner_->silent_) {
      read_paused_ = true;
    } else {
      StartRead(&incoming_);
    }
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(owner_->mutex_);
    writing_ = false;
    if (!ok) return FinishLocked(grpc::Status::OK);
    if (end_.has_value()) return FinishLocked(*end_);
    if (step_time_.count() == 0) FlushLocked(false);
  }

  void OnCancel() override {
    std::lock_guard lock(owner_->mutex_);
    FinishLocked(grpc::Status::CANCELLED);
  }

  void OnDone() override {
    {
      std::lock_guard lock(owner_->mutex_);
      owner_->streams_.erase(this);
      owner_->ended_.frames += frames_;
      owner_->ended_.max_frame_bytes = std::max(owner_->ended_.max_frame_bytes, max_frame_bytes_);
      owner_->Absorb(*decoder_);
    }
    owner_->changed_.notify_all();
    delete this;
  }

  // What is due goes out; a heartbeat, if asked for.
  void FlushLocked(bool heartbeat) {
    if (writing_ || finished_ || owner_->silent_) return;
    if (read_paused_) {
      read_paused_ = false;
      StartRead(&incoming_);
    }
    outgoing_.Clear();
    const auto now = steady_clock::now();
    while (!waiting_.empty() && (ready_at_.empty() || ready_at_.front() <= now) &&
           outgoing_.ByteSizeLong() < 100'000) {
      *outgoing_.add_events() = std::move(waiting_.front());
      waiting_.pop_front();
      if (!ready_at_.empty()) ready_at_.pop_front();
    }
    if (outgoing_.events().empty() && !heartbeat) return;
    *outgoing_.mutable_load() = owner_->options_.load;
    outgoing_.mutable_load()->set_running(static_cast<int32_t>(decoder_->live().size()));
    writing_ = true;
    StartWrite(&outgoing_);
  }

  void EndLocked(const grpc::Status& status) {
    end_ = status;
    if (!writing_) FinishLocked(status);
  }

  void InjectLocked(const pb::Event& event) {
    waiting_.push_back(event);
    ready_at_.push_back(steady_clock::now());
    FlushLocked(false);
  }

  void DrainLocked() {
    for (const uint64_t handle : decoder_->live()) {
      for (pb::Event& event : decoder_->Close(handle, pb::CLOSE_REASON_DRAINING)) {
        waiting_.push_back(std::move(event));
        ready_at_.push_back(steady_clock::now());
      }
    }
    FlushLocked(false);
  }

  const ScriptedDecoder& decoder() const { return *decoder_; }
  int64_t frames() const { return frames_; }
  int64_t max_frame_bytes() const { return max_frame_bytes_; }

 private:
  void FinishLocked(const grpc::Status& status) {
    if (std::exchange(finished_, true)) return;
    decoder_->Reset();  // the stream is the lease
    Finish(status);
  }

  ScriptedWorker* const owner_;
  std::chrono::milliseconds step_time_{0};
  std::unique_ptr<ScriptedDecoder> decoder_;
  std::deque<pb::Event> waiting_;
  std::deque<steady_clock::time_point> ready_at_;  // of waiting_; the Hello has none
  pb::DecodeRequest incoming_;
  pb::DecodeResponse outgoing_;
  bool writing_ = false;
  bool finished_ = false;
  bool read_paused_ = false;
  std::optional<grpc::Status> end_;
  int64_t frames_ = 0;
  int64_t max_frame_bytes_ = 0;
};

class ScriptedWorker::Service final : public pb::DecodeWorker::CallbackService {
 public:
  explicit Service(ScriptedWorker* owner) : owner_(owner) {}

  grpc::ServerBidiReactor<pb::DecodeRequest, pb::DecodeResponse>* Decode(
      grpc::CallbackServerContext*) override {
    return new Stream(owner_);
  }

  grpc::ServerWriteReactor<pb::GetTokenizerResponse>* GetTokenizer(
      grpc::CallbackServerContext*, const pb::GetTokenizerRequest*) override {
    class Writer final : public grpc::ServerWriteReactor<pb::GetTokenizerResponse> {
     public:
      Writer(const TokenizerData& data, const std::function<void(std::string*)>& tamper) {
        pb::TokenizerData message;
        ToProto(data, &message);
        bytes_ = message.SerializeAsString();
        chunk_.set_fingerprint(TokenizerFingerprint(data));
        chunk_.set_total_bytes(static_cast<int64_t>(bytes_.size()));
        if (tamper) tamper(&bytes_);
        Next();
      }
      void OnWriteDone(bool ok) override {
        chunk_.Clear();
        if (ok) return Next();
        Finish(grpc::Status::OK);
      }
      void OnDone() override { delete this; }

     private:
      void Next() {
        if (sent_ >= bytes_.size()) return Finish(grpc::Status::OK);
        const size_t count = std::min(kChunkBytes, bytes_.size() - sent_);
        chunk_.set_chunk(bytes_.substr(sent_, count));
        sent_ += count;
        StartWrite(&chunk_);
      }
      std::string bytes_;
      size_t sent_ = 0;
      pb::GetTokenizerResponse chunk_;
    };
    std::lock_guard lock(owner_->mutex_);
    ++owner_->ended_.tokenizers;
    return new Writer(owner_->options_.decoder.tokenizer, owner_->options_.tamper_tokenizer);
  }

 private:
  ScriptedWorker* const owner_;
};

ScriptedWorker::ScriptedWorker(ScriptedWorkerOptions options) : options_(std::move(options)) {
  beat_ = std::thread([this] { Beat(); });
}

ScriptedWorker::~ScriptedWorker() {
  Kill();
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  beat_.join();
}

void ScriptedWorker::Start() {
  TANDEM_CHECK(server_ == nullptr) << "it runs";
  service_ = std::make_unique<Service>(this);
  grpc::Service* const services[] = {service_.get()};
  auto server = RpcServer::Start(
      {.listen = address_, .max_receive_bytes = kMaxFrameBytes, .max_send_bytes = kMaxFrameBytes},
      services);
  TANDEM_CHECK(server.ok()) << server.status();
  server_ = *std::move(server);
  address_ = server_->address();
}

void ScriptedWorker::Kill() {
  if (server_ == nullptr) return;
  DropStreams();
  server_.reset();
  service_.reset();
}

void ScriptedWorker::DropStreams() {
  std::lock_guard lock(mutex_);
  for (Stream* stream : streams_) {
    stream->EndLocked(grpc::Status(grpc::StatusCode::UNAVAILABLE, "dropped"));
  }
}

void ScriptedWorker::Drain() {
  std::lock_guard lock(mutex_);
  for (Stream* stream : streams_) stream->DrainLocked();
}

void ScriptedWorker::SetOptions(ScriptedWorkerOptions options) {
  std::lock_guard lock(mutex_);
  options_ = std::move(options);
}

void ScriptedWorker::Inject(const pb::Event& event) {
  std::lock_guard lock(mutex_);
  for (Stream* stream : streams_) stream->InjectLocked(event);
}

void ScriptedWorker::Beat() {
  auto beat_at = steady_clock::now();
  std::unique_lock lock(mutex_);
  while (!stop_) {
    changed_.wait_for(lock, kTick);
    const bool beat = steady_clock::now() >= beat_at;
    if (beat) beat_at = steady_clock::now() + options_.heartbeat;
    for (Stream* stream : streams_) stream->FlushLocked(beat);
  }
}

void ScriptedWorker::Absorb(const ScriptedDecoder& decoder) {
  ended_.opens += decoder.opens;
  ended_.extends += decoder.extends;
  ended_.closes += decoder.closes;
  ended_.errors.insert(ended_.errors.end(), decoder.errors.begin(), decoder.errors.end());
}

ScriptedWorker::Totals ScriptedWorker::totals() const {
  std::lock_guard lock(mutex_);
  Totals out = ended_;
  for (const Stream* stream : streams_) {
    const ScriptedDecoder& decoder = stream->decoder();
    out.opens += decoder.opens;
    out.extends += decoder.extends;
    out.closes += decoder.closes;
    out.live += static_cast<int64_t>(decoder.live().size());
    out.frames += stream->frames();
    out.max_frame_bytes = std::max(out.max_frame_bytes, stream->max_frame_bytes());
    out.errors.insert(out.errors.end(), decoder.errors.begin(), decoder.errors.end());
  }
  return out;
}

}  // namespace tandem::test
