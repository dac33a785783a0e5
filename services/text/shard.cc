#include "services/text/shard.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "services/common/logging.h"
#include "services/text/frame_packer.h"

namespace tandem::text {

Shard::Shard(int32_t index, Router* router, const ReplayPolicy& policy,
             std::function<Nanos()> clock, TraceRecorder* traces, bool log_requests)
    : index_(index),
      router_(router),
      policy_(policy),
      clock_(std::move(clock)),
      traces_(traces),
      log_requests_(log_requests) {
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
  Post(Submitted{key, std::make_unique<Session>(std::move(request), policy_), std::move(sink)});
}
void Shard::Cancel(uint64_t key) { Post(Cancelled{key}); }
void Shard::Resume(uint64_t key) { Post(Resumed{key}); }
void Shard::CancelAll(const absl::Status& status) { Post(AllCancelled{status}); }
void Shard::OnEvents(uint64_t connection, std::shared_ptr<const EventFrame> frame) {
  Post(Arrived{connection, std::move(frame)});
}
void Shard::OnWorkerLost(uint64_t connection, const absl::Status& status) {
  Post(WorkerLost{connection, status});
}
void Shard::OnNoStep(uint64_t connection, Nanos since) { Post(NoStep{connection, since}); }

void Shard::WaitForMail(std::unique_lock<std::mutex>& lock) {
  const auto ready = [this] { return stop_ || !mailbox_.empty(); };
  if (timers_.empty()) return posted_.wait(lock, ready);
  const Nanos left = timers_.begin()->first - clock_();
  posted_.wait_for(lock, std::chrono::nanoseconds(std::max<Nanos>(0, left)), ready);
}

void Shard::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    WaitForMail(lock);
    std::swap(taken_, mailbox_);
    const bool stop = stop_;
    lock.unlock();
    now_ = clock_();
    const int64_t tokens_before = counts_.output_tokens();
    opens_left_ = kOpensPerWakeUp;
    for (Message& message : taken_) {
      std::visit([this](auto& m) { Handle(std::move(m)); }, message);
    }
    taken_.clear();
    FireTimers();
    Flush();
    FlushClients();
    if (counts_.output_tokens() > tokens_before) {
      counts_.decide_seconds.Observe(Seconds(clock_() - now_));
    }
    counts_.running = static_cast<int64_t>(entries_.size());
    lock.lock();
    published_ = counts_;
    if (stop) return;
  }
}

Shard::Entry* Shard::Find(uint64_t key) {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : found->second.get();
}

void Shard::Handle(Submitted message) {
  const GenerationRequest& request = message.session->request();
  absl::Status over;
  // A Cancel that came before this was for a key not yet known.
  if (message.sink->cancelled()) over = absl::CancelledError("cancelled");
  if (over.ok() && request.deadline <= now_) {
    over = absl::DeadlineExceededError("the deadline passed");
  }
  if (!over.ok()) {
    CountRequest(request, over);
    return message.sink->Finish(over);
  }
  auto entry = std::make_unique<Entry>();
  entry->session = std::move(message.session);
  entry->sink = std::move(message.sink);
  if (traces_ != nullptr) entry->trace = traces_->Begin(request, now_);
  Entry& added = *entry;
  entries_.emplace(message.key, std::move(entry));
  ++counts_.waiting;
  SessionOutput output;
  added.session->Begin(now_, &output);
  if (added.session->done()) return Deliver(message.key, added, output);
  PlaceWhatIsDue(message.key, added);
}

void Shard::Handle(Cancelled message) {
  Entry* entry = Find(message.key);
  if (entry == nullptr) return;
  SessionOutput output;
  entry->session->Cancel(absl::CancelledError("cancelled"), now_, &output);
  Deliver(message.key, *entry, output);
}

