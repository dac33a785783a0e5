// One step of a DecodeEngine: which rows, their pages, uploads, launch.
#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/hash.h"
#include "engine/base/planted_bugs.h"
#include "engine/base/status.h"
#include "engine/decode_engine_state.h"

namespace tandem {

namespace {

// Rows of this many tokens that came at once are still decode rows.
constexpr int32_t kMaxDecodeRows = 8;

// A session whose lists did not decide gets longer ones from here on: K' doubled, then K.
void WidenLists(kernels::DrawParams* params) {
  if (params->num_perturbed < kernels::kMaxPerturbed) {
    params->num_perturbed = std::min(2 * params->num_perturbed, kernels::kMaxPerturbed);
  } else {
    params->num_top = std::min(2 * params->num_top, kernels::kMaxTop);
  }
}

}  // namespace

// Rows that the session can run now, a fetch aside.
int32_t EngineState::PendingRows(const Session& session) const {
  const int32_t known = static_cast<int32_t>(session.tokens.size());
  switch (session.phase) {
    case Phase::kLeader:
      return known - 1 - session.computed;
    case Phase::kRunning: {
      // The row that gives the last position to be decided stands at limit - 2.
      const int32_t ahead = Planted(Bug::kRunAheadUnbounded) ? session.limit : session.run_ahead;
      const int32_t end = std::min(session.confirmed + ahead, session.limit - 1);
      if (session.computed < known) return std::min(known, end) - session.computed;
      // The row of the draw that is in flight.
      const bool in_flight = session.computed == known && !session.is_undecided;
      return in_flight && session.computed < end ? 1 : 0;
    }
    case Phase::kQueued:
    case Phase::kWaiting:
    case Phase::kClosed:
      return 0;
  }
  return 0;
}

// Looks again for pages of a prompt that is still to be computed, where others were indexed since.
void EngineState::ReuseCachedPages(Session* session) {
  const int64_t indexed = cache.counters().indexed_pages;
  const bool is_prompt = session->computed + 1 < session->opened_length &&
                         session->confirmed >= session->opened_length;
  if (!is_prompt || WantsPromptRows(*session) || session->computed % kernels::kPageTokens != 0 ||
      std::exchange(session->seen_indexed_pages, indexed) == indexed) {
    return;
  }
  const std::span prompt = std::span(session->tokens).first(session->opened_length);
  const int32_t found = cache.Reuse(prompt, session->computed, &session->pages, &staging.copies);
  if (found == session->computed) return;
  reused_tokens += found - session->computed;
  session->cached += found - session->computed;
  session->computed = found;
  // No row of it may be in flight: its pages would not end at a whole page.
  session->collected = found;
  events.emplace_back(
      PrefillEvent{session->handle, found, session->opened_length, session->cached});
}

void EngineState::FindRunnable() {
  staging.runnable.clear();
  staging.num_decodes = 0;
  for (Session* session : by_slot) {
    if (session == nullptr || session->phase == Phase::kClosed) continue;
    int32_t num_rows = PendingRows(*session);
    if (num_rows > kMaxDecodeRows) {
      ReuseCachedPages(session);
      num_rows = PendingRows(*session);
    }
    if (!session->fetches.empty()) num_rows = 1;
    if (num_rows <= 0) continue;
    const bool is_prefill = num_rows > kMaxDecodeRows ||
                            (num_rows > 1 && session->computed + 1 < session->opened_length);
    staging.runnable.push_back({session->slot, session->handle.stream, session->priority,
                                session->serial, num_rows, is_prefill});
    if (!is_prefill) ++staging.num_decodes;
  }
  if (options.max_drafts > 0) PlanDrafts();
  BoundPromptRows();
}

// Makes the promises of the session reach `to`. Where no page is left, the youngest session that
// grows goes; its pages may come back only with a step in flight, for which the session waits.
EngineState::Growth EngineState::Grow(int32_t to, Session* session) {
  while (!cache.Extend(&session->pages, to)) {
    int64_t returning = 0;
    staging.growing.clear();
    for (const Session* other : by_slot) {
      if (other == nullptr || other == session) continue;
      const int64_t pages = cache.ReclaimablePages(other->pages);
      if (other->phase == Phase::kClosed) {
        returning += pages;
      } else if (other->grows) {
        staging.growing.push_back({other->age, other->priority, pages, other->slot, other->serial});
      }
    }
    const GrowingSequence needy{session->age, session->priority,
                                cache.ReclaimablePages(session->pages), session->slot,
                                session->serial};
    const std::optional<int32_t> slot =
        ChooseVictim(needy, cache.MissingPages(session->pages, to), returning, staging.growing);
    if (!slot) {
      growth_waits = true;
      return Growth::kWaits;
    }
    ++num_preempted;
    End(by_slot[*slot], ClosedEvent::Reason::kPreempted,
        absl::StrCat("no page is left for position ", to - 1, " of handle ", session->handle.number,
                     ": ", cache.num_free(), " of ", cache.num_pages(), " are free"));
    if (*slot == needy.slot) return Growth::kEnded;
  }
  return Growth::kReady;
}

// Pages for rows [from, to).
EngineState::Growth EngineState::PrepareRows(int32_t from, int32_t to, Session* session) {
  const Growth growth = Grow(to, session);
  if (growth != Growth::kReady) return growth;
  const int32_t lowest_row = std::max(0, session->longest - options.max_rewind - 1);
  cache.PrepareWrite(from, to, session->computed, std::min(from, lowest_row), &session->pages,
                     &staging.copies);
  return Growth::kReady;
}

// Makes the slot's tokens those of the session, where the draw on the device did not do it already.
void EngineState::UploadTokens(Session* session) {
  const int32_t length = static_cast<int32_t>(session->tokens.size());
  if (session->uploaded == length) return;
  slots->SetTokens(session->slot, session->uploaded,
                   std::span(session->tokens).subspan(session->uploaded));
  session->uploaded = length;
}

void EngineState::StageRows(int32_t num_rows, Session* session, Step* step) {
  const int32_t from = session->computed;
  const int32_t known = static_cast<int32_t>(session->tokens.size());
  int32_t to = from + num_rows;
  // Nobody gives way to drafts.
  if (from < known && to > known && cache.MissingPages(session->pages, to) > 0) to = known;
  if (PrepareRows(from, to, session) != Growth::kReady) return;
  UploadTokens(session);
  const int32_t num_drafts = from < known && to > known ? to - known : 0;
  if (num_drafts > 0) UploadDrafts(to, session);
  for (int32_t position = from; position < to; ++position) {
    staging.slot.push_back(session->slot);
    // The row of a draw in flight takes position and token from the slot.
    staging.position.push_back(from == known ? -1 : position);
  }
  StagePromptRows(from, to, static_cast<int32_t>(staging.slot.size()) - (to - from), session, step);
  session->computed = to;
  session->last_step = step->number;
  session->computed_after[step->number % 2] = to;
  step->sessions.push_back(session);
  const int32_t num_prompt_rows = std::max(0, std::min(to, session->opened_length) - from);
  prefilled_tokens += num_prompt_rows;
  if (to >= known && session->phase == Phase::kRunning) {
    for (int32_t i = 0; i <= num_drafts; ++i) {
      const int32_t behind = num_drafts - i;
      staging.logits_rows.push_back(static_cast<int32_t>(staging.slot.size()) - 1 - behind);
      step->rows.push_back({session, session->generation, to - behind, num_drafts,
                            session->match.length, i, behind > 0 ? staging.drafts[i] : -1});
    }
    step->lists.max_top = std::max(step->lists.max_top, session->params.num_top);
    step->lists.max_perturbed = std::max(step->lists.max_perturbed, session->params.num_perturbed);
    step->lists.has_raw |= session->params.want_raw;
  } else if (to < session->opened_length) {
    step->prefills.push_back({session, to});
  }
}

void EngineState::StageFetch(Session* session, Step* step) {
  const FetchCommand& command = session->fetches.front();
  const int32_t row = command.position - 1;
  if (PrepareRows(row, row + 1, session) != Growth::kReady) return;
  UploadTokens(session);
  const int32_t index = static_cast<int32_t>(staging.slot.size());
  staging.slot.push_back(session->slot);
  staging.position.push_back(row);
  session->last_step = step->number;
  FetchRecord& record = step->fetches.emplace_back();
  record.session = session;
  if (command.what == FetchCommand::What::kMore) {
    record.lists_row = static_cast<int32_t>(staging.list_fetch_rows.size());
    staging.list_fetch_rows.push_back(index);
    staging.list_fetch_sessions.push_back(session);
    step->fetch_lists.max_top = std::max(step->fetch_lists.max_top, command.num_top);
    step->fetch_lists.max_perturbed =
        std::max(step->fetch_lists.max_perturbed, command.num_perturbed);
    step->fetch_lists.has_raw |= session->params.want_raw;
    kernels::DrawParams params = session->params;
    params.num_top = command.num_top;
    params.num_perturbed = command.num_perturbed;
    slots->SetParams(session->slot, params);
    WidenLists(&session->params);
  } else {
    staging.raw_fetch_rows.push_back(index);
    record.row.resize(vocab_size);
  }
  record.command = std::move(session->fetches.front());
  session->fetches.pop_front();
}

bool EngineState::MayLaunch() const {
  return num_in_flight() < static_cast<int32_t>(steps.size()) && device_status.ok();
}

void EngineState::Admit(Nanos now) {
  if (!MayLaunch()) return;
  if (!Planted(Bug::kQueueIgnoresDeadline)) Expire(now);
  HandOver(now);
  cache.ExpireRetained(now);
  AdmitQueued();
}

bool EngineState::Launch(Nanos now) {
  if (!MayLaunch()) return false;
  Admit(now);
  growth_waits = false;
  ForkReadyGroups();
  FindRunnable();
  FlushCopies();
  const std::span<const PlannedRows> plan =
      planner.Plan(staging.runnable, chunk_limit.MaxPrefillRows(staging.num_decodes));

  Step* step = &step_of(launched + 1);
  step->number = launched + 1;
  step->launched_at = now;
  step->num_decode_rows = 0;
  step->num_prefill_rows = 0;
  step->sessions.clear();
  step->rows.clear();
  step->fetches.clear();
  step->prefills.clear();
  step->prompts.clear();
  for (HostLists* host : {&step->lists, &step->fetch_lists, &step->prompt_lists}) {
    host->max_top = 0;
    host->max_perturbed = 0;
    host->has_raw = false;
    host->has_next = false;
  }
  staging.slot.clear();
  staging.position.clear();
  staging.logits_rows.clear();
  staging.list_fetch_rows.clear();
  staging.prompt_rows.clear();
  staging.raw_fetch_rows.clear();
  staging.list_fetch_sessions.clear();
  staging.prompt_sessions.clear();
  for (const PlannedRows& planned : plan) {
    Session* session = by_slot[planned.slot];
    if (session == nullptr || session->phase == Phase::kClosed) continue;  // preempted meanwhile
    const size_t num_staged = staging.slot.size();
    const size_t num_logits = staging.logits_rows.size();
    if (session->fetches.empty()) {
      StageRows(planned.num_rows, session, step);
    } else {
      StageFetch(session, step);
    }
    const int32_t num_rows = static_cast<int32_t>(staging.slot.size() - num_staged);
    const bool is_decode =
        num_rows <= 1 || staging.logits_rows.size() - num_logits == static_cast<size_t>(num_rows);
    (is_decode ? step->num_decode_rows : step->num_prefill_rows) += num_rows;
  }
  if (staging.slot.empty()) return false;
  ++launched;
  EnqueueStep(step);
  return true;
}

// Before a page that a copy reads or writes can have another owner.
void EngineState::FlushCopies() {
  for (const PageCopy& copy : staging.copies) pools->Copy(copy);
  staging.copies.clear();
}

void EngineState::EnqueueStep(Step* step) {
  FlushCopies();
  for (Session* session : by_slot) {
    if (session != nullptr && session->last_step == step->number) {
      pools->UpdateTable(session->slot, &session->pages);
    }
  }
  const int32_t num_sessions = static_cast<int32_t>(staging.logits_rows.size());
  const int32_t num_lists = static_cast<int32_t>(staging.list_fetch_rows.size());
  const bool is_decode = num_sessions == static_cast<int32_t>(staging.slot.size());
  if (is_decode && ops.info().records) PadDecodeRows();
  const int32_t num_draws = static_cast<int32_t>(staging.logits_rows.size());
  std::vector<int32_t>& all = staging.logits_rows;
  all.insert(all.end(), staging.list_fetch_rows.begin(), staging.list_fetch_rows.end());
  all.insert(all.end(), staging.prompt_rows.begin(), staging.prompt_rows.end());
  all.insert(all.end(), staging.raw_fetch_rows.begin(), staging.raw_fetch_rows.end());
  TANDEM_CHECK(static_cast<int32_t>(all.size()) <= max_logits_rows)
      << all.size() << " logits rows of " << max_logits_rows;
  // A decode step's rows are mostly those of the step before, which the device still has.
  const auto upload = [this](const kernels::Buffer& device, const std::vector<int32_t>& host,
                             std::vector<int32_t>* uploaded) {
    if (host.size() <= uploaded->size() && std::equal(host.begin(), host.end(), uploaded->begin()))
      return;
    ops.CopyToDevice(device.data(), host.data(),
                     static_cast<int64_t>(host.size() * sizeof(int32_t)));
    *uploaded = host;
  };
  upload(rows_slot, staging.slot, &uploaded_slot);
  upload(rows_position, staging.position, &uploaded_position);
  upload(logits_rows, all, &uploaded_logits_rows);

  ForwardArgs forward;
  forward.rows.num_rows = static_cast<int32_t>(staging.slot.size());
  forward.rows.slot = rows_slot.as<int32_t>();
  forward.rows.position = rows_position.as<int32_t>();
  forward.rows.token = rows_token.as<int32_t>();
  forward.rows.row_position = rows_row_position.as<int32_t>();
  forward.slots = slots->state();
  forward.pools = pools->pools();
  forward.num_logits_rows = static_cast<int32_t>(all.size());
  forward.logits_rows = logits_rows.as<int32_t>();
  forward.logits = logits.as<float>();
  kernels::CandidatesArgs args;
  args.rows = forward.rows;
  args.slots = forward.slots;
  args.num_logits_rows = num_draws;
  args.logits_rows = forward.logits_rows;
  args.logits = forward.logits;
  args.advance = true;
  const auto enqueue = [&] {
    model.Forward(forward);
    if (num_draws > 0) lists->Compute(args, step->lists);
  };
  if (!is_decode) {
    enqueue();
  } else if (ops.BeginGraph(GraphKey(num_draws, step->lists))) {
    enqueue();
    ops.EndGraph();
  }
  DownloadNonFinite(step);
  if (num_sessions > 0) lists->Download(num_sessions, &step->lists);
  if (num_lists > 0) {
    args.num_logits_rows = num_lists;
    args.logits_rows = forward.logits_rows + num_sessions;
    args.logits = forward.logits + int64_t{num_sessions} * vocab_size;
    args.advance = false;
    fetch_lists->Compute(args, step->fetch_lists);
    fetch_lists->Download(num_lists, &step->fetch_lists);
    for (const Session* session : staging.list_fetch_sessions) {
      slots->SetParams(session->slot, session->params);
    }
  }
  args.logits_rows = forward.logits_rows;
  args.logits = forward.logits;
  EnqueuePromptLists(num_sessions + num_lists, args, step);
  int64_t line = num_sessions + num_lists + static_cast<int64_t>(staging.prompt_rows.size());
  for (FetchRecord& fetch : step->fetches) {
    if (fetch.row.empty()) continue;
    ops.CopyToHost(fetch.row.data(), forward.logits + line++ * vocab_size,
                   int64_t{vocab_size} * static_cast<int64_t>(sizeof(float)));
  }
  step->mark = ops.Mark();
}

// What a checked model has found of the step's rows.
void EngineState::DownloadNonFinite(Step* step) {
  if (model.non_finite() == nullptr) return;
  step->checked_rows.clear();
  for (const int32_t slot : staging.slot) {
    Session* const session = slot < 0 ? nullptr : by_slot[slot];
    step->checked_rows.push_back({session, session == nullptr ? 0 : session->generation});
  }
  step->non_finite.resize(staging.slot.size());
  ops.CopyToHost(step->non_finite.data(), model.non_finite(),
                 static_cast<int64_t>(staging.slot.size() * sizeof(kernels::NonFinite)));
}

// Idle rows up to a round number, each with a logits row of its own, so that few shapes are
// recorded.
void EngineState::PadDecodeRows() {
  const int32_t num_rows = static_cast<int32_t>(staging.slot.size());
  int32_t rounded = 1;
  while (rounded < num_rows) rounded += rounded < 16 ? rounded : rounded < 64 ? 16 : 64;
  rounded = std::min({rounded, max_logits_rows, options.step_tokens});
  for (int32_t row = num_rows; row < rounded; ++row) {
    staging.slot.push_back(-1);
    staging.position.push_back(-1);
    staging.logits_rows.push_back(row);
  }
}

// What a decode step's calls depend on beside this engine's buffers.
uint64_t EngineState::GraphKey(int32_t num_rows, const HostLists& host) const {
  const std::array<uint64_t, 4> parts = {
      reinterpret_cast<uintptr_t>(rows_slot.data()), static_cast<uint64_t>(num_rows),
      static_cast<uint64_t>(host.max_top) << 32 | static_cast<uint64_t>(host.max_perturbed),
      static_cast<uint64_t>(host.has_raw)};
  return KeyedHash(0, parts.data(), sizeof(parts));
}

}  // namespace tandem
