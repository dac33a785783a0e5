#include "services/text/shard.h"

#include <algorithm>
#include <chrono>

#include "engine/base/check.h"
#include "services/common/logging.h"
#include "services/text/frame_packer.h"

namespace tandem::text {

static_assert(FramePacker::kHandlesPerOpen >= kMaxChoices);

Shard::Shard(int32_t index, Router* router, std::function<Nanos()> clock)
    : index_(index), router_(router), clock_(std::move(clock)) {
  thread_ = std::thread([this] { Run(); });
}

Shard::~Shard() {
  {
    std::lock_guard lock(mutex_);
    mailbox_.push_back(AllCancelled{absl::UnavailableError("the server is shutting down")});
    stop_ = true;
  }
  posted_.notify_one();
  thread_.join();
}

void Shard::Post(Message message) {
  {
    std::lock_guard lock(mutex_);
    mailbox_.push_back(std::move(message));
  }
  posted_.notify_one();
}

void Shard::Submit(uint64_t key, GenerationRequest request, std::shared_ptr<ResponseSink> sink) {
  // Made here, in the caller's thread: counting a long prompt takes a while.
  Post(Submitted{key, std::make_unique<Session>(std::move(request)), std::move(sink)});
}
void Shard::Cancel(uint64_t key) { Post(Cancelled{key}); }
void Shard::Resume(uint64_t key) { Post(Resumed{key}); }
void Shard::CancelAll(const absl::Status& status) { Post(AllCancelled{status}); }
void Shard::OnEvents(uint64_t connection, std::vector<decode::v1::Event> events) {
  Post(Arrived{connection, std::move(events)});
}
void Shard::OnWorkerLost(uint64_t connection, const absl::Status& status) {
  Post(WorkerLost{connection, status});
}

void Shard::WaitForMail(std::unique_lock<std::mutex>& lock) {
  const auto ready = [this] { return stop_ || !mailbox_.empty(); };
  if (deadlines_.empty()) return posted_.wait(lock, ready);
  const Nanos left = deadlines_.begin()->first - clock_();
  posted_.wait_for(lock, std::chrono::nanoseconds(std::max<Nanos>(0, left)), ready);
}

void Shard::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    WaitForMail(lock);
    std::vector<Message> messages = std::move(mailbox_);
    mailbox_.clear();
    const bool stop = stop_;
    lock.unlock();
    now_ = clock_();
    for (Message& message : messages) {
      std::visit([this](auto& m) { Handle(std::move(m)); }, message);
    }
    FireDeadlines();
    Flush();
    if (stop) return;
    lock.lock();
  }
}

Shard::Entry* Shard::Find(uint64_t key) {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : found->second.get();
}

void Shard::Handle(Submitted message) {
  // A Cancel that came before this was for a key not yet known.
  if (message.sink->cancelled()) return message.sink->Finish(absl::CancelledError("cancelled"));
  const GenerationRequest& request = message.session->request();
  if (request.deadline <= now_) {
    return message.sink->Finish(absl::DeadlineExceededError("the deadline passed"));
  }
  absl::StatusOr<WorkerRef> worker = router_->Place(*request.model, request.choices);
  if (!worker.ok()) return message.sink->Finish(worker.status());

  auto entry = std::make_unique<Entry>();
  entry->session = std::move(message.session);
  entry->sink = std::move(message.sink);
  entry->worker = *std::move(worker);
  if (request.deadline != kNoDeadline) deadlines_.emplace(request.deadline, message.key);
  Entry& placed = *entry;
  entries_.emplace(message.key, std::move(entry));
  SessionOutput output;
  placed.session->Open(placed.worker.model->limits, now_, &output);
  outgoing_[placed.worker.connection].openings.push_back({message.key, request.choices});
  Deliver(message.key, placed, std::move(output));
}

void Shard::Handle(Cancelled message) {
  Entry* entry = Find(message.key);
  if (entry == nullptr) return;
  SessionOutput output;
  entry->session->Cancel(absl::CancelledError("cancelled"), now_, &output);
  Deliver(message.key, *entry, std::move(output));
}

void Shard::Handle(AllCancelled message) {
  std::vector<uint64_t> keys;
  for (const auto& [key, entry] : entries_) keys.push_back(key);
  for (const uint64_t key : keys) {
    Entry& entry = *Find(key);
    SessionOutput output;
    entry.session->Cancel(message.status, now_, &output);
    Deliver(key, entry, std::move(output));
  }
}

void Shard::Handle(Resumed message) {
  Entry* entry = Find(message.key);
  if (entry == nullptr) return;
  entry->paused = false;
  SessionOutput output;
  entry->session->SetPaused(false, now_, &output);
  Deliver(message.key, *entry, std::move(output));
}

