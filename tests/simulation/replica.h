// A text replica of the simulation: one stream at a time, requests from the workload, decisions by
// their scripts. It sees only what comes over its stream, and it misbehaves on purpose: it cancels,
// repeats itself, is late, and sends what has to be refused.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "engine/decode_engine.h"
#include "tests/simulation/counters.h"
#include "tests/simulation/features.h"
#include "tests/simulation/random.h"
#include "tests/simulation/script.h"
#include "tests/simulation/violation.h"
#include "tests/simulation/workload.h"

namespace tandem::test {

struct SimCommand {
  std::variant<OpenCommand, ExtendCommand, FetchCommand, CloseCommand> body;
  bool is_bad = false;  // an Open that has to be refused
};

// What a replica is woken for.
enum class Wake : uint8_t { kOpenNext, kReopen, kDecide, kCancel };

class ReplicaHost {
 public:
  virtual ~ReplicaHost() = default;
  virtual Nanos now() const = 0;
  virtual Random& random() = 0;
  // Commands of a stream arrive in order, later.
  virtual void Send(int64_t stream, SimCommand command) = 0;
  virtual void WakeAt(Nanos at, int32_t replica, Wake wake, int32_t sequence) = 0;
};

class Replica final {
 public:
  // Opens num_requests requests in all.
  Replica(int32_t index, int32_t num_requests, const Shape& shape, Features features,
          ReplicaHost& host, Workload& workload, Violation& violation, Counters& counters);

  void Start(int64_t stream);
  void OnEvent(const EngineEvent& event);
  void OnWake(Wake wake, int32_t sequence);
  // The stream was lost with all that was under way on it; a new one replaces it.
  void OnStreamLost(int64_t new_stream);
  // The worker drains: what it hands over is opened nowhere else.
  void OnDrain() { drains_ = true; }
  bool done() const { return num_opened_ >= num_requests_ && num_active_ == 0; }
  int64_t stream() const { return stream_; }
  // What is not done, for people.
  std::string Text() const;

 private:
  enum class State : uint8_t { kIdle, kOpen, kClosing, kSpoiled, kEnded };
  struct Received {
    int32_t position = 0;
    int32_t drawn = -1;
  };
  struct Sequence {
    Sequence(SequenceSpec s) : spec(std::move(s)), script(spec) {}
    SequenceSpec spec;
    Script script;
    State state = State::kIdle;
    uint64_t number = 0;
    uint32_t epoch = 0;
    bool is_admitted = false;
    std::deque<Received> inbox;  // of this epoch, from the end of the list on
    bool has_timer = false;      // to decide
    int32_t awaits_fetch = 0;    // position, 0: none
    int32_t num_blind = 0;       // since the open
    Nanos first_opened = -1;
    int32_t tries = 0;
    bool is_cancelled = false;
    int32_t misbehaves_at = -1;  // length
  };

  void OpenNext();
  void Open(std::vector<int32_t> indices);
  void OpenWhatNeverFits();
  void OnCandidates(const CandidatesEvent& event, Sequence* sequence);
  void OnFetched(const FetchedEvent& event, Sequence* sequence);
  void OnClosed(const ClosedEvent& event, Sequence* sequence);
  void DecideSoon(Sequence* sequence);
  void Decide(Sequence* sequence);
  void DecideBlindly(Sequence* sequence);
  // The next action of the script, as an Extend.
  void Act(Sequence* sequence);
  uint32_t EpochOf(const Script::Action& action, const Sequence& sequence) const;
  void CountAction(const Script::Action& action, int32_t drawn);
  void FetchSomething(int32_t position, Sequence* sequence);
  void Misbehave(Sequence* sequence);
  void Close(Sequence* sequence);
  void End(Sequence* sequence);
  void ReopenLater(Sequence* sequence);
  void RememberHeld(const Sequence& sequence);
  int32_t IndexOf(const Sequence& sequence) const;
  SessionHandle HandleOf(const Sequence& sequence) const { return {stream_, sequence.number}; }
  void Send(SimCommand command) { host_.Send(stream_, std::move(command)); }
  bool Percent(int32_t percent) { return host_.random().Percent(percent); }
  Nanos Delay();

  const int32_t index_;
  const int32_t num_requests_;
  const EngineOptions options_;
  const Features features_;
  ReplicaHost& host_;
  Workload& workload_;
  Violation& violation_;
  Counters& counters_;
  const Shape::Pace pace_;
  const bool is_slow_;
  const int32_t max_active_;
  int64_t stream_ = 0;
  uint64_t next_number_ = 1;
  bool drains_ = false;
  bool awaits_wake_ = false;  // kOpenNext is under way
  int32_t num_opened_ = 0;
  int32_t num_active_ = 0;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::map<uint64_t, int32_t> by_number_;  // of this stream, not closed
  // Of each request (SequenceSpec::id): the first position whose prompt logprobs have not come.
  std::map<uint64_t, int32_t> prompt_next_;
};

}  // namespace tandem::test
