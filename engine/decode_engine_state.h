// What a DecodeEngine holds; shared by decode_engine*.cc, and nobody else's.
//
// Life of a session: kQueued (its group waits for admission) -> kLeader, the choice whose slot runs
// the prefill, and kWaiting, the other choices -> kRunning (after the fork; at once for one choice)
// -> kClosed (Closed was sent; slot and pages wait for the last step that had rows of it).
//
// Numbers of a session's tokens: [0, computed) have K and V, in steps launched so far; [0,
// tokens.size()) are confirmed; `drawn`, if any, is for position tokens.size(). The row of the last
// token gives the Candidates of position tokens.size(). At `limit` nothing is left to decide.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/cache/kv_cache.h"
#include "engine/decode_engine.h"
#include "engine/decode_engine_arrays.h"
#include "engine/scheduler/admission_queue.h"
#include "engine/scheduler/step_planner.h"

namespace tandem {

struct EngineState {
  enum class Phase : uint8_t { kQueued, kLeader, kWaiting, kRunning, kClosed };

  struct Session {
    int64_t serial = 0;  // unique, rises: age, and what a step's rows are matched by
    SessionHandle handle;
    Phase phase = Phase::kQueued;
    int64_t group = 0;  // until kRunning
    int32_t slot = -1;
    uint32_t choice = 0;
    kernels::DrawParams params;
    std::vector<int32_t> tokens;
    int32_t opened_length = 0;  // tokens of Open
    int32_t limit = 0;          // longest that the session may be
    int32_t longest = 0;        // longest that it was
    bool grows = false;         // no max_new
    uint32_t epoch = 0;
    int32_t computed = 0;
    int32_t drawn = -1;
    Nanos deadline = kNoDeadline;
    PageTable pages;
    std::deque<ExtendCommand> deferred;
    std::deque<FetchCommand> fetches;
    int64_t last_step = 0;  // newest step that has rows of it
    // What the slot holds on the device, in stream order: tokens [0, uploaded) are ours;
    // device_count tokens in all, -1 while a draw is in flight or stays open. device_next is the
    // token that draw_step put behind ours, -1 if unknown; draw_step is 0 if none counts.
    int32_t uploaded = 0;
    int32_t device_count = 0;
    int32_t device_next = -1;
    int64_t draw_step = 0;
  };

  // Choices of one Open that have not been forked yet.
  struct Group {
    OpenCommand command;
    std::vector<Session*> members;  // not closed, by choice
    bool admitted = false;          // then members[0] is the leader
  };

  struct ExtendPlan {
    int64_t same = 0;   // the first position that differs, or where the shorter list ends
    bool cuts = false;  // there held tokens are given up
  };

  struct RowRecord {
    int64_t serial = 0;
    uint32_t epoch = 0;
    int32_t position = 0;  // to be decided
  };
  struct FetchRecord {
    int64_t serial = 0;
    FetchCommand command;
    bool is_cut = false;     // a later Extend changed the tokens before its position
    int32_t lists_row = -1;  // kMore: line of the fetch lists
    std::vector<float> row;  // kIds, kRow: [vocab_size]
  };
  struct PrefillRecord {
    int64_t serial = 0;
    int32_t done = 0;
    int32_t total = 0;
  };
  // A launched step, reused. Fields are valid from Launch to Collect.
  struct Step {
    int64_t number = 0;
    int64_t mark = 0;
    Nanos launched_at = 0;
    std::vector<RowRecord> rows;  // logits rows of sessions
    std::vector<FetchRecord> fetches;
    std::vector<PrefillRecord> prefills;
    HostLists lists;
    HostLists fetch_lists;
  };

  // Rows of the step that is being put together, host side.
  struct Staging {
    std::vector<int32_t> slot;      // [n]
    std::vector<int32_t> position;  // [n]
    // Rows of sessions, then rows of fetches that want lists, then rows of the other fetches.
    std::vector<int32_t> logits_rows;
    std::vector<int32_t> list_fetch_rows;
    std::vector<int32_t> raw_fetch_rows;
    std::vector<Session*> list_fetch_sessions;
    std::vector<PageCopy> copies;
    std::vector<RunnableSequence> runnable;
  };

