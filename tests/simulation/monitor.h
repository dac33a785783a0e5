// Watches a DecodeEngine at its border and compares it with its contract (engine/decode_engine.h).
// It is told every command before the engine gets it, and every event as soon as the engine gives
// it out, so that it knows exactly what is held when an event comes; it looks at no engine state.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/decode_engine.h"
#include "tests/simulation/counters.h"
#include "tests/simulation/fake_ops.h"
#include "tests/simulation/features.h"
#include "tests/simulation/list_model.h"
#include "tests/simulation/violation.h"

namespace tandem::test {

class Monitor final {
 public:
  Monitor(const EngineOptions& options, Features features, const FakeOps& ops, Violation* violation,
          Counters* counters)
      : options_(options),
        features_(features),
        ops_(ops),
        violation_(*violation),
        counters_(*counters) {}

  // Before the engine gets them. is_bad: has to be refused, whatever the state is.
  void BeforeOpen(const OpenCommand& command, bool is_bad, Nanos now);
  void BeforeExtend(const ExtendCommand& command, Nanos now);
  void BeforeFetch(const FetchCommand& command, Nanos now);
  void BeforeClose(const CloseCommand& command);
  void BeforeCloseStream(int64_t stream);
  void BeforeDrain(Nanos now);
  // After Launch and Collect, before the events of that call.
  void AfterLaunch(bool launched);
  void AfterCollect();
  // All events of a call, in order.
  void OnEvents(std::span<const EngineEvent> events, Nanos now);
  // After a Launch and its events: whoever is owed something gets it within a bound.
  void CheckProgress(bool launched, bool had_events, Nanos now);
  // After every call.
  void CheckLoad(const EngineLoad& load, int32_t num_live);

  int32_t num_live() const { return static_cast<int32_t>(sessions_.size()); }

 private:
  enum class Must : uint8_t { kNothing, kDone, kRefused, kDraining, kExpired };
  struct Session {
    SessionHandle handle;
    int64_t group = 0;   // rises with every Open
    int64_t serial = 0;  // rises with every handle
    Nanos birth = 0;     // when the request was first opened
    uint64_t key = 0;    // FakeOps::SessionKey
    uint64_t salt = 0;
    bool use_cache = false;
    bool grows = false;
    bool want_raw = false;
    int32_t opened_length = 0;
    int32_t most_cached = 0;  // tokens
    int32_t limit = 0;
    int32_t priority = 0;
    int32_t run_ahead = 0;
    int32_t choices = 1;
    int64_t cost = 0;  // tokens that its group reserves
    int32_t num_top = 0;
    int32_t num_perturbed = 0;
    int32_t num_widenings = 0;  // fetches of lists whose effect on the sizes was not seen yet
    Nanos deadline = kNoDeadline;
    bool is_admitted = false;
    bool has_candidates = false;
    Must must = Must::kNothing;
    // What the worker holds: confirmed tokens, then its own draws.
    ListModel held;
    int32_t confirmed = 0;
    int32_t longest = 0;  // confirmed
    uint32_t epoch = 0;
    bool undecided = false;             // the newest Candidates appended nothing
    bool has_many = true;               // more than one row may be left to run
    int32_t answered = 0;               // position of the newest Candidates: rows below it were run
    int32_t steps_owed = 0;             // launched since it was owed something
    int32_t prefilled = 0;              // of the last PrefillEvent
    std::vector<uint64_t> opened_keys;  // PrefixKey of each full page of the opened tokens
    int32_t known_pages = 0;            // of the confirmed tokens, noted in known_
    std::deque<FetchCommand> fetches;
    std::vector<FetchCommand> late_fetches;  // out of reach meanwhile: may be answered
  };
  // What a group is still to say of its prompt.
  struct WantedPrompt {
    int32_t next = 0;  // position
    int32_t num_raw_top = 0;
    std::vector<int32_t> report_ids;
    std::vector<int32_t> tokens;  // the prompt
    std::vector<uint64_t> rows;   // before the positions from `first` on
    int32_t first = 0;
    std::optional<uint64_t> number;  // of the handle that had the last
  };
  struct KnownPrefix {
    int64_t group = 0;        // that had it first
    bool had_others = false;  // another one had it too
  };
  struct InFlight {
    int64_t mark = 0;
    std::vector<uint64_t> sessions;
  };
  struct Waiting {  // of a stream
    int64_t best_group = 0;
    int64_t overtaken = 0;  // tokens reserved by what other streams got meanwhile
  };
  struct DrainState {
    Nanos since = 0;
    int32_t running = 0;  // when it began
    int32_t handed_over = 0;
  };

