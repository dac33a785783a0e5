// Drafts of a DecodeEngine: which sessions verify some in the next step, and what became of them.
#include <algorithm>
#include <span>
#include <utility>

#include "engine/base/planted_bugs.h"
#include "engine/decode_engine_state.h"

namespace tandem {
namespace {

// What a step with drafts costs beside its rows, in tokens, where steps overlap. Others go on
// without the session until the host has read the results: it loses a turn. If there are none, or
// they wait like it, the device idles for that time.
constexpr double kTurn = 1;
constexpr double kIdle = 0.25;

}  // namespace

// What 1, 2, .. more rows than num_rows and `turns` turns cost, in tokens: a token is worth its
// share of a step in which all running sessions have a row. In this step they may be few, as the
// others wait for drafts of their own. Rows are free while nothing is known of what steps take.
std::span<const double> EngineState::CostOfDrafts(int32_t num_rows, int32_t most, double turns) {
  const int32_t first = staging.num_decodes;
  // Each number of rows is asked for by many sessions.
  std::vector<double>& nanos = staging.step_nanos;
  while (static_cast<int32_t>(nanos.size()) <= num_rows + most - first) {
    nanos.push_back(chunk_limit.DecodeNanos(first + static_cast<int32_t>(nanos.size())));
  }
  const int32_t running = std::max(first, staging.num_running);
  const double token = chunk_limit.DecodeNanos(running) / running;
  staging.costs.clear();
  for (int32_t d = 1; d <= most; ++d) {
    const double more = nanos[num_rows + d - first] - nanos[num_rows - first];
    staging.costs.push_back(turns + (token > 0 ? std::max(0.0, more / token) : 0));
  }
  return staging.costs;
}

// Most drafts that may stand behind the held tokens and `num_drawn` draws in flight: rows run for
// the first run_ahead tokens that are not confirmed, and none at the limit.
int32_t EngineState::RoomForDrafts(int32_t num_drawn, const Session& session) const {
  const int32_t known = static_cast<int32_t>(session.tokens.size());
  const int32_t ahead = Planted(Bug::kDraftsPassRunAhead) ? session.limit : session.run_ahead;
  const int32_t end = std::min(session.confirmed + ahead, session.limit - 1);
  return std::min(session.max_drafts, end - known - num_drawn);
}

// Gives sessions that are about to run the row of their last token rows for drafts behind it. The
// host has to know the last tokens for that: a session whose last row is in flight lets this step
// pass where drafts are worth it, and verifies some when its draw is there.
void EngineState::PlanDrafts() {
  const int32_t num_sequences = static_cast<int32_t>(staging.runnable.size());
  int32_t num_rows = staging.num_decodes;
  int32_t rows_left = std::min(kMaxDraftRows, options.step_tokens - num_rows);
  bool any_waits = false;
  staging.step_nanos.clear();
  staging.num_running = static_cast<int32_t>(
      std::count_if(by_slot.begin(), by_slot.end(), [](const Session* session) {
        return session != nullptr && session->phase == Phase::kRunning;
      }));
  for (int32_t i = 0; i < num_sequences; ++i) {
    // Whoever comes last may find no row left: turns are taken.
    RunnableSequence& sequence = staging.runnable[(i + launched) % num_sequences];
    Session* session = by_slot[sequence.slot];
    if (session->max_drafts == 0 || session->phase != Phase::kRunning || sequence.is_prefill ||
        !session->fetches.empty()) {
      continue;
    }
    const int32_t known = static_cast<int32_t>(session->tokens.size());
    const bool in_flight = session->computed == known;
    const int32_t most =
        std::min(RoomForDrafts(in_flight ? 1 : 0, *session), std::max(rows_left, 0));
    const int32_t wanted = std::exchange(session->wanted_drafts, 0);
    if (most <= 0 || session->computed < known - 1) continue;
    session->match = session->ngrams.Find(session->tokens);
    if (session->match.length == 0) continue;
    int32_t num_drafts = std::min(wanted, most);
    if (num_drafts == 0) {
      const bool others_go_on = num_in_flight() > 0 && num_sequences > 1;
      const bool overlaps = num_in_flight() > 0 || ops.info().asynchronous;
      const double turns = others_go_on ? kTurn : overlaps ? kIdle : 0;
      const std::span<const double> costs = CostOfDrafts(num_rows, most, turns);
      num_drafts = session->draft_length.Choose(session->match.length, costs);
      if (num_drafts > 0) {
        const double cost = costs[static_cast<size_t>(num_drafts - 1)];
        if (!draft_budget.Allows(cost)) continue;
        draft_budget.Spend(cost);
      }
    }
    if (num_drafts == 0) continue;
    if (in_flight) {
      session->wanted_drafts = num_drafts;
      sequence.num_rows = 0;
      any_waits = true;
      continue;
    }
    sequence.num_rows += num_drafts;
    num_rows += num_drafts;
    rows_left -= num_drafts;
  }
  staging.num_decodes = num_rows;
  if (!any_waits) return;
  std::erase_if(staging.runnable,
                [](const RunnableSequence& sequence) { return sequence.num_rows == 0; });
}

// Puts the drafts of rows [known, to) behind the tokens in the slot, where the rows find them.
void EngineState::UploadDrafts(int32_t to, Session* session) {
  const int32_t known = static_cast<int32_t>(session->tokens.size());
  staging.drafts.clear();
  NgramDrafts::Continue(session->tokens, session->match, to - known, &staging.drafts);
  slots->SetTokens(session->slot, known, staging.drafts);
  num_drafted += to - known;
}

// A row of a step with drafts was collected, and its draw appended. False: it is not the draft, so
// that the rows behind it ran for another list.
bool EngineState::JudgeDraft(const RowRecord& row, int32_t drawn, Session* session) {
  draft_budget.OnDrawn(1, options.max_sessions - static_cast<int32_t>(free_slots.size()));
  const bool is_last = row.num_before == row.num_drafts;
  const bool is_taken = !is_last && drawn == row.draft;
  if (is_taken) ++num_drafts_taken;
  if (!is_taken && row.num_drafts > 0) {
    session->draft_length.Observe(row.match, row.num_drafts, row.num_before);
    draft_budget.OnTaken(row.num_before);
  }
  return is_last || is_taken;
}

}  // namespace tandem
