#include "services/text/worker_connection.h"

#include <algorithm>
#include <random>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/status.h"
#include "services/common/decode_codec.h"
#include "services/common/grpc_status.h"
#include "services/common/logging.h"

namespace tandem::text {
namespace {

namespace pb = decode::v1;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kWatchInterval{100};
constexpr milliseconds kStable{1000};  // a connection that lasted so long was a good one
constexpr int64_t kMaxTokenizerBytes = int64_t{128} << 20;

bool IsDraining(const pb::Event& event) {
  return event.closed().reason() == pb::CLOSE_REASON_DRAINING;
}

}  // namespace

// Moves messages, and knows when it may: the owner writes under its mutex while `stream_` is this.
class WorkerConnection::Stream final
    : public grpc::ClientBidiReactor<pb::DecodeRequest, pb::DecodeResponse> {
 public:
  explicit Stream(WorkerConnection* owner) : owner_(owner), frame_(owner->frames_->Take()) {}

  void Start() {
    owner_->stub_->async()->Decode(&context_, this);
    AddHold();  // for writes, which start outside of reactions; removed with the last read
    StartRead(frame_->mutable_message());
    StartCall();
  }

  void WriteNext(FramePacker* packer) {
    packer->Next(&outgoing_);
    StartWrite(&outgoing_);
  }

  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (ok) {
      owner_->OnFrame(std::move(frame_));
      {
        // gRPC calls in order, but from any thread and through locks that ThreadSanitizer does not
        // see; with this one it sees that a frame's users come after each other.
        std::lock_guard lock(owner_->mutex_);
        frame_ = owner_->frames_->Take();
      }
      return StartRead(frame_->mutable_message());
    }
    {
      std::lock_guard lock(owner_->mutex_);
      owner_->stream_ = nullptr;
    }
    RemoveHold();
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(owner_->mutex_);
    owner_->writing_ = false;
    if (ok) owner_->PumpLocked();
  }

  void OnDone(const grpc::Status& status) override {
    // Nothing of this may be touched once the owner can see `ended_`.
    WorkerConnection* const owner = owner_;
    std::lock_guard lock(owner->mutex_);
    owner->FailLocked(status.ok() ? absl::UnavailableError("the worker ended the stream")
                                  : FromGrpc(status));
    owner->ended_ = true;
    owner->changed_.notify_all();
  }

 private:
  WorkerConnection* const owner_;
  grpc::ClientContext context_;
  std::shared_ptr<EventFrame> frame_;  // that is read into
  pb::DecodeRequest outgoing_;
};

WorkerConnection::WorkerConnection(WorkerConnectionOptions options, ModelTextCache* cache,
                                   WorkerListener* listener)
    : options_(std::move(options)),
      cache_(cache),
      listener_(listener),
      stub_(pb::DecodeWorker::NewStub(options_.channel)),
      connection_(ConnectionsOf(options_.worker)),
      packer_(options_.num_shards) {
  thread_ = std::thread([this] { Run(); });
}

WorkerConnection::~WorkerConnection() {
  Stop();
  Join();
}

void WorkerConnection::Join() {
  if (thread_.joinable()) thread_.join();
}

void WorkerConnection::Stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    if (fetch_context_ != nullptr) fetch_context_->TryCancel();
  }
  changed_.notify_all();
}

void WorkerConnection::Run() {
  std::mt19937_64 random(std::random_device{}());
  milliseconds pause = options_.min_pause;
  std::string last_complaint;
  while (true) {
    const auto dialled = steady_clock::now();
    const absl::Status status = Serve();
    // A worker that comes up and goes down again is no reason to hurry.
    if (steady_clock::now() - dialled > kStable) pause = options_.min_pause;
    if (!status.ok()) SetLastError(status);
    if (status.ok()) {
      last_complaint.clear();
    } else if (last_complaint != status.message()) {
      // A worker that is not up is tried again and again; it is told once.
      last_complaint = std::string(status.message());
      LogWarning("worker ", options_.address, ": ", last_complaint);
    }
    const int64_t jitter = static_cast<int64_t>(random() % 51) - 25;
    if (WaitUntilStopped(pause + pause * jitter / 100)) return;
    pause = std::min(2 * pause, options_.max_pause);
  }
}

bool WorkerConnection::WaitUntilStopped(milliseconds pause) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, pause, [this] { return stop_; });
}

