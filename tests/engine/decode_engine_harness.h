// What the tests of DecodeEngine share: a tiny model in memory, and the text tier's side of a
// stream as a plain loop.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/decode_engine.h"
#include "engine/sampling/decision.h"
#include "tests/engine/decode_engine_deferred_ops.h"
#include "tests/support/model_runner.h"

namespace tandem::test {

// A tiny random model (context 512) on the reference or the CPU backend, which runs as late as it
// may.
struct TinyWorld {
  std::unique_ptr<DeferredOps> ops;
  std::unique_ptr<Model> model;

  struct Options {
    int32_t max_rows = 256;
    std::vector<int32_t> layer_windows;  // empty: full attention in both layers
    int32_t nan_token = -1;              // its embedding is NaN
    kernels::KvFormat kv_format = kernels::KvFormat::kF32;
    bool cpu = false;
    bool checked = false;
    std::string nan_tensor;  // its first value is NaN
  };
  explicit TinyWorld(const Options& options);
  int32_t vocab_size() const { return model->config().vocab_size; }
  std::unique_ptr<DecodeEngine> MakeEngine(const EngineOptions& options) const;
  // Logits behind the last token, computed without an engine.
  std::vector<float> Logits(const std::vector<int32_t>& tokens) const;
};
// The one with default options, made on first use.
const TinyWorld& PlainWorld();

// Pseudo-random token ids, the same for the same seed.
std::vector<int32_t> RandomTokens(uint64_t seed, int32_t count, int32_t vocab_size);

// A peer that sends single commands, on stream 0.
class Peer final {
 public:
  explicit Peer(DecodeEngine& engine) : engine_(engine) {}

  void Open(uint64_t number, std::vector<int32_t> tokens, int32_t max_new = 0,
            const SamplingParameters& sampling = {}, int32_t choices = 1);
  void Open(OpenCommand open) { engine_.Open(std::move(open), 1); }
  void Extend(uint64_t number, int32_t position, uint32_t epoch, std::vector<int32_t> tokens);
  void Fetch(uint64_t number, int32_t position, FetchCommand::What what);
  void FetchMore(uint64_t number, int32_t position, int32_t num_top, int32_t num_perturbed);
  // Steps until the engine is idle.
  void Run();
  // Of the events that came: how many, the newest, of a kind for a handle.
  template <typename Event>
  std::vector<Event> All(uint64_t number);
  template <typename Event>
  Event Last(uint64_t number) {
    std::vector<Event> all = All<Event>(number);
    EXPECT_FALSE(all.empty()) << "no such event for handle " << number;
    return all.empty() ? Event{} : std::move(all.back());
  }
  // The one Closed of a handle is REFUSED, and its detail has this text.
  void ExpectRefused(uint64_t number, const std::string& text);
  void Forget() { events_.clear(); }

 private:
  void Drain();

  DecodeEngine& engine_;
  std::vector<EngineEvent> events_;
};

template <typename Event>
std::vector<Event> Peer::All(uint64_t number) {
  Drain();
  std::vector<Event> all;
  for (const EngineEvent& event : events_) {
    const Event* it = std::get_if<Event>(&event);
    if (it != nullptr && it->handle == SessionHandle{0, number}) all.push_back(*it);
  }
  return all;
}

// A request of the text tier, and what came of it.
struct Request {
  std::vector<int32_t> tokens;
  int32_t prompt_length = 0;  // 0: all tokens
  SamplingParameters sampling;
  uint32_t choice = 0;
  int32_t max_new = 0;  // of Open
  int32_t wanted = 8;   // tokens to decide, then Close
  int64_t stream = 0;
  Nanos deadline = kNoDeadline;
  int32_t priority = 0;
  int32_t run_ahead = 0;
  int32_t drafts = 0;
  std::string salt;
};
struct Outcome {
  bool opened = false;
  std::vector<int32_t> output;
  std::vector<Candidates> candidates;  // one per decided position
  int32_t fetched = 0;                 // decisions that needed a Fetch
  int32_t misses = 0;                  // drawn, and unequal to the decision
  std::vector<std::string> faults;
  std::vector<ClosedEvent> closed;
};

// Opens requests, decides every token with a Decider, extends or fetches, closes.
class TextTier final {
 public:
  TextTier(DecodeEngine& engine, int32_t vocab_size) : engine_(engine), vocab_size_(vocab_size) {}

  // Handles rise by one for every choice.
  SessionHandle Start(const Request& request) { return StartChoices(request, 1); }
  SessionHandle StartChoices(const Request& request, int32_t choices);
  void Close(const SessionHandle& handle) { engine_.Close({handle}, 1); }

  // Launches until `depth` steps are in flight, collects one, handles what came. False: idle.
  bool Turn(int32_t depth = 1);
  // Turns until idle.
  void Run(int32_t depth = 1);
  void Handle(std::vector<EngineEvent> events);

  const Outcome& outcome(const SessionHandle& handle) const { return sessions_.at(handle).outcome; }
  const Outcome& outcome(uint64_t number, int64_t stream = 0) const {
    return sessions_.at({stream, number}).outcome;
  }
  // All outcomes in order of handles.
  std::vector<const Outcome*> outcomes() const;
  Nanos now = 1;

 private:
  struct Session {
    Request request;
    std::unique_ptr<Decider> decider;
    uint32_t epoch = 0;
    Candidates last;
    Outcome outcome;
  };
  void Decide(const SessionHandle& handle, Session* session, const Candidates& candidates,
              bool is_fetched);
  void Accept(const SessionHandle& handle, Session* session, int32_t token);

  DecodeEngine& engine_;
  int32_t vocab_size_;
  uint64_t next_number_ = 1;
  std::map<SessionHandle, Session> sessions_;
};

// Generates `request` in an engine of its own.
Outcome RunAlone(const TinyWorld& world, const EngineOptions& options, const Request& request);

// Equal to the last bit, entry by entry; else says where.
testing::AssertionResult SameBits(const Candidates& a, const Candidates& b);

// A mixed set of prompts, seeds and parameters.
std::vector<Request> MixedRequests(int32_t count, int32_t vocab_size);

}  // namespace tandem::test
