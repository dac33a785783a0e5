// The worker's mind: sessions in, candidates out. Scheduler, page pool and model, with no thread,
// no clock and no RPC of its own.
//
// Use: commands (Open, Extend, Fetch, Close) at any time; Launch starts a step with the work there
// is; Collect waits for the oldest launched step; both put events into a queue that TakeEvents
// empties. Commands never block and never fail the engine: what is wrong with one ends its handle
// with Closed(REFUSED), whose detail says the field, the value and the limit.
//
// A handle is (stream, number): the number as the peer gave it, the stream as the caller numbers
// peers. Guarantees: Opened comes before any Candidates; Candidates of an epoch come in position
// order; every handle ends in exactly one Closed and nothing follows it; commands for a handle that
// is not live are ignored. An Open whose range holds a live handle closes every handle of the
// range, live ones included. An Open whose number of choices is out of range is answered on its
// first handle alone.
//
// Tokens. The held list is the confirmed tokens and, behind them, the worker's own draws that no
// Extend has named yet. Candidates for a position say the draw that was appended to the list, or
// that the lists do not decide: then nothing is appended, and the session waits for Extend.
//
// Run-ahead. Rows of held tokens that are not confirmed yet run only for the first `run_ahead` of
// them; the row of the last one may be launched before its draw is collected: it takes the token
// from the slot. So with run_ahead 0 the session waits for an Extend after each position, and with
// run_ahead r it may send the Candidates of r + 1 positions before it waits. No row runs for a
// position that the session's limit leaves nothing to decide behind.
//
// Drafts. A session that was opened with drafts > 0 guesses what comes next from its own tokens
// (drafts/ngram_drafts.h); a step runs the rows of the last token and of the drafts behind it
// together. Each row says what it would say alone, with penalties counted over the drafts before
// it. A draft counts as drawn once the draw at its position equals it; results of rows behind the
// first draft that is not drawn, or behind an undecided draw, are dropped, and what those rows
// wrote is written again. So drafts change no event but the time when it comes, and `drawn` is
// always the draw. Rows of drafts are bound by run_ahead and the limit as others are, and no
// session gives way to them. How many there are, if any, depends on how many were taken and on what
// rows cost (drafts/draft_length.h), and is bound by what all of them may lose
// (drafts/draft_budget.h). Guesses need the last tokens on the host: a session has no
// other row in flight beside a step with drafts. Where steps overlap that costs it a turn; so with
// a match at hand, and rows that are worth it, it lets a turn pass, and without one it runs ahead
// as ever.
//
// Extend{position, tokens}: "the tokens before `position` are as you hold them, and from there on
// they are these". Tokens are compared with the held list, the common prefix is kept, the list is
// cut at the first difference and the rest appended; no tokens cut to position. What Extend names
// is confirmed. Epochs: an Extend that cuts carries epoch + 1; so does one whose sender cannot know
// whether it cuts, since it names tokens whose draws it has not received; all others carry the
// current epoch. epoch + 1 is always adopted: the results of rows launched before are dropped, and
// the position after the last token is computed again, so that its Candidates come in the new
// epoch. A cut under the current epoch, any other epoch, or a position beyond what is held is
// refused. A cut may reach max_rewind below the longest that was ever confirmed. Extends that come
// before the prompt is shared among the choices (or before admission) are kept, at most
// kMaxDeferred, and applied then.
//
// Fetch computes the row of position - 1 again in the next step, as a row of its own. It writes the
// same K and V bits again into a page with one owner (a shared page is copied first). At most
// kMaxFetches wait per session. It may reach max_rewind below the longest that was ever confirmed,
// and up to the last held token. A Fetch whose position a later Extend cuts, or leaves out of that
// reach, stays unanswered. Each Fetch of lists (kMore) also doubles the session's own K', and once
// that is at its limit its K, for the Candidates that follow: a session whose lists do not decide
// asks ever less. Decisions do not depend on the sizes.
//
// Choices. One prefill of all tokens but the last; then each choice has the full pages in common, a
// copy of the partial page, and runs the last row itself, with its own draw.
//
// Prompt logprobs. The rows before the positions that are asked for give their raw part beside the
// prefill; so no page of them is taken from the cache (those below prompt_logprobs_from - 1 may
// be), and a chunk is no longer than the logits rows that the step's other sessions leave: with the
// defaults, 64 sessions and 64 rows of drafts, at most 128 of a step's 256 rows, each with the
// output product and a pass over the vocabulary that a prompt's rows do without. The last row of
// the tokens runs in a step of its own, behind them. No bit of any row depends on it.
//
// Memory. max_new > 0: everything up to min(context, prompt_length + max_new) is promised at
// admission. max_new == 0: ahead_tokens beyond the tokens given, then page by page; where no page
// is left, the youngest of the sessions that grow (of the lowest priority among them) is closed
// with kPreempted, and the others wait until its pages are back. Pages and slot of a closed session
// are free again once the last step that it was part of is collected.
//
// Cached pages. A page whose 64 tokens are confirmed and computed is found by later sessions with
// the same tokens before it, and the same salt; they share it. At least the last token is always
// computed. Pages without an owner stay in the cache until they are needed, the least recently used
// go first.
//
// Thread-safety: none; one thread owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/cache/kv_cache.h"
#include "engine/model/model.h"
#include "engine/sampling/candidates.h"
#include "engine/sampling/parameters.h"
#include "engine/sampling/prompt_logprobs.h"

