// Commands of the peer. Nothing in them is trusted: ids, lengths, positions, epochs and counts are
// checked before use, in 64 bits; what is wrong closes the session that it was for.
#include <algorithm>
#include <limits>

#include "engine/base/check.h"
#include "engine/base/status.h"
#include "engine/decode_engine_state.h"

namespace tandem {
namespace {

using Reason = ClosedEvent::Reason;

absl::Status ValidTokens(const std::vector<int32_t>& tokens, int32_t vocab_size) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocab_size) continue;
    return InvalidArgument("tokens[", i, "] is ", tokens[i], ": ids are 0 to ", vocab_size - 1);
  }
  return absl::OkStatus();
}

std::string Detail(const absl::Status& status) { return std::string(status.message()); }

}  // namespace

// ---- Open ------------------------------------------------------------------------------------

absl::Status EngineState::ValidateOpen(const OpenCommand& command) const {
  const int64_t num_tokens = static_cast<int64_t>(command.tokens.size());
  if (int64_t{command.first_choice} + command.choices - 1 > std::numeric_limits<uint32_t>::max()) {
    return InvalidArgument("first_choice is ", command.first_choice, ": with ", command.choices,
                           " choices it passes 2^32 - 1");
  }
  if (num_tokens == 0) return InvalidArgument("tokens is empty: at least one is needed");
  if (command.prompt_length < 1 || command.prompt_length > num_tokens) {
    return InvalidArgument("prompt_length is ", command.prompt_length, ": it must be 1 to ",
                           num_tokens, ", the number of tokens");
  }
  if (command.max_new < 0) {
    return InvalidArgument("max_new is ", command.max_new, ": it must be at least 0");
  }
  if (num_tokens >= LimitOf(command)) {
    return InvalidArgument("tokens has ", num_tokens, ": fewer than ", LimitOf(command),
                           " are needed (context ", context_length, ", prompt_length ",
                           command.prompt_length, ", max_new ", command.max_new, ")");
  }
  RETURN_IF_ERROR(ValidTokens(command.tokens, vocab_size));
  RETURN_IF_ERROR(Validate(command.sampling, vocab_size));
  if (command.choices > options.max_sessions) {
    return ResourceExhausted("choices is ", command.choices, ": there are ", options.max_sessions,
                             " slots");
  }
  return cache.CanEverAdmit(RequestOf(command, command.choices));
}

// Every handle of the range gets its Closed. REQUIRES a checked range.
void EngineState::RefuseOpen(const OpenCommand& command, Reason reason, const std::string& detail) {
  for (int32_t i = 0; i < command.choices; ++i) {
    const SessionHandle handle{command.first.stream, command.first.number + i};
    if (const auto live = by_handle.find(handle); live != by_handle.end()) {
      End(live->second, reason, detail);
    } else {
      events.emplace_back(ClosedEvent{handle, reason, detail});
    }
  }
}

void EngineState::Open(OpenCommand command, Nanos now) {
  const int32_t choices = command.choices;
  const bool is_range =
      choices >= 1 && choices <= options.max_choices &&
      command.first.number <= std::numeric_limits<uint64_t>::max() - (uint64_t(choices) - 1);
  if (!is_range) {
    command.choices = 1;
    RefuseOpen(command, Reason::kRefused,
               absl::StrCat("choices is ", choices, ": it must be 1 to ", options.max_choices,
                            ", and first handle ", command.first.number, " + choices below 2^64"));
    return;
  }
  for (int32_t i = 0; i < choices; ++i) {
    const SessionHandle handle{command.first.stream, command.first.number + i};
    if (by_handle.contains(handle)) {
      RefuseOpen(command, Reason::kRefused,
                 absl::StrCat("handle ", handle.number, " is opened twice"));
      return;
    }
  }
  if (draining) {
    RefuseOpen(command, Reason::kDraining, "the worker takes no new sessions");
    return;
  }
  if (const absl::Status valid = ValidateOpen(command); !valid.ok()) {
    RefuseOpen(command, Reason::kRefused, Detail(valid));
    return;
  }
  if (command.deadline <= now) {
    RefuseOpen(command, Reason::kExpired, "the deadline has passed");
    return;
  }
  const int64_t id = next_group++;
  if (!queue.Push(id, command.priority)) {
    RefuseOpen(command, Reason::kRefused,
               absl::StrCat("the queue is full: ", options.max_queued, " opens wait"));
    return;
  }
  Group& group = groups[id];
  for (int32_t i = 0; i < choices; ++i) {
    auto session = std::make_unique<Session>();
    session->serial = next_serial++;
    session->handle = {command.first.stream, command.first.number + i};
    session->group = id;
    session->choice = command.first_choice + i;
    session->opened_length = static_cast<int32_t>(command.tokens.size());
    session->longest = session->opened_length;
    session->limit = LimitOf(command);
    session->grows = command.max_new == 0;
    session->deadline = command.deadline;
    group.members.push_back(session.get());
    by_handle.emplace(session->handle, session.get());
    sessions.emplace(session->serial, std::move(session));
  }
  group.command = std::move(command);
}

