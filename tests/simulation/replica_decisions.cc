// What a replica does with candidates.
#include <algorithm>

#include "tests/simulation/fake_arithmetic.h"
#include "tests/simulation/replica.h"

namespace tandem::test {
namespace {

constexpr int32_t kMaxBlind = 3;  // early extends; fewer than kMaxDeferred

}  // namespace

void Replica::OnCandidates(const CandidatesEvent& event, Sequence* sequence) {
  if (sequence->state != State::kOpen) return;
  if (event.epoch < sequence->epoch) {
    counters_.Add(Counter::kStaleCandidates);
    return;
  }
  const int32_t expected = sequence->script.size() + static_cast<int32_t>(sequence->inbox.size());
  if (!violation_.Require(event.epoch == sequence->epoch && event.position == expected,
                          "a replica got Candidates for position ", event.position, " of epoch ",
                          event.epoch, ", it is at ", expected, " of epoch ", sequence->epoch)) {
    return;
  }
  sequence->inbox.push_back({event.position, event.candidates.summary.drawn});
  DecideSoon(sequence);
}

void Replica::DecideSoon(Sequence* sequence) {
  if (sequence->has_timer || sequence->awaits_fetch > 0) return;
  if (!is_slow_ && Percent(60)) {
    Decide(sequence);
    return;
  }
  sequence->has_timer = true;
  host_.WakeAt(host_.now() + Delay(), index_, Wake::kDecide, IndexOf(*sequence));
}

void Replica::OnFetched(const FetchedEvent& event, Sequence* sequence) {
  if (sequence->state != State::kOpen || event.position != sequence->awaits_fetch) return;
  if (event.what != FetchCommand::What::kMore) return;
  sequence->awaits_fetch = 0;
  if (!sequence->inbox.empty()) Act(sequence);
  Decide(sequence);
}

void Replica::Decide(Sequence* sequence) {
  while (sequence->state == State::kOpen && !sequence->inbox.empty() &&
         sequence->awaits_fetch == 0) {
    const Received received = sequence->inbox.front();
    if (features_.has(Feature::kFetch)) {
      if (received.drawn < 0 && Percent(50)) {
        FetchCommand fetch;
        fetch.handle = HandleOf(*sequence);
        fetch.position = received.position;
        fetch.num_top = static_cast<int32_t>(host_.random().Between(1, 40));
        fetch.num_perturbed = static_cast<int32_t>(host_.random().Between(1, 8));
        sequence->awaits_fetch = received.position;
        Send({std::move(fetch)});
        return;
      }
      if (Percent(6)) FetchSomething(received.position, sequence);
    }
    Act(sequence);
    if (sequence->inbox.empty() || !Percent(25)) continue;
    DecideSoon(sequence);
    return;
  }
  DecideBlindly(sequence);
}

// Where the script does not need the draw, it may decide before the draw comes.
void Replica::DecideBlindly(Sequence* sequence) {
  if (!features_.has(Feature::kEpochs)) return;
  while (sequence->state == State::kOpen && sequence->inbox.empty() &&
         sequence->awaits_fetch == 0 && !sequence->script.NeedsDraw() &&
         sequence->num_blind < kMaxBlind && Percent(40)) {
    ++sequence->num_blind;
    counters_.Add(Counter::kBlindExtends);
    Act(sequence);
  }
}

// An Extend that cuts carries the next epoch, and so does one that names tokens whose draws did not
// come yet.
uint32_t Replica::EpochOf(const Script::Action& action, const Sequence& sequence) const {
  const uint32_t next = sequence.epoch + 1;
  if (action.tokens.empty() || sequence.inbox.empty()) return next;
  if (action.position < sequence.inbox.front().position) return next;
  for (size_t i = 0; i < action.tokens.size(); ++i) {
    if (i == sequence.inbox.size()) {
      // Without run-ahead nothing is drawn behind a draw that is not confirmed.
      return sequence.spec.run_ahead == 0 ? sequence.epoch : next;
    }
    const int32_t drawn = sequence.inbox[i].drawn;
    if (drawn < 0) return sequence.epoch;
    if (drawn != action.tokens[i]) return next;
  }
  return sequence.epoch;
}

void Replica::CountAction(const Script::Action& action, int32_t drawn) {
  switch (action.kind) {
    case Script::Action::Kind::kDraw:
      counters_.Add(drawn >= 0 ? Counter::kDrawsTaken : Counter::kOtherTokens);
      break;
    case Script::Action::Kind::kOther:
      counters_.Add(Counter::kOtherTokens);
      break;
    case Script::Action::Kind::kSeveral:
      counters_.Add(Counter::kSeveralTokens);
      break;
    case Script::Action::Kind::kRewind:
      counters_.Add(Counter::kRewinds);
      break;
  }
}

void Replica::Act(Sequence* sequence) {
  if (sequence->misbehaves_at >= 0 && sequence->script.size() >= sequence->misbehaves_at) {
    sequence->misbehaves_at = -1;
    Misbehave(sequence);
    return;
  }
  const int32_t drawn = sequence->inbox.empty() ? -1 : sequence->inbox.front().drawn;
  const Script::Action action = sequence->script.Next(drawn);
  CountAction(action, drawn);
  ExtendCommand extend;
  extend.handle = HandleOf(*sequence);
  extend.position = action.position;
  extend.tokens = action.tokens;
  extend.epoch = EpochOf(action, *sequence);
  if (extend.epoch == sequence->epoch && features_.has(Feature::kEpochs) && Percent(3)) {
    counters_.Add(Counter::kNeedlessEpochs);
    ++extend.epoch;
  }
  if (extend.epoch != sequence->epoch) {
    sequence->epoch = extend.epoch;
    sequence->inbox.clear();
  }
  while (!sequence->inbox.empty() && sequence->inbox.front().position < sequence->script.size()) {
    sequence->inbox.pop_front();
  }
  const bool repeats = !extend.tokens.empty() && Percent(5);
  const ExtendCommand again = extend;
  // The last tokens need not be told.
  if (!sequence->script.done() || Percent(80)) Send({std::move(extend)});
  if (sequence->script.done()) {
    Close(sequence);
  } else if (repeats) {
    counters_.Add(Counter::kDuplicateExtends);
    Send({again});
  }
}

void Replica::FetchSomething(int32_t position, Sequence* sequence) {
  FetchCommand fetch;
  fetch.handle = HandleOf(*sequence);
  const int32_t lowest = std::max(1, sequence->script.longest() - options_.max_rewind);
  fetch.position = static_cast<int32_t>(host_.random().Between(lowest, position));
  switch (host_.random().Below(3)) {
    case 0:
      fetch.what = FetchCommand::What::kMore;
      fetch.num_top = static_cast<int32_t>(host_.random().Between(1, 20));
      fetch.num_perturbed = 1;
      break;
    case 1:
      fetch.what = FetchCommand::What::kIds;
      fetch.ids = {2, 7, static_cast<int32_t>(host_.random().Between(2, kFakeVocab - 1))};
      break;
    case 2:
      fetch.what = FetchCommand::What::kRow;
      break;
  }
  Send({std::move(fetch)});
}

// The handle ends with REFUSED; the request goes on under another one.
void Replica::Misbehave(Sequence* sequence) {
  sequence->state = State::kSpoiled;
  sequence->inbox.clear();
  counters_.Add(Counter::kRefusedBadCommand);
  ExtendCommand extend;
  extend.handle = HandleOf(*sequence);
  extend.position = sequence->script.size();
  extend.epoch = sequence->epoch;
  extend.tokens = {1};
  switch (host_.random().Below(5)) {
    case 0:
      extend.epoch = sequence->epoch > 0 ? sequence->epoch - 1 : 7;
      break;
    case 1:
      extend.position += 100;
      break;
    case 2:
      extend.tokens = {kFakeVocab};
      break;
    case 3:
      extend.tokens.assign(kFakeContext, 1);
      break;
    case 4: {
      FetchCommand fetch;
      fetch.handle = extend.handle;
      fetch.what = FetchCommand::What::kRow;
      Send({std::move(fetch)});
      return;
    }
  }
  Send({std::move(extend)});
}

}  // namespace tandem::test