namespace tandem {

inline constexpr int32_t kMaxDeferred = 16;
inline constexpr int32_t kMaxFetches = 16;
inline constexpr int32_t kMaxSalt = 64;
inline constexpr int32_t kMaxRequestId = 128;
inline constexpr int32_t kMaxDraftLength = 32;
inline constexpr int32_t kMaxPromptLogprobs = 64;  // positions of an event

struct SessionHandle {
  int64_t stream = 0;
  uint64_t number = 0;
  friend bool operator==(const SessionHandle&, const SessionHandle&) = default;
  friend auto operator<=>(const SessionHandle&, const SessionHandle&) = default;
  template <typename H>
  friend H AbslHashValue(H hash, const SessionHandle& handle) {
    return H::combine(std::move(hash), handle.stream, handle.number);
  }
};

struct OpenCommand {
  SessionHandle first;  // handles first .. first + choices - 1
  int32_t choices = 1;
  uint32_t first_choice = 0;  // Philox choice of the first handle
  // Prompt, and output so far where a session is opened again; at least one, fewer than the length
  // that the session may reach.
  std::vector<int32_t> tokens;
  int32_t prompt_length = 0;  // [1, tokens.size()]
  int32_t max_new = 0;        // output tokens, counted from prompt_length; 0: up to the context
  SamplingParameters sampling;
  int32_t priority = 0;          // higher goes first
  Nanos deadline = kNoDeadline;  // closed with kExpired from then on, also while it waits
  // How long ago the request was first opened, anywhere: of equal priority, and within a stream,
  // the older goes first. >= 0.
  Nanos age = 0;
  int32_t run_ahead = 0;  // [0, max_run_ahead]
  // Most drafts of a step, [0, max_drafts]. They count as run-ahead: with run_ahead 0 there are
  // none.
  int32_t drafts = 0;
  bool use_cache = true;  // finds and leaves cached pages
  std::string salt;       // cached pages are shared among equal salts; at most kMaxSalt bytes
  // Logprobs of the prompt's tokens at positions [prompt_logprobs_from, prompt_length) are wanted,
  // each with the prompt_raw_top largest raw logits and sampling.report_ids. 0: none are; else at
  // least 1 and at most prompt_length.
  int32_t prompt_logprobs_from = 0;
  int32_t prompt_raw_top = 0;  // [0, kernels::kMaxRawTop]
  std::string request_id;      // comes back in ClosedEvent; at most kMaxRequestId bytes
};

struct ExtendCommand {
  SessionHandle handle;
  int32_t position = 0;  // from here on, these are the tokens
  uint32_t epoch = 0;
  std::vector<int32_t> tokens;  // empty: cut to position
};

struct FetchCommand {
  enum class What : uint8_t { kMore, kIds, kRow };
  SessionHandle handle;
  int32_t position = 0;
  What what = What::kMore;
  int32_t num_top = 0;  // kMore: list sizes for this answer
  int32_t num_perturbed = 0;
  std::vector<int32_t> ids;  // kIds: raw logits of these, at most the vocabulary
};

struct CloseCommand {
  SessionHandle handle;
  Nanos retain = 0;  // its cached pages are evicted last for so long; [0, max_retain]
};

struct OpenedEvent {
  SessionHandle handle;
  int32_t cached_tokens = 0;
};
// Sent between chunks of a prompt that takes more than one step, and when pages are found later
// than at admission.
struct PrefillEvent {
  SessionHandle handle;
  int32_t done = 0;  // computed or found
  int32_t total = 0;
  int32_t cached = 0;  // found, of those done
};
// Up to kMaxPromptLogprobs positions. Of one Open they come in order, each once, before any
// Candidates, for the first of its handles that is open.
struct PromptLogprobsEvent {
  SessionHandle handle;
  PromptLogprobs logprobs;
};
struct CandidatesEvent {
  SessionHandle handle;
  int32_t position = 0;  // index of the token to be decided
  uint32_t epoch = 0;
  Candidates candidates;  // summary.drawn: the worker's own draw, appended; -1: none
};
struct FetchedEvent {
  SessionHandle handle;
  int32_t position = 0;
  FetchCommand::What what = FetchCommand::What::kMore;
  Candidates candidates;      // kMore
  std::vector<float> values;  // kIds: raw logits in the order asked; kRow: [vocab_size]
};
struct ClosedEvent {
  enum class Reason : uint8_t {
    kDone,
    kPreempted,
    kDraining,
    kExpired,
    kRefused,
    kNonFinite,
    kFault
  };
  SessionHandle handle;
  Reason reason = Reason::kDone;
  std::string detail;
  std::string request_id;  // as Open had it; for logs
};
using EngineEvent = std::variant<OpenedEvent, PrefillEvent, PromptLogprobsEvent, CandidatesEvent,
                                 FetchedEvent, ClosedEvent>;

struct EngineOptions {
  int32_t max_sessions = 64;  // slots of the running batch
  int32_t max_queued = 256;   // opens that wait for admission; more are refused at once
  // Rows of a step, at most the model's max_rows: decode rows first, prefill chunks fill the rest.
  int32_t step_tokens = 256;
  // Capacity of each full-attention pool, in tokens; 0: max(context, max_sessions * context / 4). A
  // window group has a pool that holds the window of every slot.
  int64_t kv_tokens = 0;
  int32_t context_length = 0;  // 0: the model's
  int32_t ahead_tokens = 512;  // promised at admission beyond the tokens given, without max_new
  int32_t max_choices = 16;
  int32_t max_rewind = 128;  // confirmed tokens that one Extend may cut
  int32_t max_run_ahead = 8;
  int32_t max_drafts = 8;    // [0, kMaxDraftLength]; 0: none are made
  bool prefix_cache = true;  // false: no page outlives its sessions
  Nanos max_retain = 600 * kNanosPerSecond;
  // How many times as long a step with decode rows may take for the prefill rows beside them, by
  // what earlier steps took; 0: no limit but step_tokens. Else at least 1.
  double decode_slowdown = 1.75;
  Nanos drain_spread = 2 * kNanosPerSecond;  // Drain hands its sessions over evenly within this
  uint64_t hash_seed = 0;                    // of the prefix index: secret, one per process
  uint64_t hash_mask =
      ~uint64_t{0};  // bits of the index's hashes that count; tests force collisions
  kernels::KvFormat kv_format = kernels::KvFormat::kF32;
};

struct EngineLoad {
  int32_t running = 0;
  int32_t queued = 0;
  int64_t free_pages = 0;
  int64_t total_pages = 0;
  int64_t cached_pages = 0;  // free for the taking, but hold tokens that may be asked for again
  int64_t queued_prefill_tokens = 0;
  int64_t steps = 0;  // launched so far
  // Since the start:
  int64_t prefilled_tokens = 0;  // prompt rows that were run
  int64_t reused_tokens = 0;     // prompt tokens found in the cache
  int64_t evicted_pages = 0;
  int64_t preempted = 0;  // sessions
  int64_t drafted_tokens = 0;
  int64_t taken_drafts = 0;  // of those: they were drawn
  int64_t cuts = 0;          // Extends that cut
  Nanos last_step_nanos = 0;
};

// A collected step. Rows of drafts and of fetches are decode rows.
struct StepReport {
  Nanos nanos = 0;  // that it took, without those that it waited for the step before it
  int32_t decode_rows = 0;
  int32_t prefill_rows = 0;
};

struct EngineState;

class DecodeEngine final {
 public:
  // model and ops must outlive the engine. defined_bits: ids that the tokenizer defines, empty:
  // all. INVALID_ARGUMENT: an option, its value and its range. RESOURCE_EXHAUSTED: the pools do not
  // fit, with the formula.
  static absl::StatusOr<std::unique_ptr<DecodeEngine>> Make(const EngineOptions& options,
                                                            std::vector<uint32_t> defined_bits,
                                                            Model& model, kernels::Ops& ops);
  ~DecodeEngine();
  DecodeEngine(const DecodeEngine&) = delete;
  DecodeEngine& operator=(const DecodeEngine&) = delete;

