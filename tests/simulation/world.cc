#include "tests/simulation/world.h"

#include <algorithm>

#include "engine/base/check.h"
#include "tests/simulation/fake_checkpoint.h"
#include "tests/simulation/trace.h"

namespace tandem::test {
namespace {

constexpr Nanos kMicro = 1'000;
constexpr Nanos kMilli = 1'000'000;
constexpr Nanos kTick = 2 * kMilli;                // between turns of an engine that waits
constexpr Nanos kMaxTime = 600 * kNanosPerSecond;  // every scenario is over long before
constexpr int32_t kMaxRows = 64;

}  // namespace

World::World(const Scenario& scenario, std::ostream* trace)
    : scenario_(scenario),
      trace_(trace),
      random_(scenario.seed),
      shape_(RandomShape(scenario.features, &random_)),
      options_(shape_.options) {
  if (trace_ != nullptr) Trace(TraceLine(options_));
  const FakeCheckpoint checkpoint;
  absl::StatusOr<std::unique_ptr<Model>> model =
      Model::Load(checkpoint, options_.kv_format, {.max_rows = kMaxRows}, ops_, nullptr);
  TANDEM_CHECK(model.ok()) << model.status().ToString();
  model_ = *std::move(model);
  absl::StatusOr<std::unique_ptr<DecodeEngine>> engine =
      DecodeEngine::Make(options_, {}, *model_, ops_);
  TANDEM_CHECK(engine.ok()) << engine.status().ToString();
  engine_ = *std::move(engine);
  ops_.SetOwners(
      [this](int32_t group, int32_t page) { return engine_->cache().pool(group).owners(page); });
  monitor_ = std::make_unique<Monitor>(options_, scenario.features, ops_, &violation_, &counters_);
  workload_ = std::make_unique<Workload>(scenario.seed, shape_, scenario.features);
  AddReplicas(scenario.num_requests);
  PlanLosses();
}

World::~World() { ops_.SetOwners(nullptr); }

void World::Trace(const std::string& line) {
  if (trace_ != nullptr) *trace_ << now_ / kMicro << " " << line << "\n";
}

Nanos World::Delay() {
  switch (shape_.pace) {
    case Shape::Pace::kBusy:
      return random_.Between(kMicro, 20 * kMicro);
    case Shape::Pace::kHasty:
      return random_.Between(5 * kMicro, 400 * kMicro);
    case Shape::Pace::kSlow:
      break;
  }
  return random_.Between(50 * kMicro, 3 * kMilli);
}

void World::Push(Item item) {
  item.order = next_order_++;
  items_.push(item);
}

void World::AddReplicas(int32_t num_requests) {
  const int32_t count =
      scenario_.features.has(Feature::kReplicas) ? static_cast<int32_t>(random_.Between(1, 4)) : 1;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t share = num_requests / count + (i < num_requests % count ? 1 : 0);
    replicas_.push_back(std::make_unique<Replica>(i, share, shape_, scenario_.features, *this,
                                                  *workload_, violation_, counters_));
    const int64_t stream = next_stream_++;
    streams_[stream].replica = i;
    replicas_.back()->Start(stream);
  }
}

// How long a scenario takes is not known before; so losses and a drain come early.
void World::PlanLosses() {
  if (scenario_.features.has(Feature::kStreamLoss) && random_.Percent(50)) {
    const int64_t num_losses = random_.Between(1, 4);
    for (int64_t i = 0; i < num_losses; ++i) {
      Push(
          {.at = now_ + random_.Between(kMilli, 200 * kMilli),
           .kind = Kind::kLoseStream,
           .replica = static_cast<int32_t>(random_.Below(static_cast<int64_t>(replicas_.size())))});
    }
  }
  if (random_.Percent(12)) {
    Push({.at = now_ + random_.Between(5 * kMilli, 300 * kMilli), .kind = Kind::kDrain});
  }
}

bool World::AllDone() const {
  return std::all_of(replicas_.begin(), replicas_.end(),
                     [](const auto& replica) { return replica->done(); });
}

std::string World::WhoIsNotDone() const {
  std::string out;
  for (const auto& replica : replicas_) {
    if (!replica->done()) out += replica->Text() + ". ";
  }
  return out;
}

