// Commands of the peer. Nothing in them is trusted: ids, lengths, positions, epochs and counts are
// checked before use, in 64 bits; what is wrong closes the session that it was for.
#include <algorithm>
#include <limits>

#include "engine/base/check.h"
#include "engine/base/planted_bugs.h"
#include "engine/base/status.h"
#include "engine/decode_engine_state.h"

namespace tandem {
namespace {

using Reason = ClosedEvent::Reason;

std::string Detail(const absl::Status& status) { return std::string(status.message()); }

}  // namespace

// ---- Open ------------------------------------------------------------------------------------

absl::Status EngineState::ValidTokens(const std::vector<int32_t>& tokens) const {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocab_size) continue;
    return InvalidArgument("tokens[", i, "] is ", tokens[i], ": ids are 0 to ", vocab_size - 1);
  }
  return absl::OkStatus();
}

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
  if (command.run_ahead < 0 || command.run_ahead > options.max_run_ahead) {
    return InvalidArgument("run_ahead is ", command.run_ahead, ": it must be 0 to ",
                           options.max_run_ahead);
  }
  if (command.drafts < 0 || command.drafts > options.max_drafts) {
    return InvalidArgument("drafts is ", command.drafts, ": it must be 0 to ", options.max_drafts);
  }
  if (command.prompt_logprobs_from < 0 || command.prompt_logprobs_from > command.prompt_length) {
    return InvalidArgument("prompt_logprobs_from is ", command.prompt_logprobs_from,
                           ": it must be 0 to ", command.prompt_length, ", the prompt_length");
  }
  if (command.prompt_raw_top < 0 || command.prompt_raw_top > kernels::kMaxRawTop) {
    return InvalidArgument("prompt_raw_top is ", command.prompt_raw_top, ": it must be 0 to ",
                           kernels::kMaxRawTop);
  }
  if (command.salt.size() > static_cast<size_t>(kMaxSalt)) {
    return InvalidArgument("salt has ", command.salt.size(), " bytes: at most ", kMaxSalt);
  }
  if (command.request_id.size() > static_cast<size_t>(kMaxRequestId)) {
    return InvalidArgument("request_id has ", command.request_id.size(), " bytes: at most ",
                           kMaxRequestId);
  }
  if (command.age < 0)
    return InvalidArgument("age is ", command.age, " ns: it must not be negative");
  RETURN_IF_ERROR(ValidTokens(command.tokens));
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
      events.emplace_back(ClosedEvent{handle, reason, detail, command.request_id});
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
  Enqueue(std::move(command), now);
}

void EngineState::Enqueue(OpenCommand command, Nanos now) {
  // Only what has to wait takes a place in the queue.
  if (queue.size() >= options.max_queued) {
    Expire(now);
    AdmitQueued();
  }
  const int64_t id = next_group++;
  const int64_t cost = int64_t{command.choices} * RequestOf(command, 1).length;
  Group& group = groups[id];
  for (int32_t i = 0; i < command.choices; ++i) {
    auto session = std::make_unique<Session>();
    session->serial = next_serial++;
    session->handle = {command.first.stream, command.first.number + i};
    session->request_id = command.request_id;
    session->group = id;
    session->choice = command.first_choice + i;
    session->opened_length = static_cast<int32_t>(command.tokens.size());
    session->longest = session->opened_length;
    session->limit = LimitOf(command);
    session->run_ahead = command.run_ahead;
    session->max_drafts = command.drafts;
    session->grows = command.max_new == 0;
    if (WantsPromptLogprobs(command)) {
      session->prompt_begin = command.prompt_logprobs_from;
      session->prompt_end = command.prompt_length;
      session->prompt_raw_top = command.prompt_raw_top;
    }
    session->priority = command.priority;
    session->age = now - command.age;
    session->deadline = command.deadline;
    if (session->deadline != kNoDeadline) deadlines.emplace(session->deadline, session->serial);
    group.members.push_back(session.get());
    by_handle.emplace(session->handle, session.get());
    sessions.emplace(session->serial, std::move(session));
  }
  queued_tokens += static_cast<int64_t>(command.tokens.size());
  const QueuedRequest request{id, command.first.stream, command.priority, now - command.age, cost};
  group.command = std::move(command);
  if (const std::optional<int64_t> gone = queue.Push(request)) {
    const int64_t held = queue.size(groups.at(*gone).command.first.stream);
    EndGroup(*gone, Reason::kRefused,
             absl::StrCat("the queue is full: ", options.max_queued, " opens wait, ", held,
                          " of this stream"));
  }
}

// ---- Fetch -----------------------------------------------------------------------------------

absl::Status EngineState::ValidateFetch(const FetchCommand& command, const Session& session) const {
  const int64_t lowest = std::max<int64_t>(1, int64_t{session.longest} - options.max_rewind);
  const int64_t known = static_cast<int64_t>(session.tokens.size());
  const int64_t highest =
      session.phase == Phase::kRunning ? std::min<int64_t>(session.computed, known) : 0;
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
      return ValidTokens(command.ids);
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

// ---- the end ---------------------------------------------------------------------------------

void EngineState::Close(const CloseCommand& command, Nanos now) {
  const auto found = by_handle.find(command.handle);
  if (found == by_handle.end()) return;
  Session* session = found->second;
  if (session->phase == Phase::kQueued && Planted(Bug::kQueuedCloseLost)) return;
  if (command.retain < 0 || command.retain > options.max_retain) {
    End(session, Reason::kRefused,
        absl::StrCat("retain is ", command.retain, " ns: it must be 0 to ", options.max_retain));
    return;
  }
  if (command.retain > 0) session->retain_until = now + command.retain;
  End(session, Reason::kDone, "");
}

void EngineState::CloseStream(int64_t stream) {
  std::vector<Session*> ended;
  for (const auto& [serial, session] : sessions) {
    if (session->handle.stream == stream && session->phase != Phase::kClosed) {
      ended.push_back(session.get());
    }
  }
  for (Session* session : ended) End(session, Reason::kDone, "");
  if (Planted(Bug::kStreamEventsSurvive)) return;
  std::erase_if(events, [&](const EngineEvent& event) {
    return std::visit([&](const auto& e) { return e.handle.stream == stream; }, event);
  });
}

void EngineState::Drain(Nanos now) {
  if (draining) return;
  draining = true;
  while (const std::optional<int64_t> id = queue.First()) {
    EndGroup(*id, Reason::kDraining, "the worker takes no new sessions");
  }
  const int64_t num_live = std::max<int64_t>(1, static_cast<int64_t>(by_handle.size()));
  handover_interval = options.drain_spread / num_live;
  next_handover = now + handover_interval;
}

}  // namespace tandem
