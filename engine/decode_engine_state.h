// What a DecodeEngine holds; shared by decode_engine*.cc, and nobody else's.
//
// Life of a session: kQueued (its group waits for admission) -> kLeader, the choice whose slot runs
// the prefill, and kWaiting, the other choices -> kRunning (after the fork; at once for one choice)
// -> kClosed (Closed was sent; slot and pages wait for the last step that had rows of it).
//
// Numbers of a session's tokens: [0, confirmed) are confirmed, the rest of `tokens` are draws that
// were collected; rows of [0, computed) are launched, those of [0, collected) are done. computed is
// at most tokens.size() + 1: then the last row takes a draw that is still in flight; with drafts it
// is tokens.size() and the drafts that are in flight. The row of the last token gives the
// Candidates of position tokens.size(). At `limit` nothing is left to decide.
//
// What is in flight when tokens change is voided by `generation`: results of rows of an older one
// are dropped, and `computed` says from where on rows run again. Everything is in stream order, so
// that uploads, copies and rows enqueued later see, and overwrite, what those rows left.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/cache/kv_cache.h"
#include "engine/decode_engine.h"
#include "engine/decode_engine_arrays.h"
#include "engine/drafts/draft_budget.h"
#include "engine/drafts/draft_length.h"
#include "engine/drafts/ngram_drafts.h"
#include "engine/scheduler/admission_queue.h"
#include "engine/scheduler/chunk_limit.h"
#include "engine/scheduler/preemption.h"
#include "engine/scheduler/step_planner.h"

namespace tandem {

// Rows that the drafts of a step may take beside a row for each session.
inline constexpr int32_t kMaxDraftRows = 64;

struct EngineState {
  enum class Phase : uint8_t { kQueued, kLeader, kWaiting, kRunning, kClosed };

  struct Session {
    int64_t serial = 0;  // unique, rises
    SessionHandle handle;
    std::string request_id;
    Phase phase = Phase::kQueued;
    int64_t group = 0;  // which Open: its Group, until kRunning
    int32_t slot = -1;
    uint32_t choice = 0;
    kernels::DrawParams params;
    int32_t priority = 0;
    int64_t age = 0;  // smaller is older: when the request was first opened
    Nanos deadline = kNoDeadline;
    int32_t opened_length = 0;  // tokens of Open
    int32_t limit = 0;          // longest that the session may be
    int32_t run_ahead = 0;
    int32_t max_drafts = 0;
    bool grows = false;  // no max_new
    // Prompt positions whose logprobs are wanted, and how long their lists are; end 0: none.
    int32_t prompt_begin = 0;
    int32_t prompt_end = 0;
    int32_t prompt_raw_top = 0;

    std::vector<int32_t> tokens;
    int32_t confirmed = 0;
    int32_t longest = 0;  // most that were ever confirmed
    uint32_t epoch = 0;
    uint32_t generation = 0;
    bool is_undecided = false;  // no draw for position tokens.size(): it waits for Extend
    int32_t computed = 0;
    int32_t collected = 0;
    int32_t cached = 0;               // prompt tokens that were found
    int64_t seen_indexed_pages = -1;  // of the cache, when it last looked for more
    int32_t uploaded = 0;             // tokens [0, uploaded) stand in the slot, in stream order
    PageTable pages;
    Nanos retain_until = 0;
    // With max_drafts > 0.
    NgramDrafts ngrams;
    DraftLength draft_length;
    NgramDrafts::Match match;   // of the last tokens, while a step is put together
    int32_t wanted_drafts = 0;  // it let a step pass to verify so many
    std::deque<ExtendCommand> deferred;
    std::deque<FetchCommand> fetches;
    int64_t last_step = 0;  // newest step that has rows of it
    // Of the two steps that may be in flight, by number % 2: `computed` after it.
    std::array<int32_t, 2> computed_after = {};
  };

  // Choices of one Open that have not been forked yet.
  struct Group {
    OpenCommand command;
    std::vector<Session*> members;  // not closed, by choice
    bool admitted = false;          // then members[0] is the leader
  };

  struct ExtendPlan {
    int64_t same = 0;   // the first position that differs, or where the shorter list ends
    bool cuts = false;  // epoch + 1: held tokens behind it are given up
  };

