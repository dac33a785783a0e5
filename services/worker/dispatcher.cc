#include "services/worker/dispatcher.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "services/common/logging.h"

namespace tandem {
namespace {

int64_t StreamOf(const EngineEvent& event) {
  return std::visit([](const auto& e) { return e.handle.stream; }, event);
}

}  // namespace

Dispatcher::Dispatcher(Mailbox& mailbox) : mailbox_(mailbox) {
  thread_ = std::thread([this] { Run(); });
}

Dispatcher::~Dispatcher() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  posted_.notify_one();
  thread_.join();
}

void Dispatcher::Add(int64_t stream, std::shared_ptr<StreamOutbox> outbox) {
  std::optional<absl::Status> end;
  {
    std::lock_guard lock(mutex_);
    streams_[stream] = outbox;
    end = end_;
  }
  if (end) outbox->End(*end);
}

void Dispatcher::Remove(int64_t stream) {
  std::lock_guard lock(mutex_);
  streams_.erase(stream);
}

int32_t Dispatcher::num_streams() const {
  std::lock_guard lock(mutex_);
  return static_cast<int32_t>(streams_.size());
}

std::optional<EngineLoad> Dispatcher::load() const {
  std::lock_guard lock(mutex_);
  return load_;
}

void Dispatcher::Post(std::vector<EngineEvent> events, const EngineLoad& load) {
  {
    std::lock_guard lock(mutex_);
    batches_.push_back({std::move(events), load, std::nullopt});
    load_ = load;
  }
  posted_.notify_one();
}

void Dispatcher::EndAll(const absl::Status& status) {
  {
    std::lock_guard lock(mutex_);
    end_ = status;
    batches_.push_back({{}, load_.value_or(EngineLoad{}), status});
  }
  posted_.notify_one();
}

void Dispatcher::AbortAll(const absl::Status& status) {
  {
    std::lock_guard lock(mutex_);
    end_ = status;
  }
  for (const auto& [stream, outbox] : Streams()) outbox->Abort(status);
}

void Dispatcher::Run() {
  Nanos next_beat = SteadyNow() + kHeartbeat;
  while (true) {
    std::vector<Batch> batches;
    {
      std::unique_lock lock(mutex_);
      const Nanos patience = std::max<Nanos>(0, next_beat - SteadyNow());
      posted_.wait_for(lock, std::chrono::nanoseconds(patience),
                       [this] { return stop_ || !batches_.empty(); });
      if (stop_ && batches_.empty()) return;
      batches = std::exchange(batches_, {});
    }
    for (Batch& batch : batches) Deliver(std::move(batch));
    if (SteadyNow() >= next_beat) {
      BeatAll();
      next_beat = SteadyNow() + kHeartbeat;
    }
  }
}

void Dispatcher::Deliver(Batch batch) {
  std::map<int64_t, std::vector<EngineEvent>> by_stream;
  for (EngineEvent& event : batch.events) by_stream[StreamOf(event)].push_back(std::move(event));
  for (auto& [stream, events] : by_stream) {
    const std::shared_ptr<StreamOutbox> outbox = Find(stream);
    if (outbox == nullptr || outbox->Push(std::move(events), batch.load)) continue;
    LogWarning("stream ", stream, " is closed: its peer does not read");
    mailbox_.Post(StreamEnded{stream});
  }
  if (!batch.end) return;
  for (const auto& [stream, outbox] : Streams()) outbox->End(*batch.end);
}

void Dispatcher::BeatAll() {
  const std::optional<EngineLoad> last = load();
  for (const auto& [stream, outbox] : Streams()) outbox->Beat(last);
}

std::shared_ptr<StreamOutbox> Dispatcher::Find(int64_t stream) const {
  std::lock_guard lock(mutex_);
  const auto found = streams_.find(stream);
  return found == streams_.end() ? nullptr : found->second;
}

std::map<int64_t, std::shared_ptr<StreamOutbox>> Dispatcher::Streams() const {
  std::lock_guard lock(mutex_);
  return streams_;
}

}  // namespace tandem
