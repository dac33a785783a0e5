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
                       Dispatcher& dispatcher, std::function<void(const absl::Status&)> on_fatal)
    : engine_(std::move(engine)),
      max_in_flight_(asynchronous ? 2 : 1),
      mailbox_(mailbox),
      dispatcher_(dispatcher),
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
    const bool commanded = ApplyCommands();
    const bool stepped = Step();
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
  if (!items.empty()) PostEvents();
  return !items.empty();
}

void EngineLoop::Apply(MailboxItem item) {
  const Nanos now = SteadyNow();
  if (auto* frame = std::get_if<CommandFrame>(&item)) {
    for (EngineCommand& command : frame->commands) {
      if (lost_) break;
      if (auto* open = std::get_if<OpenCommand>(&command)) engine_->Open(std::move(*open), now);
      if (auto* extend = std::get_if<ExtendCommand>(&command)) engine_->Extend(*extend, now);
      if (auto* fetch = std::get_if<FetchCommand>(&command)) engine_->Fetch(*fetch, now);
      if (auto* close = std::get_if<CloseCommand>(&command)) engine_->Close(*close, now);
    }
    if (frame->window != nullptr) frame->window->Refund(frame->bytes);
  } else if (lost_) {
    return;
  } else if (const auto* ended = std::get_if<StreamEnded>(&item)) {
    engine_->CloseStream(ended->stream);
  } else {
    engine_->Drain(now);
    draining_ = true;
  }
}

bool EngineLoop::Step() {
  if (lost_) return false;
  const bool launched = engine_->Launch(SteadyNow());
  if (launched) ++in_flight_;
  const bool collected = (!launched || in_flight_ == max_in_flight_) && Collect();
  if (lost_) return false;
  // Without a step there may still be events: of sessions that expired.
  PostEvents();
  return launched || collected;
}

bool EngineLoop::Collect() {
  if (lost_ || in_flight_ == 0) return false;
  engine_->Wait();
  const absl::StatusOr<bool> collected = engine_->Collect(SteadyNow());
  if (!collected.ok()) {
    lost_ = true;
    on_fatal_(collected.status());
    return false;
  }
  --in_flight_;
  return true;
}

void EngineLoop::PostEvents() {
  std::vector<EngineEvent> events = engine_->TakeEvents();
  const EngineLoad load = engine_->load();
  // A stream that ended leaves no event, only a lighter load.
  const bool changed = load.running != posted_load_.running || load.queued != posted_load_.queued ||
                       load.free_pages != posted_load_.free_pages ||
                       load.cached_pages != posted_load_.cached_pages ||
                       load.steps != posted_load_.steps;
  if (events.empty() && !changed) return;
  posted_load_ = load;
  dispatcher_.Post(std::move(events), load);
}

}  // namespace tandem