Outcome World::Run() {
  const Nanos end = now_ + kMaxTime;
  bool quiet = false;
  while (!violation_.any() && !quiet) {
    if (items_.empty()) {
      violation_.Require(false,
                         "nothing is left to happen, and requests are not done: ", WhoIsNotDone());
      break;
    }
    const Item item = items_.top();
    items_.pop();
    now_ = item.at;
    Do(item);
    if (now_ >= end) violation_.Require(false, "requests do not end: ", WhoIsNotDone());
    quiet = AllDone() && std::all_of(streams_.begin(), streams_.end(), [](const auto& entry) {
              return entry.second.commands.empty();
            });
  }
  if (!violation_.any()) Finish();
  return {violation_.text(), counters_};
}

void World::Do(const Item& item) {
  switch (item.kind) {
    case Kind::kCommand: {
      const auto stream = streams_.find(item.stream);
      if (stream == streams_.end()) return;  // lost
      SimCommand command = std::move(stream->second.commands.front());
      stream->second.commands.pop_front();
      Deliver(std::move(command));
      TurnSoon(random_.Between(0, 200 * kMicro));
      return;
    }
    case Kind::kEvent: {
      const auto stream = streams_.find(item.stream);
      if (stream == streams_.end()) return;
      const EngineEvent event = std::move(stream->second.events.front());
      stream->second.events.pop_front();
      replicas_[static_cast<size_t>(stream->second.replica)]->OnEvent(event);
      return;
    }
    case Kind::kWake:
      replicas_[static_cast<size_t>(item.replica)]->OnWake(item.wake, item.sequence);
      return;
    case Kind::kTurn:
      if (item.at != next_turn_) return;  // an earlier one was made
      next_turn_ = INT64_MAX;
      Turn();
      return;
    case Kind::kLoseStream:
      LoseStream(item.replica);
      return;
    case Kind::kDrain:
      Drain();
      return;
  }
}

// ---- the network -----------------------------------------------------------------------------

void World::Send(int64_t stream_number, SimCommand command) {
  Stream& stream = streams_.at(stream_number);
  stream.commands.push_back(std::move(command));
  stream.last_command_at = std::max(stream.last_command_at, now_ + Delay());
  Push({.at = stream.last_command_at, .kind = Kind::kCommand, .stream = stream_number});
}

void World::WakeAt(Nanos at, int32_t replica, Wake wake, int32_t sequence) {
  Push({.at = at, .kind = Kind::kWake, .replica = replica, .sequence = sequence, .wake = wake});
}

void World::Deliver(SimCommand command) {
  if (trace_ != nullptr) Trace("-> " + TraceLine(command));
  counters_.Add(Counter::kCommands);
  if (auto* open = std::get_if<OpenCommand>(&command.body)) {
    monitor_->BeforeOpen(*open, command.is_bad, now_);
    engine_->Open(std::move(*open), now_);
  } else if (const auto* extend = std::get_if<ExtendCommand>(&command.body)) {
    monitor_->BeforeExtend(*extend, now_);
    engine_->Extend(*extend, now_);
  } else if (const auto* fetch = std::get_if<FetchCommand>(&command.body)) {
    monitor_->BeforeFetch(*fetch, now_);
    engine_->Fetch(*fetch, now_);
  } else if (const auto* close = std::get_if<CloseCommand>(&command.body)) {
    monitor_->BeforeClose(*close);
    engine_->Close(*close, now_);
  }
  AfterCall();
}

// Events that are kept back are those of the next call.
void World::AfterCall(bool with_events) {
  if (with_events) Dispatch(engine_->TakeEvents());
  violation_.Require(ops_.violation().empty(), ops_.violation());
  const absl::Status status = engine_->CheckInvariants();
  violation_.Require(status.ok(), "CheckInvariants: ", status.ToString());
  if (with_events) monitor_->CheckLoad(engine_->load(), engine_->num_live());
}

void World::Dispatch(std::vector<EngineEvent> events) {
  monitor_->OnEvents(events, now_);
  for (EngineEvent& event : events) {
    if (trace_ != nullptr) Trace("<- " + TraceLine(event));
    const int64_t number = std::visit([](const auto& e) { return e.handle.stream; }, event);
    const auto stream = streams_.find(number);
    if (stream == streams_.end()) continue;  // the monitor has said so
    stream->second.events.push_back(std::move(event));
    stream->second.last_event_at = std::max(stream->second.last_event_at, now_ + Delay());
    Push({.at = stream->second.last_event_at, .kind = Kind::kEvent, .stream = number});
  }
}