void Shard::Handle(Arrived message) {
  for (const decode::v1::Event& event : message.events) {
    uint64_t handle = 0;
    switch (event.event_case()) {
      case decode::v1::Event::kOpened:
        handle = event.opened().handle();
        break;
      case decode::v1::Event::kPrefill:
        handle = event.prefill().handle();
        break;
      case decode::v1::Event::kCandidates:
        handle = event.candidates().handle();
        break;
      case decode::v1::Event::kFetched:
        handle = event.fetched().handle();
        break;
      case decode::v1::Event::kClosed:
        handle = event.closed().handle();
        break;
      case decode::v1::Event::kHello:
      case decode::v1::Event::EVENT_NOT_SET:
        TANDEM_CHECK(false) << "the connection keeps such events to itself";
    }
    // A session that is gone: what the worker sent after its end is dropped.
    const auto found = keys_.find({message.connection, FramePacker::BlockOf(handle)});
    if (found == keys_.end()) continue;
    const uint64_t key = found->second;
    Entry& entry = *Find(key);
    const uint64_t choice = handle - entry.first_handle;
    if (choice >= static_cast<uint64_t>(entry.session->request().choices)) continue;
    SessionOutput output;
    entry.session->OnEvent(event, static_cast<int32_t>(choice), now_, &output);
    Deliver(key, entry, std::move(output));
  }
}

void Shard::Handle(WorkerLost message) {
  std::vector<uint64_t> keys;
  for (const auto& [key, entry] : entries_) {
    if (entry->worker.connection == message.connection) keys.push_back(key);
  }
  for (const uint64_t key : keys) {
    Entry& entry = *Find(key);
    SessionOutput output;
    entry.session->OnWorkerLost(message.status, now_, &output);
    Deliver(key, entry, std::move(output));
  }
}

void Shard::FireDeadlines() {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_) {
    const uint64_t key = deadlines_.begin()->second;
    deadlines_.erase(deadlines_.begin());
    Entry& entry = *Find(key);
    SessionOutput output;
    entry.session->OnTimer(now_, &output);
    Deliver(key, entry, std::move(output));
  }
}

void Shard::Deliver(uint64_t key, Entry& entry, SessionOutput output) {
  Outgoing& outgoing = outgoing_[entry.worker.connection];
  outgoing.link = entry.worker.link;
  for (decode::v1::Command& command : output.commands) {
    outgoing.commands.push_back(std::move(command));
  }
  bool slow = false;
  for (v1::GenerateResponse& message : output.messages) {
    slow |= entry.sink->Write(std::move(message));
  }
  if (entry.session->done()) return Remove(key, entry);
  if (slow && !entry.paused) {
    entry.paused = true;
    SessionOutput nothing;
    entry.session->SetPaused(true, now_, &nothing);
  }
}

void Shard::Remove(uint64_t key, Entry& entry) {
  const GenerationRequest& request = entry.session->request();
  for (int32_t i = 0; i < request.choices; ++i) {
    const v1::Counters& counters = entry.session->choice(i).counters();
    if (counters.misses() + counters.faults() == 0) continue;
    LogError("request ", request.request_id, " choice ", i, ": ", counters.misses(), " misses and ",
             counters.faults(), " faults of worker ", entry.worker.worker);
  }
  entry.sink->Finish(entry.session->FinalStatus());
  router_->Release(entry.worker.connection, request.choices);
  if (request.deadline != kNoDeadline) deadlines_.erase({request.deadline, key});
  if (entry.first_handle != 0) {
    keys_.erase({entry.worker.connection, FramePacker::BlockOf(entry.first_handle)});
  }
  entries_.erase(key);
}

void Shard::Flush() {
  // Again if a session ended between its Open and its handles, and is to be closed now.
  while (!outgoing_.empty()) {
    auto batches = std::move(outgoing_);
    outgoing_.clear();
    for (auto& [connection, batch] : batches) {
      if (batch.commands.empty()) continue;
      const std::vector<uint64_t> first_handles =
          batch.link->Send(index_, connection, std::move(batch.commands));
      AfterSend(connection, batch, first_handles);
    }
  }
}

void Shard::AfterSend(uint64_t connection, const Outgoing& sent,
                      const std::vector<uint64_t>& first_handles) {
  const bool gone = first_handles.size() != sent.openings.size();
  for (size_t i = 0; i < sent.openings.size(); ++i) {
    const auto& [key, choices] = sent.openings[i];
    Entry* entry = Find(key);
    if (entry == nullptr) {
      for (int32_t c = 0; !gone && c < choices; ++c) {
        Outgoing& outgoing = outgoing_[connection];
        outgoing.link = sent.link;
        outgoing.commands.emplace_back().mutable_close()->set_handle(first_handles[i] + c);
      }
    } else if (gone) {
      SessionOutput output;
      entry->session->OnWorkerLost(absl::UnavailableError("the worker was lost"), now_, &output);
      Deliver(key, *entry, std::move(output));
    } else {
      entry->first_handle = first_handles[i];
      entry->session->SetHandles(first_handles[i]);
      keys_[{connection, FramePacker::BlockOf(first_handles[i])}] = key;
    }
  }
}

}  // namespace tandem::text
