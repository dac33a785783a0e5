// Extend: what a peer says of a session's tokens, and what that changes of the rows in flight.
#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/planted_bugs.h"
#include "engine/base/status.h"
#include "engine/decode_engine_state.h"

namespace tandem {

using Reason = ClosedEvent::Reason;

void EngineState::Extend(const ExtendCommand& command, Nanos now) {
  Session* session = Live(command.handle, now);
  if (session == nullptr) return;
  if (session->phase == Phase::kRunning) {
    ApplyExtend(command, session);
  } else if (session->deferred.size() >= kMaxDeferred) {
    End(session, Reason::kRefused,
        absl::StrCat("more than ", kMaxDeferred, " extends came before the prompt was ready"));
  } else if (static_cast<int64_t>(command.tokens.size()) > session->limit) {
    End(session, Reason::kRefused,
        absl::StrCat("extend has ", command.tokens.size(), " tokens: the session may have ",
                     session->limit));
  } else {
    session->deferred.push_back(command);
  }
}

// What an Extend does to the held list, or why it is refused.
absl::StatusOr<EngineState::ExtendPlan> EngineState::PlanExtend(const ExtendCommand& command,
                                                                const Session& session) const {
  const std::vector<int32_t>& tokens = session.tokens;
  const int64_t held = static_cast<int64_t>(tokens.size());
  const int64_t end = int64_t{command.position} + static_cast<int64_t>(command.tokens.size());
  if (command.position < 0 || command.position > held) {
    return InvalidArgument("position must be 0 to ", held, ", the number of tokens held");
  }
  if (end == 0) return InvalidArgument("no token would be left");
  if (end > session.limit) {
    return InvalidArgument(command.tokens.size(), " tokens pass the limit of ", session.limit);
  }
  RETURN_IF_ERROR(ValidTokens(command.tokens));

  ExtendPlan plan;
  plan.same = command.position;
  while (plan.same < end && plan.same < held &&
         command.tokens[plan.same - command.position] == tokens[plan.same]) {
    ++plan.same;
  }
  const bool differs = plan.same < held && plan.same < end;
  const bool must_cut = differs || command.tokens.empty();
  plan.cuts = command.epoch == session.epoch + 1;
  if (!plan.cuts && (must_cut || command.epoch != session.epoch)) {
    return InvalidArgument("epoch is ", command.epoch, ": it must be ",
                           must_cut ? "" : absl::StrCat(session.epoch, " or "), session.epoch + 1,
                           must_cut ? ", since it cuts what is held" : "");
  }
  const int64_t back = session.longest - plan.same;
  if (plan.cuts && back > options.max_rewind) {
    return InvalidArgument("the cut to ", plan.same, " is ", back, " tokens back from ",
                           session.longest, ": at most max_rewind ", options.max_rewind);
  }
  return plan;
}

// Rows from `position` on run again; what rows in flight give is dropped.
void EngineState::VoidRowsFrom(int32_t position, Session* session) {
  ++session->generation;
  session->is_undecided = false;
  if (Planted(Bug::kCutKeepsComputed)) return;
  session->computed = std::min(session->computed, position);
  session->collected = std::min(session->collected, position);
  for (int32_t& computed : session->computed_after) computed = std::min(computed, position);
}

// Fetches of rows whose tokens before them change stay unanswered.
void EngineState::DropFetchesBehind(int32_t length, Session* session) {
  std::erase_if(session->fetches, [&](const auto& fetch) { return fetch.position > length; });
  for (int64_t number = collected + 1; number <= launched; ++number) {
    for (FetchRecord& fetch : step_of(number).fetches) {
      fetch.is_cut |= fetch.session == session && fetch.command.position > length;
    }
  }
}

void EngineState::ApplyExtend(const ExtendCommand& command, Session* session) {
  const absl::StatusOr<ExtendPlan> plan = PlanExtend(command, *session);
  if (!plan.ok()) {
    End(session, Reason::kRefused,
        absl::StrCat("extend at ", command.position, ": ", std::string(plan.status().message())));
    return;
  }
  std::vector<int32_t>& tokens = session->tokens;
  const int32_t held = static_cast<int32_t>(tokens.size());
  const int32_t end = command.position + static_cast<int32_t>(command.tokens.size());
  const int32_t same = static_cast<int32_t>(plan->same);
  if (plan->cuts) {
    ++num_cuts;
    session->epoch = command.epoch;
    tokens.resize(same);
    session->ngrams.Truncate(same);
    if (!Planted(Bug::kCutKeepsUploaded)) session->uploaded = std::min(session->uploaded, same);
    DropFetchesBehind(same, session);
    // The row of the last token runs again, for the Candidates of the new epoch.
    VoidRowsFrom(std::min(same, end - 1), session);
  } else if (end > held) {
    VoidRowsFrom(held + (Planted(Bug::kIdleRowCounts) ? 1 : 0), session);
  }
  if (end > same) {
    tokens.insert(tokens.end(), command.tokens.begin() + (same - command.position),
                  command.tokens.end());
  }
  session->confirmed = plan->cuts ? end : std::max(session->confirmed, end);
  session->longest = std::max(session->longest, session->confirmed);
  // Pages may not be held for rows that are out of reach.
  const int32_t lowest = session->longest - options.max_rewind;
  std::erase_if(session->fetches, [&](const auto& fetch) { return fetch.position < lowest; });
}

}  // namespace tandem
