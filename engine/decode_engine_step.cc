// One step of a DecodeEngine: which rows, their pages, uploads, launch.
#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/status.h"
#include "engine/decode_engine_state.h"

namespace tandem {

// Rows that the session can run now, a fetch aside.
int32_t EngineState::PendingRows(const Session& session) const {
  const int32_t length = static_cast<int32_t>(session.tokens.size());
  switch (session.phase) {
    case Phase::kLeader:
      return length - 1 - session.computed;
    case Phase::kRunning:
      return length < session.limit ? length - session.computed : 0;
    case Phase::kQueued:
    case Phase::kWaiting:
    case Phase::kClosed:
      return 0;
  }
  return 0;
}

void EngineState::FindRunnable() {
  staging.runnable.clear();
  for (const Session* session : by_slot) {
    if (session == nullptr || session->phase == Phase::kClosed) continue;
    const int32_t num_rows = session->fetches.empty() ? PendingRows(*session) : 1;
    if (num_rows > 0) staging.runnable.push_back({session->slot, session->serial, num_rows});
  }
}

// Pages for rows [from, to). False: the session could not grow and is closed.
bool EngineState::PrepareRows(int32_t from, int32_t to, Session* session) {
  if (!cache.Extend(&session->pages, to)) {
    End(session, ClosedEvent::Reason::kPreempted,
        absl::StrCat("no page is left for position ", to - 1, ": ", cache.num_free(), " of ",
                     cache.num_pages(), " are free"));
    return false;
  }
  const int32_t lowest_row = std::max(0, session->longest - options.max_rewind - 1);
  cache.PrepareWrite(from, to, session->computed, std::min(from, lowest_row), &session->pages,
                     &staging.copies);
  return true;
}

// Makes the slot's tokens those of the session, where the draw on the device did not do it already.
void EngineState::UploadTokens(Session* session) {
  const int32_t length = static_cast<int32_t>(session->tokens.size());
  if (session->uploaded == length && session->device_count == length) return;
  slots->SetTokens(session->slot, session->uploaded,
                   std::span(session->tokens).subspan(session->uploaded));
  session->uploaded = length;
  session->device_count = length;
  session->device_next = -1;
  session->draw_step = 0;
}

void EngineState::StageRows(int32_t num_rows, Session* session, Step* step) {
  const int32_t from = session->computed;
  const int32_t to = from + num_rows;
  if (!PrepareRows(from, to, session)) return;
  UploadTokens(session);
  const int32_t length = static_cast<int32_t>(session->tokens.size());
  // A row that continues takes position and token from the slot.
  const bool continues = num_rows == 1 && to == length;
  for (int32_t position = from; position < to; ++position) {
    staging.slot.push_back(session->slot);
    staging.position.push_back(continues ? -1 : position);
  }
  session->computed = to;
  session->last_step = step->number;
  if (to == length) {
    staging.logits_rows.push_back(static_cast<int32_t>(staging.slot.size()) - 1);
    step->rows.push_back({session->serial, session->epoch, length});
    step->lists.max_top = std::max(step->lists.max_top, session->params.num_top);
    step->lists.max_perturbed = std::max(step->lists.max_perturbed, session->params.num_perturbed);
    step->lists.has_raw |= session->params.want_raw;
    session->device_count = -1;
    session->draw_step = step->number;
  } else if (to < session->opened_length) {
    step->prefills.push_back({session->serial, to, session->opened_length});
  }
}

void EngineState::StageFetch(Session* session, Step* step) {
  const FetchCommand& command = session->fetches.front();
  const int32_t row = command.position - 1;
  if (!PrepareRows(row, row + 1, session)) return;
  const int32_t index = static_cast<int32_t>(staging.slot.size());
  staging.slot.push_back(session->slot);
  staging.position.push_back(row);
  session->last_step = step->number;
  FetchRecord& record = step->fetches.emplace_back();
  record.serial = session->serial;
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
  } else {
    staging.raw_fetch_rows.push_back(index);
    record.row.resize(vocab_size);
  }
  record.command = std::move(session->fetches.front());
  session->fetches.pop_front();
}

