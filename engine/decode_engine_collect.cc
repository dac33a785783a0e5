// Results of a step become events; sessions that ended in the meantime give back what they held.
#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/planted_bugs.h"
#include "engine/base/status.h"
#include "engine/decode_engine_state.h"

namespace tandem {

void EngineState::Wait() {
  if (device_status.ok() && num_in_flight() > 0) {
    device_status = ops.Finish(step_of(collected + 1).mark);
  }
}

absl::StatusOr<bool> EngineState::Collect(Nanos now) {
  Wait();
  RETURN_IF_ERROR(device_status);
  if (num_in_flight() == 0) return false;
  Step& step = step_of(collected + 1);
  ++collected;
  last_step_nanos = now - std::max(step.launched_at, last_collect);
  last_collect = now;
  last_decode_rows = step.num_decode_rows;
  last_prefill_rows = step.num_prefill_rows;
  chunk_limit.Observe(step.num_decode_rows, step.num_prefill_rows, last_step_nanos);

  collecting = true;
  if (model.non_finite() != nullptr) EndNonFinite(step);
  for (const PrefillRecord& prefill : step.prefills) {
    const Session& session = *prefill.session;
    if (session.phase == Phase::kClosed) continue;
    events.emplace_back(
        PrefillEvent{session.handle, prefill.done, session.opened_length, session.cached});
  }
  CollectPrompts(step);
  step.prompts.clear();
  for (Session* session : step.sessions) {
    session->collected = std::max(session->collected, session->computed_after[step.number % 2]);
  }
  for (size_t i = 0; i < step.rows.size(); ++i) CollectRow(step, static_cast<int32_t>(i));
  for (FetchRecord& fetch : step.fetches) CollectFetch(&step, &fetch);
  for (Session* session : step.sessions) {
    if (session->phase != Phase::kClosed) IndexFinalPages(session);
  }
  collecting = false;
  HandOver(now);
  for (Session* session : by_slot) {
    if (session != nullptr) ReleaseIfIdle(session);
  }
  return true;
}

// Sessions with a row in which the checked mode found something. Rows are in ascending positions.
void EngineState::EndNonFinite(const Step& step) {
  for (size_t i = 0; i < step.checked_rows.size(); ++i) {
    const kernels::NonFinite& found = step.non_finite[i];
    Session* const session = step.checked_rows[i].session;
    if (found.output == kernels::CheckedOutput::kNone || session == nullptr) continue;
    const bool is_void = session->generation != step.checked_rows[i].generation;
    if (is_void || session->phase == Phase::kClosed) continue;
    const bool has_layer = found.output != kernels::CheckedOutput::kEmbedding &&
                           found.output != kernels::CheckedOutput::kLogits;
    End(session, ClosedEvent::Reason::kNonFinite,
        absl::StrCat(std::string(Name(found.output)),
                     has_layer ? absl::StrCat(" of layer ", found.layer) : "", ", row of position ",
                     found.position, ": value ", found.index, " is not finite"));
  }
}

void EngineState::CollectRow(const Step& step, int32_t index) {
  const RowRecord& row = step.rows[index];
  Session* session = row.session;
  if (session->phase == Phase::kClosed) {
    if (Planted(Bug::kCloseTwice)) {
      events.emplace_back(ClosedEvent{session->handle, ClosedEvent::Reason::kDone, ""});
    }
    return;
  }
  if (session->generation != row.generation && !Planted(Bug::kOldEpochSent)) return;
  if (static_cast<int32_t>(session->tokens.size()) != row.position) return;
  const kernels::RowSummary& summary = step.lists.summary[index];
  if (summary.first_nonfinite >= 0) {
    End(session, ClosedEvent::Reason::kNonFinite,
        absl::StrCat("the logit of id ", summary.first_nonfinite, " for position ", row.position,
                     " is not finite"));
    return;
  }
  if (summary.drawn >= 0) {
    session->tokens.push_back(summary.drawn);
    if (session->uploaded == row.position) ++session->uploaded;  // the draw stands in the slot
    if (!JudgeDraft(row, summary.drawn, session) && !Planted(Bug::kRejectedRowsSent)) {
      VoidRowsFrom(row.position + (Planted(Bug::kRejectedRowCounts) ? 1 : 0), session);
    }
  } else {  // a row behind it was idle, or has a draft before it
    VoidRowsFrom(row.position + (Planted(Bug::kIdleRowCounts) ? 1 : 0), session);
    session->is_undecided = true;
  }
  Candidates candidates = step.lists.Row(index);
  if (Planted(Bug::kDraftSentAsDrawn) && row.draft >= 0) candidates.summary.drawn = row.draft;
  events.emplace_back(
      CandidatesEvent{session->handle, row.position, session->epoch, std::move(candidates)});
}

void EngineState::CollectFetch(Step* step, FetchRecord* fetch) {
  if (fetch->is_cut || fetch->session->phase == Phase::kClosed) return;
  FetchedEvent event;
  event.handle = fetch->command.handle;
  event.position = fetch->command.position;
  event.what = fetch->command.what;
  switch (fetch->command.what) {
    case FetchCommand::What::kMore:
      event.candidates = step->fetch_lists.Row(fetch->lists_row);
      break;
    case FetchCommand::What::kIds:
      for (const int32_t id : fetch->command.ids) event.values.push_back(fetch->row[id]);
      break;
    case FetchCommand::What::kRow:
      event.values = std::move(fetch->row);
      break;
  }
  events.emplace_back(std::move(event));
}

}  // namespace tandem