void Shard::Handle(AllCancelled message) {
  std::vector<uint64_t> keys;
  for (const auto& [key, entry] : entries_) keys.push_back(key);
  for (const uint64_t key : keys) {
    Entry& entry = *Find(key);
    SessionOutput output;
    entry.session->Cancel(message.status, now_, &output);
    Deliver(key, entry, output);
  }
}

void Shard::Handle(Resumed message) {
  Entry* entry = Find(message.key);
  if (entry == nullptr) return;
  entry->paused = false;
  SessionOutput output;
  std::vector<ChoiceMark> before;
  const int32_t choices = entry->session->request().choices;
  for (int32_t i = 0; i < choices; ++i) before.emplace_back(entry->session->choice(i));
  entry->session->SetPaused(false, now_, &output);
  for (int32_t i = 0; i < choices; ++i) Count(before[i], i, entry);
  Deliver(message.key, *entry, output);
}

void Shard::Handle(Arrived message) {
  for (const decode::v1::Event* const arrived : message.frame->OfShard(index_)) {
    const decode::v1::Event& event = *arrived;
    const uint64_t handle = HandleOf(event);
    // A session that is gone: what the worker sent after its end is dropped.
    const auto found = keys_.find({message.connection, FramePacker::BlockOf(handle)});
    if (found == keys_.end()) continue;
    const uint64_t key = found->second;
    Entry& entry = *Find(key);
    const int32_t choice = entry.session->ChoiceAt(message.connection, handle);
    if (choice < 0) continue;
    if (event.has_opened()) {
      for (Placement& placement : entry.placements) {
        if (placement.worker.connection == message.connection &&
            FramePacker::BlockOf(placement.first_handle) == FramePacker::BlockOf(handle)) {
          Settle(placement);
        }
      }
    }
    if (entry.trace != nullptr) entry.trace->OnEvent(message.connection, event, now_);
    output_.clear();
    const ChoiceMark before(entry.session->choice(choice));
    entry.session->OnEvent(event, choice, now_, &output_);
    Count(before, choice, &entry);
    Deliver(key, entry, output_);
  }
}

std::vector<uint64_t> Shard::KeysOn(uint64_t connection) const {
  std::vector<uint64_t> keys;
  for (const auto& [key, entry] : entries_) {
    const auto is_there = [&](const Placement& p) { return p.worker.connection == connection; };
    if (std::any_of(entry->placements.begin(), entry->placements.end(), is_there)) {
      keys.push_back(key);
    }
  }
  return keys;
}

void Shard::Handle(WorkerLost message) {
  lost_.push_back(message.connection);
  for (const uint64_t key : KeysOn(message.connection)) {
    Entry& entry = *Find(key);
    if (entry.trace != nullptr) entry.trace->OnLost(message.connection, message.status, now_);
    SessionOutput output;
    entry.session->OnWorkerLost(message.connection, message.status, now_, &output);
    Deliver(key, entry, output);
  }
}

void Shard::Handle(NoStep message) {
  for (const uint64_t key : KeysOn(message.connection)) {
    const Entry& entry = *Find(key);
    if (!entry.session->AwaitsSince(message.connection, message.since)) continue;
    for (const Placement& placement : entry.placements) {
      if (placement.worker.connection != message.connection) continue;
      return placement.worker.link->Drop(
          message.connection,
          absl::UnavailableError(absl::StrCat("it has work and finished no step for ",
                                              (now_ - message.since) / kNanosPerSecond, " s")));
    }
  }
}

void Shard::FireTimers() {
  std::vector<uint64_t> due;
  for (auto it = timers_.begin(); it != timers_.end() && it->first <= now_; ++it) {
    due.push_back(it->second);
  }
  for (const uint64_t key : due) {
    Entry* entry = Find(key);
    SessionOutput output;
    entry->session->OnTimer(now_, &output);
    Deliver(key, *entry, output);
    entry = Find(key);
    // What is left over stays due, so that the next wake-up is at once.
    if (entry != nullptr && opens_left_ > 0) PlaceWhatIsDue(key, *entry);
  }
}