absl::Status WorkerConnection::Serve() {
  Stream stream(this);
  std::unique_lock lock(mutex_);
  if (stop_) return absl::OkStatus();
  ++connection_;
  const uint64_t connection = connection_;
  connected_ = writing_ = ended_ = false;
  failure_ = absl::OkStatus();
  hello_.reset();
  step_ = -1;
  drains_ = false;
  packer_.Clear();
  stream_ = &stream;
  lock.unlock();
  stream.Start();

  lock.lock();
  changed_.wait_for(lock, options_.hello_patience,
                    [this] { return stop_ || !failure_.ok() || hello_.has_value(); });
  absl::Status status = failure_;
  if (status.ok() && !hello_.has_value()) status = absl::UnavailableError("no Hello came");
  WorkerRef worker{.worker = options_.worker, .connection = connection, .link = this};
  if (status.ok() && !stop_) {
    const pb::Hello hello = *hello_;
    lock.unlock();
    auto text = cache_->Get(hello.tokenizer_fingerprint(), [this] { return FetchTokenizer(); });
    auto model = text.ok() ? MakeServedModel(hello, *std::move(text))
                           : absl::StatusOr<std::shared_ptr<const ServedModel>>(text.status());
    lock.lock();
    status = model.status();
    if (status.ok()) status = failure_;
    if (status.ok()) worker.model = *std::move(model);
  }
  const bool connect = status.ok() && !stop_;
  if (connect) {
    connected_ = true;
    last_frame_ = last_step_ = SteadyNow();
    lock.unlock();
    LogInfo("worker ", options_.address, " serves ", worker.model->name, " (",
            worker.model->WorkerFingerprint(), ")");
    listener_->OnConnected(worker);
    lock.lock();
    status = Watch(lock, connection);
    connected_ = false;
    const bool stopping = stop_;
    lock.unlock();
    if (!stopping) LogWarning("worker ", options_.address, " is lost: ", status.message());
    SetLastError(status);
    listener_->OnLost(connection, absl::UnavailableError(
                                      absl::StrCat("the worker was lost: ", status.message())));
    lock.lock();
  }
  stream.Cancel();
  changed_.wait(lock, [this] { return ended_; });
  return connect || stop_ ? absl::OkStatus() : status;
}

absl::Status WorkerConnection::Watch(std::unique_lock<std::mutex>& lock, uint64_t connection) {
  const Nanos silence = std::chrono::nanoseconds(options_.silence).count();
  const Nanos stall = std::chrono::nanoseconds(options_.stall).count();
  Nanos checked = SteadyNow();
  Nanos reported = checked;  // that there was no step
  bool suspect = false;
  while (true) {
    changed_.wait_for(lock, kWatchInterval, [this] { return stop_ || !failure_.ok(); });
    if (!failure_.ok()) return failure_;
    if (stop_) return absl::CancelledError("this side stops");
    const Nanos now = SteadyNow();
    // If this process was not run for a while, the frames that came meanwhile are still unread.
    if (now - checked > silence / 2) last_frame_ = last_step_ = now;
    checked = now;
    const Nanos silent = now - last_frame_;
    if (silent > 2 * silence) {
      return absl::UnavailableError(
          absl::StrCat("no frame came for ", 2 * options_.silence.count(), " ms"));
    }
    const bool report = now - last_step_ > stall && now - reported > kNanosPerSecond;
    const bool change = suspect != (silent > silence);
    if (!report && !change) continue;
    lock.unlock();
    if (change) {
      suspect = !suspect;
      LogWarning("worker ", options_.address, suspect ? " is silent" : " is heard again");
      listener_->OnSuspect(connection, suspect);
    }
    if (report) {
      reported = now;
      // Not last_step_: a session may have come after it.
      listener_->OnNoStep(connection, now - stall);
    }
    lock.lock();
  }
}

