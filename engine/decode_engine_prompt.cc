// Logprobs of a prompt's tokens: logits rows of a prefill, and what becomes of them.
#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/status.h"
#include "engine/decode_engine_state.h"

namespace tandem {

// Rows of it are still to be launched. The row of position p is that at p - 1.
bool EngineState::WantsPromptRows(const Session& session) const {
  return session.phase == Phase::kLeader && session.computed + 1 < session.prompt_end;
}

// Cuts the chunks of such prompts to the logits rows that this step's other sessions leave. Each
// has one at least: that of its slot, which decides nothing yet.
void EngineState::BoundPromptRows() {
  int32_t num_wanting = 0;
  int32_t left = max_logits_rows;
  for (const RunnableSequence& sequence : staging.runnable) {
    if (WantsPromptRows(*by_slot[sequence.slot])) {
      ++num_wanting;
    } else {
      left -= sequence.is_prefill ? 1 : sequence.num_rows;
    }
  }
  if (num_wanting == 0) return;
  left = std::max(left, num_wanting);
  for (RunnableSequence& sequence : staging.runnable) {
    const Session& session = *by_slot[sequence.slot];
    if (!WantsPromptRows(session)) continue;
    const int32_t num_before = std::max(0, session.prompt_begin - 1 - session.computed);
    const int32_t share = left / num_wanting--;
    sequence.num_rows = std::min(sequence.num_rows, num_before + share);
    left -= std::max(0, sequence.num_rows - num_before);
  }
}

// Of rows [from, to) of the session, the first of which is the step's row first_row.
void EngineState::StagePromptRows(int32_t from, int32_t to, int32_t first_row, Session* session,
                                  Step* step) {
  const int32_t begin = std::max(from, session->prompt_begin - 1);
  const int32_t end = std::min(to, session->prompt_end - 1);
  if (session->phase != Phase::kLeader || begin >= end) return;
  for (int32_t row = begin; row < end; ++row) {
    staging.prompt_rows.push_back(first_row + row - from);
    step->prompts.push_back({session, row + 1});
  }
  kernels::DrawParams params;  // no edits, no lists: the raw part alone
  params.num_top = 0;
  params.num_perturbed = 0;
  params.num_raw_top = session->prompt_raw_top;
  params.want_raw = true;
  slots->SetParams(session->slot, params);
  staging.prompt_sessions.push_back(session);
}

// Lists for the prompt rows, which are args' logits rows from first_row on.
void EngineState::EnqueuePromptLists(int32_t first_row, kernels::CandidatesArgs args, Step* step) {
  const int32_t num_rows = static_cast<int32_t>(staging.prompt_rows.size());
  if (num_rows == 0) return;
  args.num_logits_rows = num_rows;
  args.logits_rows += first_row;
  args.logits += int64_t{first_row} * vocab_size;
  args.advance = false;
  step->prompt_lists.has_raw = true;
  step->prompt_lists.has_next = true;
  // The copies of the lists of fetches are enqueued, so that their place is free.
  fetch_lists->Compute(args, step->prompt_lists);
  fetch_lists->Download(num_rows, &step->prompt_lists);
  for (const Session* session : staging.prompt_sessions) {
    slots->SetParams(session->slot, session->params);
  }
}

// Rows of a choice that ends are those of the first that lives, forked or not: of its prompt
// nothing else is launched. Also those of the step that is being put together.
void EngineState::LeavePromptRows(const Session* session) {
  if (session->prompt_end == 0) return;
  Session* heir = nullptr;
  for (Step& step : steps) {
    for (PromptRecord& record : step.prompts) {
      if (record.session != session) continue;
      if (heir == nullptr) heir = FirstLiveOf(session->group);
      if (heir == nullptr) return;
      record.session = heir;
      heir->last_step = std::max(heir->last_step, step.number);  // it stays as long as the record
    }
  }
}

EngineState::Session* EngineState::FirstLiveOf(int64_t group) const {
  for (const auto& [serial, session] : sessions) {
    if (session->group == group && session->phase != Phase::kClosed) return session.get();
  }
  return nullptr;
}

void EngineState::CollectPrompts(const Step& step) {
  const auto add_line = [](const std::vector<kernels::RawEntry>& lists, size_t row, int32_t length,
                           int32_t count, std::vector<kernels::RawEntry>* out) {
    const auto begin = lists.begin() + static_cast<int64_t>(row) * length;
    out->insert(out->end(), begin, begin + count);
  };
  PromptLogprobsEvent event;
  const auto send = [&] {
    if (event.logprobs.size() > 0) events.emplace_back(std::move(event));
    event = {};
  };
  for (size_t row = 0; row < step.prompts.size();) {
    const PromptRecord& record = step.prompts[row];
    if (record.session->phase == Phase::kClosed) {
      ++row;
      continue;
    }
    PromptLogprobs& logprobs = event.logprobs;
    if (event.handle != record.session->handle || logprobs.size() == kMaxPromptLogprobs) send();
    const kernels::RowSummary& summary = step.prompt_lists.summary[row];
    if (summary.first_nonfinite >= 0) {
      send();
      End(record.session, ClosedEvent::Reason::kNonFinite,
          absl::StrCat("the logit of id ", summary.first_nonfinite, " for position ",
                       record.position, " is not finite"));
      continue;  // the row is the next leader's now, if there is one
    }
    if (logprobs.size() == 0) {
      event.handle = record.session->handle;
      logprobs.position = record.position;
      logprobs.num_raw_top = summary.num_raw_top;
      logprobs.num_reported = summary.num_reported;
    }
    logprobs.tokens.push_back(step.prompt_lists.next[row]);
    add_line(step.prompt_lists.raw_top, row, kernels::kMaxRawTop, logprobs.num_raw_top,
             &logprobs.raw_top);
    add_line(step.prompt_lists.reported, row, kernels::kMaxReported, logprobs.num_reported,
             &logprobs.reported);
    logprobs.raw_max.push_back(summary.raw_max);
    logprobs.raw_total.push_back(summary.raw_total);
    ++row;
  }
  send();
}

}  // namespace tandem