  static bool WantsPrompt(const OpenCommand& command);
  static WantedPrompt WantedOf(const OpenCommand& command, const ListModel& list);
  Session NewSession(const OpenCommand& command, int32_t index, int32_t choices, bool is_bad,
                     Nanos now);
  void OnOpened(const OpenedEvent& event, Session* session, Nanos now);
  void OnPrefill(const PrefillEvent& event, Session* session);
  void OnPromptLogprobs(const PromptLogprobsEvent& event, const Session& session);
  void OnCandidates(const CandidatesEvent& event, Session* session);
  void OnFetched(const FetchedEvent& event, Session* session);
  void OnClosed(const ClosedEvent& event, Session* session, Nanos now);
  void CheckLists(const Candidates& candidates, int32_t position, int32_t num_top,
                  int32_t num_perturbed, const Session& session);
  // Why the contract refuses it; empty: it does not. Sets *same to the end of the common prefix.
  std::string WhyRefused(const ExtendCommand& command, const Session& session, int32_t* same) const;
  void CheckPreempted(const Session& session);
  void CheckDrained(const Session& session, Nanos now);
  bool MayBeDisplaced(const Session& session) const;
  void CheckFairness(const Session& session);
  void CheckHit(int32_t cached, const Session& session);
  void NotePages(Session* session);
  uint64_t PrefixKey(int32_t length, const Session& session) const;
  bool Owes(const Session& session) const;
  bool IsInFlight(const Session& session) const;
  int32_t QueuedGroups() const;
  int32_t QueuedGroups(int64_t stream) const;
  static std::string Text(const Session& session);
  Session* Find(const SessionHandle& handle);
  // Null where a command is ignored, or finds its session expired.
  Session* FindForCommand(const SessionHandle& handle, Nanos now);
  // The best waiting group of a stream: highest priority, then first come; 0: none waits.
  std::pair<int64_t, int32_t> BestWaiting(int64_t stream) const;

  const EngineOptions options_;
  const Features features_;
  const FakeOps& ops_;
  Violation& violation_;
  Counters& counters_;
  std::map<SessionHandle, Session> sessions_;        // not closed
  std::map<int64_t, WantedPrompt> wanted_prompts_;   // by group, until all has come
  std::unordered_map<uint64_t, KnownPrefix> known_;  // page-long prefixes that were confirmed
  std::deque<InFlight> in_flight_;
  std::map<int64_t, Waiting> waiting_;   // by stream
  std::optional<int64_t> victim_until_;  // the mark of a step that the last victim is part of
  std::optional<DrainState> drain_;
  std::set<int64_t> ended_streams_;
  // The Open of the present call found a full queue: its stream and priority.
  std::optional<std::pair<int64_t, int32_t>> displaces_;
  int64_t next_group_ = 1;
  int64_t next_serial_ = 1;
  int64_t last_opened_group_ = 0;
  int64_t max_cost_ = 0;             // of all groups
  std::set<int64_t> known_streams_;  // that opened something
  int32_t steps_without_prefill_ = 0;
  bool asks_drafts_ = false;  // some Open did
  int64_t drafted_ = 0;
  int64_t drafts_taken_ = 0;
};

}  // namespace tandem::test