bool EngineState::Launch(Nanos now) {
  if (num_in_flight() == static_cast<int32_t>(steps.size()) || !device_status.ok()) return false;
  Expire(now);
  if (draining) return false;
  AdmitQueued();
  ForkReadyGroups();
  FindRunnable();
  const std::span<const PlannedRows> plan = planner.Plan(staging.runnable);

  Step* step = &step_of(launched + 1);
  step->number = launched + 1;
  step->launched_at = now;
  step->rows.clear();
  step->fetches.clear();
  step->prefills.clear();
  for (HostLists* host : {&step->lists, &step->fetch_lists}) {
    host->max_top = 0;
    host->max_perturbed = 0;
    host->has_raw = false;
  }
  staging.slot.clear();
  staging.position.clear();
  staging.logits_rows.clear();
  staging.list_fetch_rows.clear();
  staging.raw_fetch_rows.clear();
  staging.list_fetch_sessions.clear();
  for (const PlannedRows& planned : plan) {
    Session* session = by_slot[planned.slot];
    if (session->fetches.empty()) {
      StageRows(planned.num_rows, session, step);
    } else {
      StageFetch(session, step);
    }
  }
  if (staging.slot.empty()) return false;
  ++launched;
  Enqueue(step);
  return true;
}

void EngineState::Enqueue(Step* step) {
  for (const PageCopy& copy : staging.copies) pools->Copy(copy);
  staging.copies.clear();
  for (Session* session : by_slot) {
    if (session != nullptr && session->last_step == step->number) {
      pools->UpdateTable(session->slot, &session->pages);
    }
  }
  const int32_t num_sessions = static_cast<int32_t>(staging.logits_rows.size());
  const int32_t num_lists = static_cast<int32_t>(staging.list_fetch_rows.size());
  std::vector<int32_t>& all = staging.logits_rows;
  all.insert(all.end(), staging.list_fetch_rows.begin(), staging.list_fetch_rows.end());
  all.insert(all.end(), staging.raw_fetch_rows.begin(), staging.raw_fetch_rows.end());
  const auto upload = [this](const kernels::Buffer& device, const std::vector<int32_t>& host) {
    const int64_t bytes = static_cast<int64_t>(host.size() * sizeof(int32_t));
    if (bytes > 0) ops.CopyToDevice(device.data(), host.data(), bytes);
  };
  upload(rows_slot, staging.slot);
  upload(rows_position, staging.position);
  upload(logits_rows, all);

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
  model.Forward(forward);

  kernels::CandidatesArgs args;
  args.rows = forward.rows;
  args.slots = forward.slots;
  if (num_sessions > 0) {
    args.num_logits_rows = num_sessions;
    args.logits_rows = forward.logits_rows;
    args.logits = forward.logits;
    args.advance = true;
    lists->Compute(args, &step->lists);
  }
  if (num_lists > 0) {
    args.num_logits_rows = num_lists;
    args.logits_rows = forward.logits_rows + num_sessions;
    args.logits = forward.logits + int64_t{num_sessions} * vocab_size;
    args.advance = false;
    fetch_lists->Compute(args, &step->fetch_lists);
    for (const Session* session : staging.list_fetch_sessions) {
      slots->SetParams(session->slot, session->params);
    }
  }
  int64_t line = num_sessions + num_lists;
  for (FetchRecord& fetch : step->fetches) {
    if (fetch.row.empty()) continue;
    ops.CopyToHost(fetch.row.data(), forward.logits + line++ * vocab_size,
                   int64_t{vocab_size} * static_cast<int64_t>(sizeof(float)));
  }
  step->mark = ops.Mark();
}

}  // namespace tandem