  EngineState(const EngineOptions& options, Model& model, kernels::Ops& ops,
              const CacheOptions& cache);
  ~EngineState();

  // decode_engine_commands.cc
  void Open(OpenCommand command, Nanos now);
  absl::Status ValidateOpen(const OpenCommand& command) const;
  void RefuseOpen(const OpenCommand& command, ClosedEvent::Reason reason,
                  const std::string& detail);
  void Extend(const ExtendCommand& command, Nanos now);
  absl::StatusOr<ExtendPlan> PlanExtend(const ExtendCommand& command, const Session& session) const;
  void ApplyExtend(const ExtendCommand& command, Session* session);
  void Cut(int32_t length, Session* session);
  void Fetch(const FetchCommand& command, Nanos now);
  absl::Status ValidateFetch(const FetchCommand& command, const Session& session) const;
  void CloseStream(int64_t stream);
  void Drain();

  // decode_engine_sessions.cc
  Session* Live(const SessionHandle& handle, Nanos now);
  int32_t LimitOf(const OpenCommand& command) const;
  KvCache::Request RequestOf(const OpenCommand& command, int32_t choices) const;
  // Sends Closed and gives back what no step in flight uses.
  void End(Session* session, ClosedEvent::Reason reason, std::string detail);
  void LeaveGroup(Session* session);
  void ReleaseIfIdle(Session* session);
  void Expire(Nanos now);
  void AdmitQueued();
  void StartMember(const OpenCommand& command, PageTable pages, Session* session);
  void ForkReadyGroups();
  absl::Status CheckPages() const;

  // decode_engine_step.cc
  bool Launch(Nanos now);
  int32_t PendingRows(const Session& session) const;
  void FindRunnable();
  bool PrepareRows(int32_t from, int32_t to, Session* session);
  void StageFetch(Session* session, Step* step);
  void StageRows(int32_t num_rows, Session* session, Step* step);
  void UploadTokens(Session* session);
  void Enqueue(Step* step);

  // decode_engine_collect.cc
  absl::StatusOr<bool> Collect(Nanos now);
  void CollectRow(const Step& step, int32_t index);
  void CollectFetch(Step* step, FetchRecord* fetch);

  int32_t num_in_flight() const { return static_cast<int32_t>(launched - collected); }
  Step& step_of(int64_t number) { return steps[number % steps.size()]; }

  const EngineOptions options;
  Model& model;
  kernels::Ops& ops;
  const int32_t vocab_size;
  const int32_t context_length;

  KvCache cache;
  AdmissionQueue queue;
  StepPlanner planner;
  std::unique_ptr<SlotArrays> slots;
  std::unique_ptr<PoolArrays> pools;
  std::unique_ptr<DeviceLists> lists;
  std::unique_ptr<DeviceLists> fetch_lists;
  kernels::Buffer rows_slot, rows_position, rows_token, rows_row_position;  // [step_tokens]
  kernels::Buffer logits_rows;                                              // [max_logits_rows]
  kernels::Buffer logits;  // [max_logits_rows, vocab_size]
  int32_t max_logits_rows = 0;

  std::map<int64_t, std::unique_ptr<Session>> sessions;  // by serial; queued to closed
  std::map<SessionHandle, Session*> by_handle;           // live ones
  std::map<int64_t, Group> groups;                       // by the id in the queue
  std::vector<Session*> by_slot;                         // [max_sessions], null: free
  std::set<int32_t> free_slots;
  std::vector<EngineEvent> events;
  std::array<Step, 2> steps;
  Staging staging;
  int64_t launched = 0;   // number of the newest step; the first is 1
  int64_t collected = 0;  // all steps up to this one
  int64_t next_serial = 1;
  int64_t next_group = 1;
  bool draining = false;
  absl::Status device_status;
  Nanos last_step_nanos = 0;
};

}  // namespace tandem