// ---- Extend ----------------------------------------------------------------------------------

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
  const int64_t confirmed = static_cast<int64_t>(session.tokens.size());
  const int64_t held = confirmed + (session.drawn >= 0 ? 1 : 0);
  const int64_t count = static_cast<int64_t>(command.tokens.size());
  if (command.position < 0 || command.position > held) {
    return InvalidArgument("position must be 0 to ", held, ", the number of tokens held");
  }
  if (command.position + count == 0) return InvalidArgument("no token would be left");
  if (command.position + count > session.limit) {
    return InvalidArgument(count, " tokens pass the limit of ", session.limit);
  }
  RETURN_IF_ERROR(ValidTokens(command.tokens, vocab_size));

  ExtendPlan plan;
  plan.same = command.position;
  const auto held_at = [&](int64_t i) { return i < confirmed ? session.tokens[i] : session.drawn; };
  while (plan.same < command.position + count && plan.same < held &&
         command.tokens[plan.same - command.position] == held_at(plan.same)) {
    ++plan.same;
  }
  const bool differs = plan.same < held && plan.same < command.position + count;
  plan.cuts = differs || count == 0;
  const uint32_t epoch = session.epoch + (plan.cuts ? 1 : 0);
  if (command.epoch != epoch) {
    return InvalidArgument("epoch is ", command.epoch, ": it must be ", epoch, ", since ",
                           plan.cuts ? "it cuts what is held" : "it cuts nothing");
  }
  const int64_t back = session.longest - plan.same;
  if (plan.cuts && back > options.max_rewind) {
    return InvalidArgument("the cut to ", plan.same, " is ", back, " tokens back from ",
                           session.longest, ": at most max_rewind ", options.max_rewind);
  }
  return plan;
}

// Keeps the first `length` tokens of the held list.
void EngineState::Cut(int32_t length, Session* session) {
  std::vector<int32_t>& tokens = session->tokens;
  const int32_t confirmed = static_cast<int32_t>(tokens.size());
  if (length > confirmed) {
    tokens.push_back(session->drawn);  // a cut behind the draw accepts it
  } else {
    tokens.resize(static_cast<size_t>(length));
  }
  session->drawn = -1;
  session->draw_step = 0;
  session->device_next = -1;
  session->uploaded = std::min(session->uploaded, length);
  session->computed = std::min(session->computed, length);
  std::erase_if(session->fetches, [&](const auto& fetch) { return fetch.position > length; });
  for (int64_t number = collected + 1; number <= launched; ++number) {
    for (FetchRecord& fetch : step_of(number).fetches) {
      fetch.is_cut |= fetch.serial == session->serial && fetch.command.position > length;
    }
  }
}

