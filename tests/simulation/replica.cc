// Opening, closing and what a replica gets told.
#include "tests/simulation/replica.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/simulation/fake_arithmetic.h"
#include "tests/simulation/list_model.h"

namespace tandem::test {
namespace {

constexpr Nanos kMicro = 1'000;
constexpr Nanos kMilli = 1'000'000;
constexpr int32_t kMaxTries = 40;

}  // namespace

Replica::Replica(int32_t index, int32_t num_requests, const Shape& shape, Features features,
                 ReplicaHost& host, Workload& workload, Violation& violation, Counters& counters)
    : index_(index),
      num_requests_(num_requests),
      options_(shape.options),
      features_(features),
      host_(host),
      workload_(workload),
      violation_(violation),
      counters_(counters),
      pace_(shape.pace),
      is_slow_(features.has(Feature::kSlow) && pace_ != Shape::Pace::kBusy &&
               host.random().Percent(15)),
      max_active_(
          static_cast<int32_t>(pace_ == Shape::Pace::kBusy ? 10 : host.random().Between(1, 8))) {}

Nanos Replica::Delay() {
  if (is_slow_) return host_.random().Between(kMilli, 20 * kMilli);
  if (pace_ == Shape::Pace::kBusy) return host_.random().Between(kMicro, 50 * kMicro);
  return host_.random().Between(10 * kMicro, 2 * kMilli);
}

int32_t Replica::IndexOf(const Sequence& sequence) const {
  const auto found = std::find_if(sequences_.begin(), sequences_.end(),
                                  [&](const auto& other) { return other.get() == &sequence; });
  return static_cast<int32_t>(found - sequences_.begin());
}

void Replica::Start(int64_t stream) {
  stream_ = stream;
  awaits_wake_ = true;
  host_.WakeAt(host_.now() + Delay(), index_, Wake::kOpenNext, 0);
}

void Replica::OnWake(Wake wake, int32_t index) {
  if (wake == Wake::kOpenNext) {
    awaits_wake_ = false;
    OpenNext();
    return;
  }
  Sequence* sequence = sequences_[static_cast<size_t>(index)].get();
  switch (wake) {
    case Wake::kOpenNext:
      break;
    case Wake::kReopen:
      if (sequence->state != State::kIdle) break;
      counters_.Add(Counter::kReopened);
      Open({index});
      break;
    case Wake::kDecide:
      sequence->has_timer = false;
      Decide(sequence);
      break;
    case Wake::kCancel:
      sequence->is_cancelled = true;
      if (sequence->state == State::kOpen || sequence->state == State::kSpoiled) {
        RememberHeld(*sequence);
        Close(sequence);
      } else if (sequence->state == State::kIdle) {
        End(sequence);
      }
      break;
  }
}

void Replica::OpenNext() {
  if (num_opened_ >= num_requests_) return;
  if (num_active_ < max_active_) {
    if (features_.has(Feature::kMisbehave) && Percent(4)) OpenWhatNeverFits();
    std::vector<SequenceSpec> specs = workload_.Next();
    if (static_cast<int32_t>(specs.size()) > num_requests_ - num_opened_) specs.resize(1);
    std::vector<int32_t> indices;
    for (SequenceSpec& spec : specs) {
      counters_.Add(Counter::kRequests);
      ++num_opened_;
      ++num_active_;
      const int32_t index = static_cast<int32_t>(sequences_.size());
      indices.push_back(index);
      Sequence& sequence = *sequences_.emplace_back(std::make_unique<Sequence>(std::move(spec)));
      sequence.first_opened = host_.now();
      if (features_.has(Feature::kMisbehave) && Percent(6)) {
        sequence.misbehaves_at = static_cast<int32_t>(
            host_.random().Between(sequence.script.size(), sequence.spec.target - 1));
      }
      if (features_.has(Feature::kCancel) && Percent(20)) {
        const Nanos delay =
            Percent(50) ? host_.random().Below(2 * kMilli) : host_.random().Below(60 * kMilli);
        host_.WakeAt(host_.now() + delay, index_, Wake::kCancel, index);
      }
    }
    Open(std::move(indices));
  }
  if (num_opened_ >= num_requests_ || awaits_wake_) return;
  awaits_wake_ = true;
  host_.WakeAt(host_.now() + Delay(), index_, Wake::kOpenNext, 0);
}

// All of them are choices of one request, which are opened for the first time, or it is one.
void Replica::Open(std::vector<int32_t> indices) {
  const Sequence& first = *sequences_[indices.front()];
  OpenCommand open;
  open.first = {stream_, next_number_};
  open.choices = static_cast<int32_t>(indices.size());
  open.first_choice = first.spec.choice;
  open.tokens = first.script.list();
  // A rewind may have gone into the prompt: then the rest of it was given up. The limit stays.
  const int32_t prompt_length = static_cast<int32_t>(first.spec.prompt.size());
  open.prompt_length = std::min(prompt_length, first.script.size());
  open.max_new = first.spec.max_new;
  if (open.max_new > 0) open.max_new += prompt_length - open.prompt_length;
  open.sampling = first.spec.sampling;
  open.priority = first.spec.priority;
  open.age = host_.now() - first.first_opened;
  open.run_ahead = first.spec.run_ahead;
  open.drafts = first.spec.drafts;
  open.use_cache = first.spec.use_cache;
  open.salt = first.spec.salt;
  // What has come of the request, for whichever choice, is not asked for again.
  const int32_t next = prompt_next_.try_emplace(first.spec.id, 1).first->second;
  if (first.spec.prompt_logprobs && next < open.prompt_length) {
    open.prompt_logprobs_from = next;
    open.prompt_raw_top = first.spec.prompt_raw_top;
    if (next > 1) counters_.Add(Counter::kPromptLogprobsAgain);
  }
  if (first.spec.patience > 0) open.deadline = first.first_opened + first.spec.patience;
  for (const int32_t index : indices) {
    Sequence& sequence = *sequences_[index];
    sequence.state = State::kOpen;
    sequence.number = next_number_++;
    sequence.epoch = 0;
    sequence.is_admitted = false;
    sequence.inbox.clear();
    sequence.awaits_fetch = 0;
    sequence.num_blind = 0;
    by_number_.emplace(sequence.number, index);
  }
  const OpenCommand again = open;
  Send({std::move(open)});
  if (!features_.has(Feature::kMisbehave) || !Percent(1)) return;
  // Handles that are live are opened once more; Close is for those that were not.
  counters_.Add(Counter::kRefusedBadCommand);
  Send({again});
  for (const int32_t index : indices) {
    sequences_[index]->state = State::kSpoiled;
    Send({CloseCommand{.handle = HandleOf(*sequences_[index])}});
  }
}

void Replica::OpenWhatNeverFits() {
  OpenCommand open;
  open.first = {stream_, next_number_++};
  open.tokens = {1, 2, 3};
  open.prompt_length = 3;
  const bool is_small = options_.kv_tokens < 3 * kFakeContext || options_.max_sessions < 3;
  switch (host_.random().Below(is_small ? 6 : 5)) {
    case 0:
      open.tokens.assign(kFakeContext, 1);
      break;
    case 1:
      open.tokens[1] = kFakeVocab;
      break;
    case 2:
      open.choices = options_.max_choices + 1;
      break;
    case 3:
      open.prompt_length = 4;
      break;
    case 4:
      open.sampling.num_top = 0;
      break;
    case 5:
      open.choices = 3;
      open.max_new = kFakeContext;
      next_number_ += 2;
      break;
  }
  Send({std::move(open), true});
  counters_.Add(Counter::kRefusedNeverFits);
}

void Replica::OnStreamLost(int64_t new_stream) {
  stream_ = new_stream;
  next_number_ = 1;
  by_number_.clear();
  for (const auto& sequence : sequences_) {
    switch (sequence->state) {
      case State::kIdle:  // its wake is on its way
      case State::kEnded:
        break;
      case State::kClosing:
        End(sequence.get());
        break;
      case State::kOpen:
      case State::kSpoiled:
        RememberHeld(*sequence);
        ReopenLater(sequence.get());
        break;
    }
  }
}

void Replica::OnEvent(const EngineEvent& event) {
  const SessionHandle handle = std::visit([](const auto& e) { return e.handle; }, event);
  const auto found = by_number_.find(handle.number);
  if (found == by_number_.end()) return;  // an open that never fits
  Sequence* sequence = sequences_[static_cast<size_t>(found->second)].get();
  if (std::holds_alternative<OpenedEvent>(event)) {
    sequence->is_admitted = true;
    DecideBlindly(sequence);
  } else if (const auto* prompt = std::get_if<PromptLogprobsEvent>(&event)) {
    int32_t& next = prompt_next_[sequence->spec.id];
    violation_.Require(prompt->logprobs.position <= next, "prompt logprobs from position ",
                       prompt->logprobs.position, " on: the next is ", next);
    next = std::max(next, prompt->logprobs.position + prompt->logprobs.size());
  } else if (const auto* candidates = std::get_if<CandidatesEvent>(&event)) {
    OnCandidates(*candidates, sequence);
  } else if (const auto* fetched = std::get_if<FetchedEvent>(&event)) {
    OnFetched(*fetched, sequence);
  } else if (const auto* closed = std::get_if<ClosedEvent>(&event)) {
    by_number_.erase(found);
    OnClosed(*closed, sequence);
  }
}

void Replica::OnClosed(const ClosedEvent& event, Sequence* sequence) {
  if (sequence->state == State::kClosing) {
    End(sequence);
    return;
  }
  RememberHeld(*sequence);
  switch (event.reason) {
    case ClosedEvent::Reason::kRefused:
      if (sequence->state == State::kOpen) {
        violation_.Require(!sequence->is_admitted,
                           "a session that did nothing wrong is refused: ", event.detail);
        counters_.Add(Counter::kRefusedQueueFull);
        ++sequence->tries;
      }
      if (sequence->tries >= kMaxTries) {
        counters_.Add(Counter::kGaveUp);
        sequence->is_cancelled = true;
      }
      break;
    case ClosedEvent::Reason::kExpired:
      sequence->is_cancelled = true;
      break;
    case ClosedEvent::Reason::kDraining:
      sequence->is_cancelled = true;
      break;
    default:
      break;
  }
  ReopenLater(sequence);
}

void Replica::ReopenLater(Sequence* sequence) {
  sequence->inbox.clear();
  if (sequence->is_cancelled || drains_) {
    sequence->is_cancelled = true;
    End(sequence);
    return;
  }
  sequence->state = State::kIdle;
  const Nanos wait = sequence->tries > 0 ? sequence->tries * kMilli : 0;
  host_.WakeAt(host_.now() + Delay() + wait, index_, Wake::kReopen, IndexOf(*sequence));
}

void Replica::Close(Sequence* sequence) {
  CloseCommand close;
  close.handle = HandleOf(*sequence);
  if (Percent(30)) close.retain = host_.random().Below(100 * kMilli);
  sequence->state = State::kClosing;
  sequence->inbox.clear();
  if (Percent(10)) Send({close});
  Send({close});
}

void Replica::End(Sequence* sequence) {
  sequence->state = State::kEnded;
  --num_active_;
  if (sequence->is_cancelled && !sequence->script.done()) return;
  counters_.Add(Counter::kFinished);
  violation_.Require(sequence->script.list() == FinalList(sequence->spec), "request ",
                     sequence->spec.id, ", choice ", sequence->spec.choice,
                     " ended with other tokens than alone");
}

// The list, and the draws that the worker may have put behind it.
void Replica::RememberHeld(const Sequence& sequence) {
  if (!features_.has(Feature::kEcho)) return;
  // Most of all where a page ends in draws that are not confirmed.
  const int32_t ahead = sequence.script.size() + sequence.spec.run_ahead;
  const bool fills_page =
      ahead / kernels::kPageTokens > sequence.script.size() / kernels::kPageTokens;
  if (!Percent(fills_page ? 90 : 30)) return;
  // Which draws follow does not depend on the edits.
  ListModel model(sequence.spec.sampling.seed, sequence.spec.choice, 0);
  model.Push(sequence.script.list());
  for (int32_t i = 0; i <= sequence.spec.run_ahead; ++i) {
    const int32_t draw = model.Draw(model.size());
    if (draw < 0) break;
    model.Push(draw);
  }
  workload_.Remember(model.tokens());
}

std::string Replica::Text() const {
  std::string out = absl::StrCat("replica ", index_, ": ", num_opened_, " of ", num_requests_,
                                 " opened, ", num_active_, " active");
  for (const auto& sequence : sequences_) {
    if (sequence->state == State::kEnded) continue;
    absl::StrAppend(&out, "; handle ", sequence->number, " state ",
                    static_cast<int>(sequence->state), " at ", sequence->script.size(), " of ",
                    sequence->spec.target);
  }
  return out;
}

}  // namespace tandem::test