  // A session in a step's records stays until the step is collected, closed or not.
  struct RowRecord {
    Session* session = nullptr;
    uint32_t generation = 0;
    int32_t position = 0;  // to be decided
    // Of a step with drafts: how many, from a match of which length, how many of them this row has
    // before it, and the one behind it (not of the last row).
    int32_t num_drafts = 0;
    int32_t match = 0;
    int32_t num_before = 0;
    int32_t draft = -1;
  };
  struct FetchRecord {
    Session* session = nullptr;
    FetchCommand command;
    bool is_cut = false;     // a later Extend changed the tokens before its position
    int32_t lists_row = -1;  // kMore: line of the fetch lists
    std::vector<float> row;  // kIds, kRow: [vocab_size]
  };
  struct PromptRecord {
    Session* session = nullptr;
    int32_t position = 0;  // of the token whose logprob the row gives
  };
  struct PrefillRecord {
    Session* session = nullptr;
    int32_t done = 0;
  };
  // A launched step, reused. Fields are valid from Launch to Collect.
  struct Step {
    int64_t number = 0;
    int64_t mark = 0;
    Nanos launched_at = 0;
    int32_t num_decode_rows = 0;
    int32_t num_prefill_rows = 0;
    std::vector<Session*> sessions;  // that have rows in it, fetches aside
    std::vector<RowRecord> rows;     // logits rows of sessions
    std::vector<FetchRecord> fetches;
    std::vector<PrefillRecord> prefills;
    // Lines of prompt_lists; those of a session are in order. Empty once the step is collected.
    std::vector<PromptRecord> prompts;
    HostLists lists;
    HostLists fetch_lists;
    HostLists prompt_lists;
    // Of a checked model: what was found of each row, and whose row it is (null: padding).
    struct CheckedRow {
      Session* session = nullptr;
      uint32_t generation = 0;
    };
    std::vector<CheckedRow> checked_rows;
    std::vector<kernels::NonFinite> non_finite;
  };

  // Rows of the step that is being put together, host side.
  struct Staging {
    std::vector<int32_t> slot;      // [n]
    std::vector<int32_t> position;  // [n]
    // Rows of sessions, then rows of fetches that want lists, then rows of prompts whose logprobs
    // are wanted, then rows of the other fetches.
    std::vector<int32_t> logits_rows;
    std::vector<int32_t> list_fetch_rows;
    std::vector<int32_t> prompt_rows;
    std::vector<int32_t> raw_fetch_rows;
    std::vector<Session*> list_fetch_sessions;
    std::vector<Session*> prompt_sessions;
    std::vector<PageCopy> copies;
    std::vector<RunnableSequence> runnable;
    std::vector<GrowingSequence> growing;
    int32_t num_decodes = 0;         // runnable sequences that are no prefill, and rows of drafts
    std::vector<int32_t> drafts;     // of one session
    std::vector<double> costs;       // of its 1, 2, .. drafts
    int32_t num_running = 0;         // sessions that decode, whether they are runnable or not
    std::vector<double> step_nanos;  // of num_decodes, num_decodes + 1, .. rows
  };

  EngineState(const EngineOptions& options, Model& model, kernels::Ops& ops,
              const CacheOptions& cache);
  ~EngineState();

  // decode_engine_commands.cc
  void Open(OpenCommand command, Nanos now);
  absl::Status ValidTokens(const std::vector<int32_t>& tokens) const;
  absl::Status ValidateOpen(const OpenCommand& command) const;
  void RefuseOpen(const OpenCommand& command, ClosedEvent::Reason reason,
                  const std::string& detail);
  void Enqueue(OpenCommand command, Nanos now);
  void Fetch(const FetchCommand& command, Nanos now);
  absl::Status ValidateFetch(const FetchCommand& command, const Session& session) const;
  void Close(const CloseCommand& command, Nanos now);
  void CloseStream(int64_t stream);
  void Drain(Nanos now);

  // decode_engine_extend.cc
  void Extend(const ExtendCommand& command, Nanos now);
  absl::StatusOr<ExtendPlan> PlanExtend(const ExtendCommand& command, const Session& session) const;
  void ApplyExtend(const ExtendCommand& command, Session* session);
  void VoidRowsFrom(int32_t position, Session* session);
  void DropFetchesBehind(int32_t length, Session* session);

  // decode_engine_sessions.cc
  Session* Live(const SessionHandle& handle, Nanos now);
  int32_t LimitOf(const OpenCommand& command) const;
  static bool WantsPromptLogprobs(const OpenCommand& command);
  KvCache::Request RequestOf(const OpenCommand& command, int32_t choices) const;
  // Sends Closed and gives back what no step in flight uses.
  void End(Session* session, ClosedEvent::Reason reason, std::string detail);
  void EndGroup(int64_t group, ClosedEvent::Reason reason, const std::string& detail);
  void LeaveGroup(Session* session);
  void ReleaseIfIdle(Session* session);
  void Expire(Nanos now);
  void HandOver(Nanos now);
  void AdmitQueued();
  void StartMember(const OpenCommand& command, PageTable pages, Session* session);
  void ForkReadyGroups();
  void IndexFinalPages(Session* session);
  absl::Status CheckPages() const;

