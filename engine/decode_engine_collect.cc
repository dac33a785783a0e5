// Results of a step become events; sessions that ended in the meantime give back what they held.
#include <utility>

#include "engine/base/check.h"
#include "engine/base/status.h"
#include "engine/decode_engine_state.h"

namespace tandem {

absl::StatusOr<bool> EngineState::Collect(Nanos now) {
  if (!device_status.ok()) return device_status;
  if (num_in_flight() == 0) return false;
  Step& step = step_of(collected + 1);
  device_status = ops.Finish(step.mark);
  RETURN_IF_ERROR(device_status);
  ++collected;
  last_step_nanos = now - step.launched_at;

  for (const PrefillRecord& prefill : step.prefills) {
    const auto session = sessions.find(prefill.serial);
    if (session == sessions.end() || session->second->phase == Phase::kClosed) continue;
    events.emplace_back(PrefillEvent{session->second->handle, prefill.done, prefill.total});
  }
  for (size_t i = 0; i < step.rows.size(); ++i) CollectRow(step, static_cast<int32_t>(i));
  for (FetchRecord& fetch : step.fetches) CollectFetch(&step, &fetch);

  if (draining) Drain();
  for (Session* session : by_slot) {
    if (session != nullptr) ReleaseIfIdle(session);
  }
  return true;
}

void EngineState::CollectRow(const Step& step, int32_t index) {
  const RowRecord& row = step.rows[index];
  const auto found = sessions.find(row.serial);
  if (found == sessions.end() || found->second->phase == Phase::kClosed) return;
  Session* session = found->second.get();
  const kernels::RowSummary& summary = step.lists.summary[index];
  // The draw stands in the slot unless tokens were uploaded, or a newer row drew, behind it.
  if (session->draw_step == step.number && summary.first_nonfinite < 0 && summary.drawn >= 0) {
    session->device_next = summary.drawn;
    session->device_count = session->uploaded + 1;
  }
  if (session->epoch != row.epoch) return;
  if (summary.first_nonfinite >= 0) {
    End(session, ClosedEvent::Reason::kNonFinite,
        absl::StrCat("the logit of id ", summary.first_nonfinite, " for position ", row.position,
                     " is not finite"));
    return;
  }
  if (static_cast<int32_t>(session->tokens.size()) != row.position) return;  // confirmed meanwhile
  session->drawn = summary.drawn;
  events.emplace_back(
      CandidatesEvent{session->handle, row.position, row.epoch, step.lists.Row(index)});
}

void EngineState::CollectFetch(Step* step, FetchRecord* fetch) {
  const auto found = sessions.find(fetch->serial);
  if (fetch->is_cut || found == sessions.end() || found->second->phase == Phase::kClosed) return;
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