  void Open(OpenCommand command, Nanos now);
  void Extend(const ExtendCommand& command, Nanos now);
  void Fetch(const FetchCommand& command, Nanos now);
  void Close(const CloseCommand& command, Nanos now);
  // The stream is the lease: its sessions are freed, and no event for it follows.
  void CloseStream(int64_t stream);
  // No new opens; what is queued is closed with kDraining at once, the sessions that run one by
  // one, the youngest first, evenly over drain_spread; what ends in the meantime ends as ever.
  void Drain(Nanos now);

  // What Launch begins with: opens that wait and find a place are admitted. Where Launch computes
  // the step itself, their Opened can be on its way meanwhile.
  void Admit(Nanos now);
  // Starts a step with the work there is. False: nothing to do, or two steps are in flight.
  bool Launch(Nanos now);
  // Blocks until the oldest launched step is done or the device is lost, so that Collect can be
  // told when that was.
  void Wait();
  // Finishes the oldest launched step, waiting for it if need be. False: none is in flight.
  // INTERNAL: the device is lost; the engine is of no more use.
  absl::StatusOr<bool> Collect(Nanos now);
  bool has_events() const;
  std::vector<EngineEvent> TakeEvents();

  EngineLoad load() const;
  // The last that was collected.
  StepReport last_step() const;
  // Sessions running and queued, 0: none lives.
  int32_t num_live() const;
  // For simulators and benches: read only.
  const KvCache& cache() const;
  // For people: how many tokens and sessions fit, and the formula.
  std::string CapacityText() const;
  // Holds at any time: every page has exactly the owners that the sessions show, free and used
  // pages are all there are, every promise of pages is a session's. INTERNAL says what does not.
  absl::Status CheckInvariants() const;
  // Every page is free and no session lives, or what does not hold.
  absl::Status CheckQuiescent() const;

 private:
  explicit DecodeEngine(std::unique_ptr<EngineState> state);
  std::unique_ptr<EngineState> state_;
};

}  // namespace tandem