  // decode_engine_drafts.cc
  void PlanDrafts();
  int32_t RoomForDrafts(int32_t num_drawn, const Session& session) const;
  std::span<const double> CostOfDrafts(int32_t num_rows, int32_t most, double turns);
  void UploadDrafts(int32_t to, Session* session);
  bool JudgeDraft(const RowRecord& row, int32_t drawn, Session* session);

  // decode_engine_prompt.cc
  bool WantsPromptRows(const Session& session) const;
  void BoundPromptRows();
  void StagePromptRows(int32_t from, int32_t to, int32_t first_row, Session* session, Step* step);
  void EnqueuePromptLists(int32_t first_row, kernels::CandidatesArgs args, Step* step);
  void LeavePromptRows(const Session* session);
  Session* FirstLiveOf(int64_t group) const;
  void CollectPrompts(const Step& step);

  // decode_engine_step.cc
  bool MayLaunch() const;
  void Admit(Nanos now);
  bool Launch(Nanos now);
  int32_t PendingRows(const Session& session) const;
  void ReuseCachedPages(Session* session);
  void FindRunnable();
  enum class Growth : uint8_t { kReady, kWaits, kEnded };
  Growth Grow(int32_t to, Session* session);
  Growth PrepareRows(int32_t from, int32_t to, Session* session);
  void StageFetch(Session* session, Step* step);
  void StageRows(int32_t num_rows, Session* session, Step* step);
  void UploadTokens(Session* session);
  void FlushCopies();
  void EnqueueStep(Step* step);
  void PadDecodeRows();
  void DownloadNonFinite(Step* step);
  uint64_t GraphKey(int32_t num_rows, const HostLists& host) const;

  // decode_engine_collect.cc
  void Wait();
  absl::StatusOr<bool> Collect(Nanos now);
  void EndNonFinite(const Step& step);
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
  ChunkLimit chunk_limit;
  std::unique_ptr<SlotArrays> slots;
  std::unique_ptr<PoolArrays> pools;
  std::unique_ptr<DeviceLists> lists;
  std::unique_ptr<DeviceLists> fetch_lists;
  kernels::Buffer rows_slot, rows_position, rows_token, rows_row_position;      // [step_tokens]
  std::vector<int32_t> uploaded_slot, uploaded_position, uploaded_logits_rows;  // what they hold
  kernels::Buffer logits_rows;                                                  // [max_logits_rows]
  kernels::Buffer logits;  // [max_logits_rows, vocab_size]
  int32_t max_logits_rows = 0;

  std::map<int64_t, std::unique_ptr<Session>> sessions;    // by serial; queued to closed
  absl::flat_hash_map<SessionHandle, Session*> by_handle;  // live ones
  std::set<std::pair<Nanos, int64_t>> deadlines;           // (deadline, serial) of live ones
  std::map<int64_t, Group> groups;                         // by the id in the queue
  std::set<int64_t> admitted_groups;                       // those not forked yet
  std::vector<Session*> by_slot;                           // [max_sessions], null: free
  std::set<int32_t> free_slots;
  std::vector<EngineEvent> events;
  std::array<Step, 2> steps;
  Staging staging;
  int64_t launched = 0;   // number of the newest step; the first is 1
  int64_t collected = 0;  // all steps up to this one
  int64_t next_serial = 1;
  int64_t next_group = 1;
  bool collecting = false;    // a step's records name sessions
  bool growth_waits = false;  // pages that come back are spoken for
  bool draining = false;
  Nanos next_handover = 0;  // while draining
  Nanos handover_interval = 0;
  absl::Status device_status;
  Nanos last_collect = 0;
  Nanos last_step_nanos = 0;
  int32_t last_decode_rows = 0;
  int32_t last_prefill_rows = 0;
  int64_t queued_tokens = 0;  // of opens that wait for admission
  // The admission that failed last: it is not tried again before there is a chance.
  int64_t blocked_group = 0;
  int64_t blocked_chances = 0;
  int64_t prefilled_tokens = 0;
  int64_t reused_tokens = 0;
  int64_t num_preempted = 0;
  DraftBudget draft_budget;
  int64_t num_cuts = 0;
  int64_t num_drafted = 0;
  int64_t num_drafts_taken = 0;
};

}  // namespace tandem