void Shard::SetTimer(uint64_t key, Entry& entry, Nanos timer) {
  if (entry.timer == timer) return;
  if (entry.timer != kNoDeadline) timers_.erase({entry.timer, key});
  entry.timer = timer;
  if (timer != kNoDeadline) timers_.emplace(timer, key);
}

Shard::Outgoing& Shard::OutgoingTo(uint64_t connection) {
  std::unique_ptr<Outgoing>& outgoing = outgoing_[connection];
  if (outgoing == nullptr) outgoing = std::make_unique<Outgoing>();
  return *outgoing;
}

decode::v1::Command& Shard::AddCommand(uint64_t connection, WorkerLink* link) {
  Outgoing& outgoing = OutgoingTo(connection);
  if (link != nullptr) outgoing.link = link;
  if (outgoing.commands.empty()) due_.push_back(connection);
  return outgoing.commands.emplace_back();
}

void Shard::Deliver(uint64_t key, Entry& entry, SessionOutput& output) {
  if (entry.trace != nullptr) Record(entry, output);
  for (WorkerCommand& command : output.commands) {
    WorkerLink* link = nullptr;
    for (const Placement& placement : entry.placements) {
      if (placement.worker.connection == command.connection) link = placement.worker.link;
    }
    AddCommand(command.connection, link).Swap(&command.command);
  }
  if (!output.messages.empty() && !std::exchange(entry.written, true)) {
    written_.emplace_back(key, entry.sink);
  }
  bool slow = false;
  for (v1::GenerateResponse& message : output.messages) {
    slow |= entry.sink->Write(&message);
  }
  if (entry.session->done()) return Remove(key, entry);
  if (slow && !entry.paused) {
    entry.paused = true;
    ++counts_.pauses;
    SessionOutput nothing;
    entry.session->SetPaused(true, now_, &nothing);
  }
  if (output.unplaced) DropPlacements(entry);
  SetTimer(key, entry, entry.session->NextTimer());
}

void Shard::Record(const Entry& entry, const SessionOutput& output) const {
  for (const WorkerCommand& command : output.commands) {
    entry.trace->OnCommand(command.connection, command.command, now_);
  }
  for (const v1::GenerateResponse& message : output.messages) {
    if (!message.has_finished()) continue;
    const Choice& choice = entry.session->choice(message.finished().choice());
    entry.trace->OnFinished(message.finished(), choice.tokens(), now_);
  }
}

void Shard::Remove(uint64_t key, Entry& entry) {
  const absl::Status status = entry.session->FinalStatus();
  CountEnd(entry, status);
  LogEnd(*entry.session, status);
  if (entry.trace != nullptr) entry.trace->End(status);
  entry.sink->Finish(status);
  for (Placement& placement : entry.placements) EndPlacement(placement);
  SetTimer(key, entry, kNoDeadline);
  entries_.erase(key);
}

void Shard::Flush() {
  // Again if a session ended between its Open and its handles, and is to be closed now.
  while (!due_.empty()) {
    const uint64_t connection = due_.back();
    due_.pop_back();
    Outgoing& batch = *outgoing_.at(connection);
    TANDEM_CHECK(batch.link != nullptr) << "commands for a worker that no session is on";
    const std::vector<uint64_t> first_handles =
        batch.link->Send(index_, connection, batch.commands.span());
    batch.commands.clear();
    const std::vector<Opening> openings = std::exchange(batch.openings, {});
    AfterSend(connection, batch.link, openings, first_handles);
  }
  for (const uint64_t connection : lost_) outgoing_.erase(connection);
  lost_.clear();
}

void Shard::FlushClients() {
  for (const auto& [key, sink] : written_) {
    sink->Flush();
    if (Entry* const entry = Find(key)) entry->written = false;
  }
  written_.clear();
}

}  // namespace tandem::text
