// Sessions of a DecodeEngine from admission to the return of their pages.
#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/planted_bugs.h"
#include "engine/base/status.h"
#include "engine/decode_engine_state.h"

namespace tandem {

using Reason = ClosedEvent::Reason;

// Null: no such live session, or it has just expired.
EngineState::Session* EngineState::Live(const SessionHandle& handle, Nanos now) {
  const auto found = by_handle.find(handle);
  if (found == by_handle.end()) return nullptr;
  Session* session = found->second;
  if (session->deadline > now) return session;
  End(session, Reason::kExpired, "the deadline has passed");
  return nullptr;
}

int32_t EngineState::LimitOf(const OpenCommand& command) const {
  if (command.max_new == 0) return context_length;
  const int64_t wanted = int64_t{command.prompt_length} + command.max_new;
  return static_cast<int32_t>(std::min<int64_t>(wanted, context_length));
}

KvCache::Request EngineState::RequestOf(const OpenCommand& command, int32_t choices) const {
  KvCache::Request request;
  request.tokens = command.tokens;
  request.length = LimitOf(command);
  if (command.max_new == 0) {
    const int64_t ahead = static_cast<int64_t>(command.tokens.size()) + options.ahead_tokens;
    request.length = static_cast<int32_t>(std::min<int64_t>(request.length, ahead));
  }
  request.choices = choices;
  request.use_index = command.use_cache;
  // What is found is not computed, and has no logits rows.
  if (WantsPromptLogprobs(command) && !Planted(Bug::kPromptRowsFound)) {
    request.most_cached = command.prompt_logprobs_from - 1;
  }
  request.salt = command.salt;
  return request;
}

bool EngineState::WantsPromptLogprobs(const OpenCommand& command) {
  return command.prompt_logprobs_from > 0 && command.prompt_logprobs_from < command.prompt_length;
}

void EngineState::End(Session* session, ClosedEvent::Reason reason, std::string detail) {
  if (reason != Reason::kNonFinite) IndexFinalPages(session);
  events.emplace_back(ClosedEvent{session->handle, reason, std::move(detail), session->request_id});
  by_handle.erase(session->handle);
  if (session->deadline != kNoDeadline) deadlines.erase({session->deadline, session->serial});
  LeaveGroup(session);
  session->phase = Phase::kClosed;
  if (!Planted(Bug::kPromptRowsLost)) LeavePromptRows(session);
  ReleaseIfIdle(session);
}

// REQUIRES a group that waits for admission.
void EngineState::EndGroup(int64_t group, ClosedEvent::Reason reason, const std::string& detail) {
  const std::vector<Session*> members = groups.at(group).members;
  for (Session* member : members) End(member, reason, detail);
}

// The prefill belongs to the group: where the leader goes, the next choice takes its pages over.
void EngineState::LeaveGroup(Session* session) {
  const auto found = groups.find(session->group);
  if (session->phase == Phase::kRunning || found == groups.end()) return;
  Group& group = found->second;
  group.members.erase(std::find(group.members.begin(), group.members.end(), session));
  if (group.members.empty()) {
    if (!group.admitted) queued_tokens -= static_cast<int64_t>(group.command.tokens.size());
    queue.Remove(session->group);
    admitted_groups.erase(session->group);
    groups.erase(found);
    return;
  }
  if (session->phase != Phase::kLeader) return;
  Session* next = group.members.front();
  next->phase = Phase::kLeader;
  next->computed = session->computed;
  next->collected = session->collected;
  next->cached = session->cached;
  next->last_step = session->last_step;
  std::swap(next->pages, session->pages);
  next->pages.ChangeAll();
}

void EngineState::ReleaseIfIdle(Session* session) {
  if (session->phase != Phase::kClosed || collecting) return;
  if (session->last_step > collected && !Planted(Bug::kReleaseInFlight)) return;
  cache.Release(&session->pages, session->retain_until);
  if (session->last_step > collected) return;  // planted: records still name the session
  if (session->slot >= 0) {
    by_slot[session->slot] = nullptr;
    free_slots.insert(session->slot);
  }
  sessions.erase(session->serial);
}

void EngineState::Expire(Nanos now) {
  while (!deadlines.empty() && deadlines.begin()->first <= now) {
    End(sessions.at(deadlines.begin()->second).get(), Reason::kExpired, "the deadline has passed");
  }
}

// Of a worker that drains: those sessions whose turn has come, the youngest first.
void EngineState::HandOver(Nanos now) {
  while (draining && !by_handle.empty() && (now >= next_handover || Planted(Bug::kDrainAtOnce))) {
    Session* youngest = nullptr;
    for (const auto& [serial, session] : sessions) {
      if (session->phase == Phase::kClosed) continue;
      if (youngest == nullptr || session->age >= youngest->age) youngest = session.get();
    }
    End(youngest, Reason::kDraining, "the worker drains");
    next_handover += handover_interval;
  }
}

void EngineState::AdmitQueued() {
  if (growth_waits) return;
  while (const std::optional<int64_t> id = queue.First()) {
    Group& group = groups.at(*id);
    const int32_t choices = static_cast<int32_t>(group.members.size());
    if (choices > static_cast<int32_t>(free_slots.size())) return;
    if (blocked_group == *id && blocked_chances == cache.num_chances()) return;
    KvCache::Admission admission = cache.Admit(RequestOf(group.command, choices), &staging.copies);
    if (admission.tables.empty()) {
      blocked_group = *id;
      blocked_chances = cache.num_chances();
      return;
    }
    FlushCopies();
    queue.Admitted(*id);
    queued_tokens -= static_cast<int64_t>(group.command.tokens.size());
    reused_tokens += admission.cached_tokens;
    Session* leader = group.members.front();
    leader->cached = leader->computed = leader->collected = admission.cached_tokens;
    for (int32_t i = 0; i < choices; ++i) {
      group.members[i]->cached = admission.cached_tokens;
      StartMember(group.command, std::move(admission.tables[i]), group.members[i]);
    }
    leader->phase = Phase::kLeader;
    group.admitted = true;
    admitted_groups.insert(*id);
  }
}

void EngineState::StartMember(const OpenCommand& command, PageTable pages, Session* session) {
  session->slot = *free_slots.begin();
  free_slots.erase(free_slots.begin());
  by_slot[session->slot] = session;
  session->phase = Phase::kWaiting;
  session->pages = std::move(pages);
  session->tokens.reserve(RequestOf(command, 1).length);
  if (session->max_drafts > 0) session->ngrams.Reserve(RequestOf(command, 1).length);
  session->tokens = command.tokens;
  session->confirmed = session->opened_length;
  session->params =
      ToDrawParams(command.sampling, session->choice, command.prompt_length, vocab_size);
  slots->SetEdits(session->slot, command.sampling);
  slots->SetParams(session->slot, session->params);
  if (!Planted(Bug::kStaleTable)) pools->ClearTable(session->slot);
  UploadTokens(session);
  events.emplace_back(OpenedEvent{session->handle, session->cached});
}

// A group is forked once all its tokens but the last have been launched; one choice whose prompt
// logprobs nobody wants, before that. The copies are enqueued at once: in stream order they come
// after the rows that write the source, and before any later owner of it.
void EngineState::ForkReadyGroups() {
  std::vector<Session*> running;
  for (auto it = admitted_groups.begin(); it != admitted_groups.end();) {
    Group& group = groups.at(*it);
    const int32_t shared = static_cast<int32_t>(group.command.tokens.size()) - 1;
    Session* leader = group.members.front();
    const bool is_shared = group.members.size() > 1 || WantsPromptLogprobs(group.command);
    if (is_shared && leader->computed < shared) {
      ++it;
      continue;
    }
    for (Session* member : group.members) {
      if (member != leader) {
        cache.Fork(shared, &leader->pages, &member->pages, &staging.copies);
        member->computed = shared;
        member->collected = std::min(leader->collected, shared);
      }
      member->phase = Phase::kRunning;
      running.push_back(member);
    }
    groups.erase(*it);
    it = admitted_groups.erase(it);
  }
  FlushCopies();
  for (Session* session : running) {
    while (session->phase == Phase::kRunning && !session->deferred.empty()) {
      const ExtendCommand command = std::move(session->deferred.front());
      session->deferred.pop_front();
      const int64_t serial = session->serial;
      ApplyExtend(command, session);
      if (!sessions.contains(serial)) break;
    }
  }
}

// Final: confirmed, and computed in steps that are done.
void EngineState::IndexFinalPages(Session* session) {
  if (session->phase != Phase::kRunning && session->phase != Phase::kLeader) return;
  int32_t final = std::min(session->confirmed, session->collected);
  if (Planted(Bug::kIndexUnconfirmed)) {
    final = std::min<int32_t>(session->computed, static_cast<int32_t>(session->tokens.size()));
  }
  cache.IndexPages(std::span(session->tokens).first(final), &session->pages);
}

absl::Status EngineState::CheckPages() const {
  std::vector<const PageTable*> tables;
  for (const auto& [serial, session] : sessions) {
    if (!session->pages.groups().empty()) tables.push_back(&session->pages);
  }
  return cache.CheckInvariants(tables);
}

}  // namespace tandem
