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
// Run-ahead is 0: after the Candidates of a position the session waits for Extend. The draw stands
// in the slot on the device already; an Extend that names it costs no upload.
//
// Extend. The held list is the confirmed tokens and, behind them, the draw that was sent. Tokens
// that differ from the held list, or no tokens, cut it and carry epoch + 1; all others carry the
// current epoch; anything else is refused. A cut may reach max_rewind below the longest that the
// session has been. Extends that come before the prompt is shared among the choices (or before
// admission) are kept, at most kMaxDeferred, and applied then.
//
// Fetch computes the row of position - 1 again in the next step, as a row of its own. It writes the
// same K and V bits again into a page with one owner (a shared page is copied first). At most
// kMaxFetches wait per session. A Fetch whose position a later Extend cuts stays unanswered.
//
// Choices. One prefill of all tokens but the last; then each choice has the full pages in common, a
// copy of the partial page, and runs the last row itself, with its own draw.
//
// Memory. max_new > 0: everything up to min(context, prompt_length + max_new) is promised at
// admission. max_new == 0: ahead_tokens beyond the tokens given, then page by page; a session that
// cannot grow is closed with kPreempted. Pages and slot of a closed session are free again once the
// last step that it was part of is collected.
//
// Thread-safety: none; one thread owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/model/model.h"
#include "engine/sampling/candidates.h"
#include "engine/sampling/parameters.h"

namespace tandem {

inline constexpr int32_t kMaxDeferred = 16;
inline constexpr int32_t kMaxFetches = 16;

struct SessionHandle {
  int64_t stream = 0;
  uint64_t number = 0;
  friend bool operator==(const SessionHandle&, const SessionHandle&) = default;
  friend auto operator<=>(const SessionHandle&, const SessionHandle&) = default;
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
};

struct OpenedEvent {
  SessionHandle handle;
  int32_t cached_tokens = 0;
};
struct PrefillEvent {  // sent between chunks of a prompt that takes more than one step
  SessionHandle handle;
  int32_t done = 0;
  int32_t total = 0;
};
struct CandidatesEvent {
  SessionHandle handle;
  int32_t position = 0;  // index of the token to be decided
  uint32_t epoch = 0;
  Candidates candidates;  // summary.drawn: the worker's own draw, -1 absent
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
};
using EngineEvent =
    std::variant<OpenedEvent, PrefillEvent, CandidatesEvent, FetchedEvent, ClosedEvent>;

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
  int32_t max_rewind = 128;  // tokens that one Extend may cut
  kernels::KvFormat kv_format = kernels::KvFormat::kF32;
};

struct EngineLoad {
  int32_t running = 0;
  int32_t queued = 0;
  int64_t free_pages = 0;
  int64_t total_pages = 0;
  int64_t queued_prefill_tokens = 0;
  int64_t steps = 0;  // launched so far
  Nanos last_step_nanos = 0;
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
  void Close(const CloseCommand& command);
  // The stream is the lease: its sessions are freed, and no event for it follows.
  void CloseStream(int64_t stream);
  // No new opens; every session is closed with kDraining once its current step is collected.
  void Drain();

  // Starts a step with the work there is. False: nothing to do, or two steps are in flight.
  bool Launch(Nanos now);
  // Finishes the oldest launched step. False: none is in flight. INTERNAL: the device is lost; the
  // engine is of no more use.
  absl::StatusOr<bool> Collect(Nanos now);
  std::vector<EngineEvent> TakeEvents();

  EngineLoad load() const;
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
