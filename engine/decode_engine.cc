#include "engine/decode_engine.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/status.h"
#include "engine/decode_engine_state.h"

namespace tandem {
namespace {

using kernels::kPageTokens;

constexpr int32_t kMaxSlots = 4096;
constexpr int32_t kMaxPoolPages = 1 << 24;  // pages of a pool

absl::Status InRange(const char* option, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return InvalidArgument(option, " is ", value, ": it must be ", low, " to ", high);
}

absl::Status ValidateOptions(const EngineOptions& options, const Model& model) {
  RETURN_IF_ERROR(InRange("max_sessions", options.max_sessions, 1, kMaxSlots));
  RETURN_IF_ERROR(InRange("max_queued", options.max_queued, 1, INT32_MAX));
  RETURN_IF_ERROR(InRange("step_tokens", options.step_tokens, 1, model.max_rows()));
  RETURN_IF_ERROR(InRange("kv_tokens", options.kv_tokens, 0, int64_t{kMaxPoolPages} * kPageTokens));
  RETURN_IF_ERROR(InRange("context_length", options.context_length, 0, model.context_length()));
  RETURN_IF_ERROR(InRange("ahead_tokens", options.ahead_tokens, 1, INT32_MAX));
  RETURN_IF_ERROR(InRange("max_choices", options.max_choices, 1, kMaxSlots));
  RETURN_IF_ERROR(InRange("max_rewind", options.max_rewind, 1, model.context_length()));
  RETURN_IF_ERROR(InRange("max_run_ahead", options.max_run_ahead, 0, options.max_rewind - 1));
  RETURN_IF_ERROR(InRange("max_drafts", options.max_drafts, 0, kMaxDraftLength));
  RETURN_IF_ERROR(InRange("max_retain", options.max_retain, 0, INT64_MAX / 2));
  RETURN_IF_ERROR(InRange("drain_spread", options.drain_spread, 0, INT64_MAX / 2));
  if (options.decode_slowdown != 0.0 && !(options.decode_slowdown >= 1.0)) {
    return InvalidArgument("decode_slowdown is ", options.decode_slowdown,
                           ": it must be 0 or at least 1");
  }
  return absl::OkStatus();
}

int32_t ContextOf(const EngineOptions& options, const Model& model) {
  return options.context_length > 0 ? options.context_length : model.context_length();
}

CacheOptions CacheOptionsOf(const EngineOptions& options, const Model& model) {
  const int64_t context = ContextOf(options, model);
  const int64_t kv_tokens = options.kv_tokens > 0
                                ? options.kv_tokens
                                : std::max(context, int64_t{options.max_sessions} * context / 4);
  const int64_t context_pages = (context + kPageTokens - 1) / kPageTokens;
  CacheOptions out;
  // Below the longest that was written: rows run ahead of what is confirmed.
  out.max_rewind = options.max_rewind + options.max_run_ahead + 1;
  out.step_tokens = options.step_tokens;
  out.prefix_index = options.prefix_cache;
  out.hash_seed = options.hash_seed;
  out.hash_mask = options.hash_mask;
  for (const LayerGroup& group : model.layer_groups()) {
    int64_t pages = (kv_tokens + kPageTokens - 1) / kPageTokens;
    if (group.window > 0) {
      const int64_t window_pages =
          KvCache::WindowPages(group.window, out.max_rewind, options.step_tokens);
      pages = int64_t{options.max_sessions} * std::min(context_pages, window_pages);
    }
    out.groups.push_back(
        {group.window, static_cast<int32_t>(std::min<int64_t>(pages, kMaxPoolPages))});
  }
  return out;
}

}  // namespace

EngineState::EngineState(const EngineOptions& engine_options, Model& engine_model,
                         kernels::Ops& engine_ops, const CacheOptions& cache_options)
    : options(engine_options),
      model(engine_model),
      ops(engine_ops),
      vocab_size(engine_model.config().vocab_size),
      context_length(ContextOf(engine_options, engine_model)),
      cache(cache_options),
      queue(engine_options.max_queued),
      planner(engine_options.step_tokens),
      chunk_limit(engine_options.decode_slowdown, engine_options.step_tokens),
      by_slot(engine_options.max_sessions, nullptr) {
  for (int32_t slot = 0; slot < options.max_sessions; ++slot) free_slots.insert(slot);
}

// What is enqueued reads and writes memory of the state: it has to end first.
EngineState::~EngineState() {
  ops.Finish(ops.Mark()).IgnoreError();
  ops.DropGraphs();
}

absl::StatusOr<std::unique_ptr<DecodeEngine>> DecodeEngine::Make(const EngineOptions& options,
                                                                 std::vector<uint32_t> defined_bits,
                                                                 Model& model, kernels::Ops& ops) {
  RETURN_IF_ERROR(ValidateOptions(options, model));
  const int32_t vocab_size = model.config().vocab_size;
  if (!defined_bits.empty() && defined_bits.size() != (static_cast<size_t>(vocab_size) + 31) / 32) {
    return InvalidArgument("defined_bits has ", defined_bits.size(), " words for ", vocab_size,
                           " ids");
  }
  for (const LayerGroup& group : model.layer_groups()) {
    RETURN_IF_ERROR(ops.SupportsAttention(model.config().attention, options.kv_format,
                                          model.config().attention_soft_cap, group.window));
  }
  const CacheOptions cache = CacheOptionsOf(options, model);
  auto state = std::make_unique<EngineState>(options, model, ops, cache);
  ASSIGN_OR_RETURN(state->slots, SlotArrays::Make(options.max_sessions, state->context_length,
                                                  vocab_size, defined_bits, ops));
  const int32_t draft_rows = options.max_drafts > 0 ? kMaxDraftRows : 0;
  state->max_logits_rows = std::min(options.max_sessions + draft_rows, options.step_tokens);
  ASSIGN_OR_RETURN(state->lists, DeviceLists::Make(state->max_logits_rows, ops));
  ASSIGN_OR_RETURN(state->fetch_lists, DeviceLists::Make(state->max_logits_rows, ops));
  const int64_t row_bytes = int64_t{options.step_tokens} * 4;
  ASSIGN_OR_RETURN(state->rows_slot, ops.Allocate(row_bytes, "rows of a step"));
  ASSIGN_OR_RETURN(state->rows_position, ops.Allocate(row_bytes, "rows of a step"));
  ASSIGN_OR_RETURN(state->rows_token, ops.Allocate(row_bytes, "rows of a step"));
  ASSIGN_OR_RETURN(state->rows_row_position, ops.Allocate(row_bytes, "rows of a step"));
  const int64_t num_logits_rows = state->max_logits_rows;
  ASSIGN_OR_RETURN(state->logits_rows, ops.Allocate(num_logits_rows * 4, "rows of a step"));
  ASSIGN_OR_RETURN(state->logits, ops.Allocate(num_logits_rows * vocab_size * 4, "logits"));
  absl::StatusOr<std::unique_ptr<PoolArrays>> pools = PoolArrays::Make(
      cache.groups, options.max_sessions, state->context_length, options.kv_format, model, ops);
  if (!pools.ok()) {
    return absl::Status(
        pools.status().code(),
        absl::StrCat(pools.status().message(), " (kv_tokens ", options.kv_tokens, ", max_sessions ",
                     options.max_sessions, ", context ", state->context_length,
                     "; the default of kv_tokens is max(context, max_sessions * "
                     "context / 4))"));
  }
  state->pools = *std::move(pools);
  return std::unique_ptr<DecodeEngine>(new DecodeEngine(std::move(state)));
}

DecodeEngine::DecodeEngine(std::unique_ptr<EngineState> state) : state_(std::move(state)) {}
DecodeEngine::~DecodeEngine() = default;

void DecodeEngine::Open(OpenCommand command, Nanos now) { state_->Open(std::move(command), now); }
void DecodeEngine::Extend(const ExtendCommand& command, Nanos now) { state_->Extend(command, now); }
void DecodeEngine::Fetch(const FetchCommand& command, Nanos now) { state_->Fetch(command, now); }
void DecodeEngine::Close(const CloseCommand& command, Nanos now) { state_->Close(command, now); }
void DecodeEngine::CloseStream(int64_t stream) { state_->CloseStream(stream); }
void DecodeEngine::Drain(Nanos now) { state_->Drain(now); }
void DecodeEngine::Wait() { state_->Wait(); }
void DecodeEngine::Admit(Nanos now) { state_->Admit(now); }
bool DecodeEngine::Launch(Nanos now) { return state_->Launch(now); }
absl::StatusOr<bool> DecodeEngine::Collect(Nanos now) { return state_->Collect(now); }
bool DecodeEngine::has_events() const { return !state_->events.empty(); }
std::vector<EngineEvent> DecodeEngine::TakeEvents() { return std::exchange(state_->events, {}); }

int32_t DecodeEngine::num_live() const { return static_cast<int32_t>(state_->by_handle.size()); }
const KvCache& DecodeEngine::cache() const { return state_->cache; }

EngineLoad DecodeEngine::load() const {
  const EngineState& state = *state_;
  EngineLoad load;
  load.queued_prefill_tokens = state.queued_tokens;
  for (const EngineState::Session* session : state.by_slot) {
    if (session == nullptr || session->phase == EngineState::Phase::kClosed) continue;
    ++load.running;
    const int32_t pending = state.PendingRows(*session);
    if (pending > 1) load.queued_prefill_tokens += pending;
  }
  load.queued = state.queue.size();
  load.free_pages = state.cache.num_free();
  load.total_pages = state.cache.num_pages();
  load.cached_pages = state.cache.num_cached();
  load.steps = state.launched;
  load.last_step_nanos = state.last_step_nanos;
  load.prefilled_tokens = state.prefilled_tokens;
  load.reused_tokens = state.reused_tokens;
  load.evicted_pages = state.cache.counters().evicted_pages;
  load.preempted = state.num_preempted;
  load.drafted_tokens = state.num_drafted;
  load.taken_drafts = state.num_drafts_taken;
  load.cuts = state.num_cuts;
  return load;
}

StepReport DecodeEngine::last_step() const {
  return {state_->last_step_nanos, state_->last_decode_rows, state_->last_prefill_rows};
}

std::string DecodeEngine::CapacityText() const {
  const EngineState& state = *state_;
  std::string text =
      absl::StrCat(state.options.max_sessions, " sessions of up to ", state.context_length,
                   " tokens, ", state.options.step_tokens, " rows a step");
  for (size_t i = 0; i < state.model.layer_groups().size(); ++i) {
    const LayerGroup& group = state.model.layer_groups()[i];
    const int64_t pages = state.cache.pool(i).num_pages();
    absl::StrAppend(&text, "\n", group.layers.size(), " layers, ",
                    group.window > 0 ? absl::StrCat("window ", group.window) : "full attention",
                    ": ", pages, " pages * ", kPageTokens, " = ", pages * kPageTokens,
                    " tokens of ", state.pools->TokenBytes(i),
                    " bytes = ", (pages * kPageTokens * state.pools->TokenBytes(i)) >> 20, " MiB");
  }
  return text;
}

absl::Status DecodeEngine::CheckInvariants() const { return state_->CheckPages(); }

absl::Status DecodeEngine::CheckQuiescent() const {
  RETURN_IF_ERROR(state_->CheckPages());
  if (!state_->sessions.empty() || !state_->groups.empty() || state_->queue.size() != 0) {
    return Internal(state_->sessions.size(), " sessions and ", state_->queue.size(),
                    " queued opens are left");
  }
  if (state_->free_slots.size() != state_->by_slot.size()) {
    return Internal(state_->free_slots.size(), " of ", state_->by_slot.size(), " slots are free");
  }
  if (state_->cache.num_free() != state_->cache.num_pages()) {
    return Internal(state_->cache.num_free(), " of ", state_->cache.num_pages(), " pages are free");
  }
  return absl::OkStatus();
}

}  // namespace tandem
