// Progress, fairness, preemption, drain, bounds.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/monitor.h"

namespace tandem::test {
namespace {

// A drain hands over at the next launch.
constexpr Nanos kDrainSlack = kNanosPerSecond / 50;

}  // namespace

// ---- steps in flight -------------------------------------------------------------------------

void Monitor::AfterLaunch(bool launched) {
  if (!launched) return;
  const FakeOps::Step& step = ops_.open_steps().back();
  in_flight_.push_back({step.mark, step.sessions});
  counters_.Add(Counter::kSteps);
  counters_.Add(Counter::kRows, step.num_rows);
  violation_.Require(step.num_rows <= options_.step_tokens, "a step of ", step.num_rows,
                     " rows, step_tokens is ", options_.step_tokens);
  bool any_many = false;
  for (auto& [handle, session] : sessions_) {
    if (!Owes(session)) continue;
    ++session.steps_owed;
    any_many |= session.has_many && session.is_admitted;
  }
  const bool progresses = step.num_rows > step.num_logits_rows || !any_many;
  steps_without_prefill_ = progresses ? 0 : steps_without_prefill_ + 1;
}

void Monitor::AfterCollect() {
  if (victim_until_.has_value() && in_flight_.front().mark >= *victim_until_) victim_until_.reset();
  in_flight_.pop_front();
}

bool Monitor::IsInFlight(const Session& session) const {
  return std::any_of(in_flight_.begin(), in_flight_.end(), [&](const InFlight& step) {
    return std::find(step.sessions.begin(), step.sessions.end(), session.key) !=
           step.sessions.end();
  });
}

// ---- progress --------------------------------------------------------------------------------

// Whether the session waits for the engine, not for its peer.
bool Monitor::Owes(const Session& session) const {
  if (session.must != Must::kNothing) return true;
  if (!session.is_admitted) return false;
  if (!session.fetches.empty()) return true;
  return !session.undecided && session.held.size() < session.limit &&
         session.held.size() - session.confirmed <= session.run_ahead;
}

void Monitor::CheckProgress(bool launched, bool had_events, Nanos now) {
  // Decode rows take turns, a step with prefill may leave them half of its rows, and a fetch is a
  // row of its own. Prefill of several sessions goes oldest first: all of it has to move.
  const int32_t decode_bound = 10 + 4 * options_.max_sessions;
  const int32_t prefill_bound = 8 + 2 * options_.max_sessions;
  const bool is_idle = !launched && !had_events && in_flight_.empty();
  bool any_admitted = false;
  bool any_queued = false;
  for (const auto& [handle, session] : sessions_) {
    any_admitted |= session.is_admitted;
    any_queued |= !session.is_admitted;
    if (!Owes(session)) continue;
    violation_.Require(!is_idle, "nothing is launched, and ", Text(session), " waits at position ",
                       session.held.size());
    violation_.Require(session.has_many || session.steps_owed <= decode_bound, Text(session),
                       " got nothing in ", session.steps_owed, " steps");
  }
  const bool is_over = features_.has(Feature::kDrain) && drain_.has_value() &&
                       now > drain_->since + options_.drain_spread + kDrainSlack;
  violation_.Require(!is_over || !any_admitted, "the drain is over, and sessions run");
  violation_.Require(!is_idle || any_admitted || !any_queued,
                     "nothing runs, and the queue is not admitted");
  violation_.Require(steps_without_prefill_ <= prefill_bound, "prefill waits, and ",
                     steps_without_prefill_, " steps had decode rows alone");
}

void Monitor::CheckLoad(const EngineLoad& load, int32_t num_live) {
  violation_.Require(load.queued <= options_.max_queued, load.queued, " opens are queued, at most ",
                     options_.max_queued);
  violation_.Require(load.running <= options_.max_sessions, load.running, " sessions run, at most ",
                     options_.max_sessions);
  violation_.Require(load.free_pages >= 0 && load.free_pages <= load.total_pages, load.free_pages,
                     " of ", load.total_pages, " pages are free");
  violation_.Require(asks_drafts_ || load.drafted_tokens == 0, load.drafted_tokens,
                     " drafts, and nobody asked for any");
  violation_.Require(load.taken_drafts <= load.drafted_tokens, load.taken_drafts, " drafts of ",
                     load.drafted_tokens, " were taken");
  counters_.Add(Counter::kDrafted,
                load.drafted_tokens - std::exchange(drafted_, load.drafted_tokens));
  counters_.Add(Counter::kDraftsTaken,
                load.taken_drafts - std::exchange(drafts_taken_, load.taken_drafts));
  for (const auto& [handle, session] : sessions_) {
    const bool is_early = session.must == Must::kRefused && session.is_admitted;
    violation_.Require(session.must == Must::kNothing || session.must == Must::kDone || is_early,
                       Text(session), " has to be closed at once");
  }
  violation_.Require(num_live == this->num_live(), num_live, " sessions live, expected ",
                     this->num_live());
}

// ---- fairness --------------------------------------------------------------------------------

std::pair<int64_t, int32_t> Monitor::BestWaiting(int64_t stream) const {
  const Session* best = nullptr;
  for (auto it = sessions_.lower_bound({stream, 0});
       it != sessions_.end() && it->first.stream == stream; ++it) {
    const Session& session = it->second;
    if (session.is_admitted || session.must != Must::kNothing) continue;
    if (best == nullptr || session.priority > best->priority ||
        (session.priority == best->priority && session.group < best->group)) {
      best = &session;
    }
  }
  return best == nullptr ? std::pair(int64_t{0}, 0) : std::pair(best->group, best->priority);
}

// By start-time fair queueing a stream that waits is behind another by at most the largest request
// of each. Called for every handle that is admitted; a group counts once.
void Monitor::CheckFairness(const Session& admitted) {
  if (!features_.has(Feature::kFairQueue) || admitted.group == last_opened_group_) return;
  last_opened_group_ = admitted.group;
  waiting_[admitted.handle.stream].overtaken = 0;
  const int64_t bound = 2 * max_cost_ * static_cast<int64_t>(known_streams_.size());
  int64_t last_stream = -1;
  for (const auto& [handle, session] : sessions_) {
    if (handle.stream == last_stream || handle.stream == admitted.handle.stream) continue;
    last_stream = handle.stream;
    Waiting& waiting = waiting_[handle.stream];
    const auto [group, priority] = BestWaiting(handle.stream);
    if (group != waiting.best_group) waiting = {group, 0};
    if (group == 0 || admitted.priority > priority) continue;
    waiting.overtaken += admitted.cost;
    violation_.Require(waiting.overtaken <= bound, "stream ", handle.stream, " waits, and ",
                       waiting.overtaken, " tokens were reserved by others before it, at most ",
                       bound);
  }
}

// A full queue gives up the new request, or the last one of a stream that holds more than the new
// one's, and of no higher priority.
bool Monitor::MayBeDisplaced(const Session& session) const {
  if (!displaces_.has_value() || session.is_admitted) return false;
  const auto [stream, priority] = *displaces_;
  if (session.handle.stream == stream) return session.group == next_group_ - 1;
  return session.priority <= priority && QueuedGroups(session.handle.stream) > QueuedGroups(stream);
}

// ---- preemption ------------------------------------------------------------------------------

void Monitor::CheckPreempted(const Session& victim) {
  violation_.Require(victim.is_admitted && victim.grows, "Closed(PREEMPTED) for ", Text(victim),
                     victim.grows ? ", which waits" : ", which has max_new");
  if (!features_.has(Feature::kVictims)) return;
  violation_.Require(!victim_until_.has_value(), Text(victim),
                     " is preempted while the pages of the last victim are on their way back");
  for (const auto& [handle, other] : sessions_) {
    if (!other.is_admitted || !other.grows || other.must != Must::kNothing) continue;
    const bool goes_first =
        other.priority != victim.priority
            ? other.priority < victim.priority
            : std::pair(other.birth, other.serial) > std::pair(victim.birth, victim.serial);
    violation_.Require(!goes_first, Text(victim), " is preempted, and ", Text(other),
                       " is younger or of lower priority");
  }
  for (const InFlight& step : in_flight_) {
    if (std::find(step.sessions.begin(), step.sessions.end(), victim.key) != step.sessions.end()) {
      victim_until_ = step.mark;
    }
  }
}

// ---- drain -----------------------------------------------------------------------------------

void Monitor::CheckDrained(const Session& session, Nanos now) {
  counters_.Add(session.is_admitted ? Counter::kDrainedRunning : Counter::kDrainedQueued);
  if (!session.is_admitted || !features_.has(Feature::kDrain)) return;
  ++drain_->handed_over;
  // The k-th of n leaves not before (k - 1) / n of the spread has passed.
  const Nanos passed = now - drain_->since;
  violation_.Require((drain_->handed_over - 1) * options_.drain_spread <= passed * drain_->running,
                     drain_->handed_over, " of ", drain_->running, " sessions were handed over ",
                     passed, " ns after the drain began, spread is ", options_.drain_spread);
  for (const auto& [handle, other] : sessions_) {
    if (!other.is_admitted || other.must != Must::kNothing) continue;
    violation_.Require(
        std::pair(other.birth, other.serial) <= std::pair(session.birth, session.serial),
        Text(session), " is handed over, and ", Text(other), " is younger");
  }
}

}  // namespace tandem::test
