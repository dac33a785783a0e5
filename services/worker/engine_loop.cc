#include "services/worker/engine_loop.h"

#include <chrono>
#include <utility>

namespace tandem {
namespace {

// Sessions that wait for their peer still have deadlines, which the engine looks at when it is
// asked to launch.
constexpr Nanos kBusyPatience = kNanosPerSecond / 50;
constexpr Nanos kIdlePatience = kNanosPerSecond;

}  // namespace

EngineLoop::EngineLoop(std::unique_ptr<DecodeEngine> engine, bool asynchronous, Mailbox& mailbox,
                       Dispatcher& dispatcher, SessionEnds& ends,
                       std::function<void(const absl::Status&)> on_fatal)
    : engine_(std::move(engine)),
      max_in_flight_(asynchronous ? 2 : 1),
      mailbox_(mailbox),
      dispatcher_(dispatcher),
      ends_(ends),
      on_fatal_(std::move(on_fatal)) {
  posted_load_ = engine_->load();
  dispatcher_.Post({}, posted_load_);
  thread_ = std::thread([this] { Run(); });
}

EngineLoop::~EngineLoop() {
  mailbox_.Stop();
  thread_.join();
}

bool EngineLoop::Drain(Nanos patience) {
  mailbox_.Post(DrainRequested{});
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::nanoseconds(patience), [this] { return drained_; });
}

void EngineLoop::Run() {
  while (!mailbox_.stopped()) {
    phase_began_ = SteadyNow();
    const bool commanded = ApplyCommands();
    const bool stepped = Step();
    if (commanded || stepped) PublishCounts();
    const bool busy = engine_->num_live() > 0 || in_flight_ > 0;
    if (lost_ || (draining_ && !busy)) {
      std::lock_guard lock(mutex_);
      drained_ = true;
      changed_.notify_all();
    }
    if (!commanded && !stepped) mailbox_.Wait(busy && !lost_ ? kBusyPatience : kIdlePatience);
  }
  // The device may still write what the engine owns.
  while (Collect()) {
  }
}

bool EngineLoop::ApplyCommands() {
  std::vector<MailboxItem> items = mailbox_.TakeAll();
  for (MailboxItem& item : items) Apply(std::move(item));
  // What a command answers at once (Opened, Closed) does not wait for the step.
  if (items.empty()) return false;
  EndPhase(EnginePhase::kCommands);
  PostEvents();
  return true;
}

void EngineLoop::Apply(MailboxItem item) {
  const Nanos now = SteadyNow();
  if (auto* frame = std::get_if<CommandFrame>(&item)) {
    for (EngineCommand& command : frame->commands) {
      if (lost_) break;
      if (auto* open = std::get_if<OpenCommand>(&command)) engine_->Open(std::move(*open), now);
      if (auto* extend = std::get_if<ExtendCommand>(&command)) engine_->Extend(*extend, now);
      if (auto* fetch = std::get_if<FetchCommand>(&command)) {
        ++counts_.fetches[static_cast<size_t>(fetch->what)];
        engine_->Fetch(*fetch, now);
      }
      if (auto* close = std::get_if<CloseCommand>(&command)) engine_->Close(*close, now);
    }
    if (frame->window != nullptr) frame->window->Refund(frame->bytes);
  } else if (lost_) {
    return;
  } else if (const auto* ended = std::get_if<StreamEnded>(&item)) {
    PostEvents();  // of sessions that ended before it did
    const int32_t live = engine_->num_live();
    engine_->CloseStream(ended->stream);
    ends_.OnStreamEnded(live - engine_->num_live());
  } else {
    engine_->Drain(now);
    draining_ = true;
  }
}

bool EngineLoop::Step() {
  if (lost_) return false;
  const Nanos now = SteadyNow();
  phase_began_ = now;
  // Opened does not wait for the step, which a CPU computes within Launch.
  engine_->Admit(now);
  if (engine_->has_events()) {
    EndPhase(EnginePhase::kLaunch);
    PostEvents();
  }
  const bool launched = engine_->Launch(now);
  if (launched) {
    EndPhase(EnginePhase::kLaunch);
    if (in_flight_++ == 0) busy_since_ = now;
  }
  const bool collected = (!launched || in_flight_ == max_in_flight_) && Collect();
  if (lost_) return false;
  // Without a step there may still be events: of sessions that expired.
  PostEvents();
  return launched || collected;
}

bool EngineLoop::Collect() {
  if (lost_ || in_flight_ == 0) return false;
  phase_began_ = SteadyNow();
  engine_->Wait();
  EndPhase(EnginePhase::kWait);
  const absl::StatusOr<bool> collected = engine_->Collect(phase_began_);
  if (!collected.ok()) {
    lost_ = true;
    on_fatal_(collected.status());
    return false;
  }
  EndPhase(EnginePhase::kCollect);
  const StepReport step = engine_->last_step();
  ++counts_.steps;
  counts_.step_seconds.Observe(ToSeconds(step.nanos));
  counts_.decode_rows.Observe(step.decode_rows);
  counts_.prefill_rows.Observe(step.prefill_rows);
  if (--in_flight_ == 0) counts_.busy_seconds += ToSeconds(phase_began_ - busy_since_);
  return true;
}

void EngineLoop::PublishCounts() {
  std::lock_guard lock(mutex_);
  published_ = counts_;
}

WorkerCounts EngineLoop::counts() const {
  std::lock_guard lock(mutex_);
  return published_;
}

void EngineLoop::EndPhase(EnginePhase phase) {
  const Nanos now = SteadyNow();
  counts_.engine_seconds[static_cast<size_t>(phase)] += ToSeconds(now - phase_began_);
  phase_began_ = now;
}

void EngineLoop::CountEvents(const std::vector<EngineEvent>& events) {
  for (const EngineEvent& event : events) {
    if (std::holds_alternative<CandidatesEvent>(event)) ++counts_.candidates;
    if (std::holds_alternative<OpenedEvent>(event)) ++counts_.opened;
    if (const auto* closed = std::get_if<ClosedEvent>(&event)) ends_.OnClosed(*closed);
  }
}

void EngineLoop::PostEvents() {
  std::vector<EngineEvent> events = engine_->TakeEvents();
  CountEvents(events);
  const EngineLoad load = engine_->load();
  // A stream that ended leaves no event, only a lighter load.
  const bool changed = load.running != posted_load_.running || load.queued != posted_load_.queued ||
                       load.free_pages != posted_load_.free_pages ||
                       load.cached_pages != posted_load_.cached_pages ||
                       load.steps != posted_load_.steps;
  if (events.empty() && !changed) return;
  posted_load_ = load;
  PublishCounts();  // first: what a peer has seen is counted
  dispatcher_.Post(std::move(events), load);
  EndPhase(EnginePhase::kPost);
}

}  // namespace tandem