void EngineState::ApplyExtend(const ExtendCommand& command, Session* session) {
  const absl::StatusOr<ExtendPlan> plan = PlanExtend(command, *session);
  if (!plan.ok()) {
    End(session, Reason::kRefused,
        absl::StrCat("extend at ", command.position, ": ", Detail(plan.status())));
    return;
  }
  std::vector<int32_t>& tokens = session->tokens;
  const size_t confirmed = tokens.size();
  if (plan->cuts) {
    session->epoch = command.epoch;
    Cut(static_cast<int32_t>(plan->same), session);
    if (command.tokens.empty()) {  // the last row runs again, for its logits
      session->computed = std::min(session->computed, static_cast<int32_t>(tokens.size()) - 1);
    }
  } else if (command.position > static_cast<int64_t>(confirmed)) {
    tokens.push_back(session->drawn);  // a position behind the draw accepts it
  }
  const size_t num_known = tokens.size() - static_cast<size_t>(command.position);
  if (num_known < command.tokens.size()) {
    tokens.insert(tokens.end(), command.tokens.begin() + static_cast<int64_t>(num_known),
                  command.tokens.end());
  }
  if (tokens.size() > confirmed) session->drawn = -1;
  session->longest = std::max(session->longest, static_cast<int32_t>(tokens.size()));

  // Where the draw in the slot is the token, nothing has to be uploaded.
  const size_t next = static_cast<size_t>(session->uploaded);
  if (session->device_next >= 0 && next < tokens.size() && tokens[next] == session->device_next) {
    ++session->uploaded;
    session->device_next = -1;
  }
}

// ---- Fetch -----------------------------------------------------------------------------------

absl::Status EngineState::ValidateFetch(const FetchCommand& command, const Session& session) const {
  const int64_t lowest = std::max<int64_t>(1, int64_t{session.longest} - options.max_rewind);
  const int64_t highest = session.phase == Phase::kRunning ? session.computed : 0;
  if (command.position < lowest || command.position > highest) {
    return InvalidArgument("position must be ", lowest, " to ", highest,
                           ", within max_rewind and computed");
  }
  if (session.fetches.size() >= kMaxFetches) {
    return ResourceExhausted(kMaxFetches, " fetches wait already");
  }
  switch (command.what) {
    case FetchCommand::What::kMore:
      if (command.num_top < 1 || command.num_top > kernels::kMaxTop) {
        return InvalidArgument("num_top is ", command.num_top, ": it must be 1 to ",
                               kernels::kMaxTop);
      }
      if (command.num_perturbed < 1 || command.num_perturbed > kernels::kMaxPerturbed) {
        return InvalidArgument("num_perturbed is ", command.num_perturbed, ": it must be 1 to ",
                               kernels::kMaxPerturbed);
      }
      return absl::OkStatus();
    case FetchCommand::What::kIds:
      if (command.ids.empty() || command.ids.size() > static_cast<size_t>(vocab_size)) {
        return InvalidArgument("ids has ", command.ids.size(), ": it must have 1 to ", vocab_size);
      }
      return ValidTokens(command.ids, vocab_size);
    case FetchCommand::What::kRow:
      return absl::OkStatus();
  }
  return InvalidArgument("what is ", static_cast<int>(command.what), ": it must be 0 to 2");
}

void EngineState::Fetch(const FetchCommand& command, Nanos now) {
  Session* session = Live(command.handle, now);
  if (session == nullptr) return;
  if (const absl::Status valid = ValidateFetch(command, *session); !valid.ok()) {
    End(session, Reason::kRefused,
        absl::StrCat("fetch at ", command.position, ": ", Detail(valid)));
    return;
  }
  session->fetches.push_back(command);
}

// ---- streams, drain --------------------------------------------------------------------------

void EngineState::CloseStream(int64_t stream) {
  std::vector<Session*> ended;
  for (auto it = by_handle.lower_bound({stream, 0});
       it != by_handle.end() && it->first.stream == stream; ++it) {
    ended.push_back(it->second);
  }
  for (Session* session : ended) End(session, Reason::kDone, "");
  std::erase_if(events, [&](const EngineEvent& event) {
    return std::visit([&](const auto& e) { return e.handle.stream == stream; }, event);
  });
}

void EngineState::Drain() {
  draining = true;
  std::vector<Session*> idle;
  for (const auto& [handle, session] : by_handle) {
    if (session->last_step <= collected) idle.push_back(session);
  }
  for (Session* session : idle) End(session, Reason::kDraining, "the worker drains");
}

}  // namespace tandem