absl::StatusOr<TokenizerData> WorkerConnection::FetchTokenizer() {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + options_.fetch_patience);
  {
    std::lock_guard lock(mutex_);
    if (stop_) return absl::CancelledError("this side stops");
    fetch_context_ = &context;
  }
  std::string bytes;
  int64_t total = -1;
  pb::GetTokenizerResponse chunk;
  const auto reader = stub_->GetTokenizer(&context, pb::GetTokenizerRequest());
  bool too_much = false;
  while (reader->Read(&chunk)) {
    if (total < 0) total = chunk.total_bytes();
    too_much |= total > kMaxTokenizerBytes ||
                static_cast<int64_t>(bytes.size() + chunk.chunk().size()) > total;
    if (too_much) {
      context.TryCancel();
      break;
    }
    bytes += chunk.chunk();
  }
  const grpc::Status status = reader->Finish();
  {
    std::lock_guard lock(mutex_);
    fetch_context_ = nullptr;
  }
  if (too_much) {
    return ResourceExhausted("the tokenizer has ", total, " bytes, or more than it says: at most ",
                             kMaxTokenizerBytes);
  }
  if (!status.ok()) return FromGrpc(status);
  if (static_cast<int64_t>(bytes.size()) != total) {
    return absl::DataLossError(
        absl::StrCat("the tokenizer has ", bytes.size(), " bytes: it should be ", total));
  }
  pb::TokenizerData message;
  if (!message.ParseFromString(bytes)) {
    return absl::DataLossError("the tokenizer's bytes are no TokenizerData");
  }
  return FromProto(message);
}

absl::Status WorkerConnection::CheckFrame(const pb::DecodeResponse& frame, bool first) const {
  if (first) {
    if (frame.events().empty() || !frame.events(0).has_hello()) {
      return FailedPrecondition("the first event is no Hello");
    }
    RETURN_IF_ERROR(CheckHello(frame.events(0).hello()));
  }
  for (int i = first ? 1 : 0; i < frame.events_size(); ++i) {
    const pb::Event& event = frame.events(i);
    if (event.event_case() == pb::Event::EVENT_NOT_SET) {
      return Unimplemented("an event of a kind that this side does not know");
    }
    if (event.has_hello()) return InvalidArgument("a second Hello");
    if (HandleOf(event) < FramePacker::kHandlesPerOpen || !packer_.Given(HandleOf(event))) {
      return InvalidArgument("an event for handle ", HandleOf(event), ", which was never given");
    }
  }
  return absl::OkStatus();
}

void WorkerConnection::OnFrame(std::shared_ptr<EventFrame> arrived) {
  const pb::DecodeResponse& frame = arrived->message();
  uint64_t connection = 0;
  bool drains = false;
  {
    std::lock_guard lock(mutex_);
    last_frame_ = SteadyNow();
    if (frame.has_load()) {
      const pb::Load& load = frame.load();
      if (load.step() != step_ || load.running() + load.queued() == 0) last_step_ = last_frame_;
      step_ = load.step();
    }
    connection = connection_;
    const bool first = !hello_.has_value();
    const absl::Status status = CheckFrame(frame, first);
    if (!status.ok()) return FailLocked(status);
    if (first) {
      hello_ = frame.events(0).hello();
      changed_.notify_all();
    }
    if (!connected_) return;
    drains = !drains_ && std::any_of(frame.events().begin(), frame.events().end(), IsDraining);
    drains_ |= drains;
  }
  if (drains) listener_->OnDraining(connection);
  if (frame.has_load()) listener_->OnLoad(connection, frame.load());
  arrived->Cut(packer_, options_.num_shards);
  for (int32_t shard = 0; shard < options_.num_shards; ++shard) {
    if (!arrived->OfShard(shard).empty()) listener_->OnEvents(connection, shard, arrived);
  }
}

void WorkerConnection::FailLocked(absl::Status status) {
  if (!failure_.ok()) return;
  failure_ = std::move(status);
  changed_.notify_all();
}

std::vector<uint64_t> WorkerConnection::Send(int32_t shard, uint64_t connection,
                                             std::span<pb::Command> commands) {
  std::lock_guard lock(mutex_);
  if (connection != connection_ || !connected_ || stream_ == nullptr) return {};
  std::vector<uint64_t> first_handles = packer_.Add(shard, commands);
  PumpLocked();
  return first_handles;
}

void WorkerConnection::Drop(uint64_t connection, const absl::Status& status) {
  std::lock_guard lock(mutex_);
  if (connection == connection_ && connected_) FailLocked(status);
}

WorkerConnection::State WorkerConnection::state() const {
  std::lock_guard lock(mutex_);
  return {.address = options_.address,
          .connection = connection_,
          .device = hello_.has_value() ? hello_->device() : "",
          .last_error = last_error_};
}

void WorkerConnection::SetLastError(const absl::Status& status) {
  std::lock_guard lock(mutex_);
  last_error_ = std::string(status.message());
}

void WorkerConnection::PumpLocked() {
  if (writing_ || stream_ == nullptr || packer_.empty()) return;
  writing_ = true;
  stream_->WriteNext(&packer_);
}

}  // namespace tandem::text