// ---- the engine's loop -----------------------------------------------------------------------

void World::TurnSoon(Nanos delay) {
  if (now_ + delay >= next_turn_) return;
  next_turn_ = now_ + delay;
  Push({.at = next_turn_, .kind = Kind::kTurn});
}

bool World::Launch() {
  const bool launched = engine_->Launch(now_);
  monitor_->AfterLaunch(launched);
  if (launched) {
    const Nanos begin = ready_at_.empty() ? now_ : std::max(now_, ready_at_.back());
    ready_at_.push_back(begin + 150 * kMicro + ops_.open_steps().back().num_rows * 10 * kMicro);
    Trace("launch");
  }
  std::vector<EngineEvent> events = engine_->TakeEvents();
  const bool had_events = !events.empty();
  Dispatch(std::move(events));
  AfterCall();
  monitor_->CheckProgress(launched, had_events, now_);
  return launched;
}

// The events are left to the caller.
bool World::Collect() {
  const absl::StatusOr<bool> collected = engine_->Collect(now_);
  violation_.Require(collected.ok(), "Collect: ", collected.status().ToString());
  if (!collected.ok() || !*collected) return false;
  Trace("collect");
  ready_at_.pop_front();
  monitor_->AfterCollect();
  return true;
}

void World::Turn() {
  if (!ready_at_.empty() && now_ >= ready_at_.front() && random_.Percent(80)) {
    violation_.Require(Collect(), "Collect finds no step, and one is in flight");
    AfterCall();
  }
  if (violation_.any()) return;
  if (ready_at_.empty() && random_.Percent(2)) {
    violation_.Require(!Collect(), "Collect finds a step, and none is in flight");
  }
  if (ready_at_.size() == 2 && random_.Percent(2)) {
    violation_.Require(!engine_->Launch(now_), "Launch makes a third step");
    AfterCall();
  }
  const size_t depth = shape_.two_steps ? 2 : 1;
  bool launched = false;
  while (!violation_.any() && ready_at_.size() < depth && random_.Percent(80)) {
    launched = Launch();
    if (!launched) break;
  }
  if (launched || !ready_at_.empty()) {
    const Nanos ready = ready_at_.front();
    const Nanos soon = random_.Between(10 * kMicro, 200 * kMicro);
    TurnSoon(ready_at_.size() < depth ? soon : std::max(soon, ready - now_));
  } else if (engine_->num_live() > 0) {
    TurnSoon(random_.Between(kMicro, kTick));
  }
}

// Just after a step, so that events for the stream wait.
void World::LoseStream(int32_t replica_index) {
  Replica& replica = *replicas_[static_cast<size_t>(replica_index)];
  if (replica.done()) return;
  counters_.Add(Counter::kStreamsLost);
  const int64_t stream = replica.stream();
  Trace("stream " + std::to_string(stream) + " is lost");
  if (!ready_at_.empty()) {
    Collect();
    AfterCall(false);
  }
  monitor_->BeforeCloseStream(stream);
  streams_.erase(stream);
  engine_->CloseStream(stream);
  const int64_t next = next_stream_++;
  streams_[next].replica = replica_index;
  AfterCall();
  replica.OnStreamLost(next);
  TurnSoon(0);
}

void World::Drain() {
  if (is_draining_) return;
  is_draining_ = true;
  counters_.Add(Counter::kDrains);
  Trace("drain");
  for (const auto& replica : replicas_) replica->OnDrain();
  monitor_->BeforeDrain(now_);
  engine_->Drain(now_);
  AfterCall();
  TurnSoon(0);
}

// All requests are done: what is left in flight ends, and nothing is left.
void World::Finish() {
  while (!violation_.any() && !ready_at_.empty()) {
    now_ = std::max(now_, ready_at_.front());
    violation_.Require(Collect(), "Collect finds no step, and one is in flight");
    AfterCall();
  }
  violation_.Require(engine_->num_live() == 0, engine_->num_live(),
                     " sessions live, and all requests are done");
  const absl::Status status = engine_->CheckQuiescent();
  violation_.Require(status.ok(), "CheckQuiescent: ", status.ToString());
}

}  // namespace tandem::test
