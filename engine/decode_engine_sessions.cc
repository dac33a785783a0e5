// Sessions of a DecodeEngine from admission to the return of their pages.
#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/status.h"
#include "engine/decode_engine_state.h"

namespace tandem {

// Null: no such live session, or it has just expired.
EngineState::Session* EngineState::Live(const SessionHandle& handle, Nanos now) {
  const auto found = by_handle.find(handle);
  if (found == by_handle.end()) return nullptr;
  Session* session = found->second;
  if (session->deadline > now) return session;
  End(session, ClosedEvent::Reason::kExpired, "the deadline has passed");
  return nullptr;
}

int32_t EngineState::LimitOf(const OpenCommand& command) const {
  if (command.max_new == 0) return context_length;
  const int64_t wanted = int64_t{command.prompt_length} + command.max_new;
  return static_cast<int32_t>(std::min<int64_t>(wanted, context_length));
}

KvCache::Request EngineState::RequestOf(const OpenCommand& command, int32_t choices) const {
  KvCache::Request request;
  request.prompt = static_cast<int32_t>(command.tokens.size());
  request.length = LimitOf(command);
  if (command.max_new == 0) {
    const int64_t ahead = int64_t{request.prompt} + options.ahead_tokens;
    request.length = static_cast<int32_t>(std::min<int64_t>(request.length, ahead));
  }
  request.choices = choices;
  return request;
}

void EngineState::End(Session* session, ClosedEvent::Reason reason, std::string detail) {
  events.emplace_back(ClosedEvent{session->handle, reason, std::move(detail)});
  by_handle.erase(session->handle);
  LeaveGroup(session);
  session->phase = Phase::kClosed;
  ReleaseIfIdle(session);
}

// The prefill belongs to the group: where the leader goes, the next choice takes its pages over.
void EngineState::LeaveGroup(Session* session) {
  const auto found = groups.find(session->group);
  if (session->phase == Phase::kRunning || found == groups.end()) return;
  Group& group = found->second;
  group.members.erase(std::find(group.members.begin(), group.members.end(), session));
  if (group.members.empty()) {
    queue.Remove(session->group);
    groups.erase(found);
    return;
  }
  if (session->phase != Phase::kLeader) return;
  Session* next = group.members.front();
  next->phase = Phase::kLeader;
  next->computed = session->computed;
  next->last_step = session->last_step;
  std::swap(next->pages, session->pages);
  next->pages.ChangeAll();
}

void EngineState::ReleaseIfIdle(Session* session) {
  if (session->phase != Phase::kClosed || session->last_step > collected) return;
  cache.Release(&session->pages);
  if (session->slot >= 0) {
    by_slot[session->slot] = nullptr;
    free_slots.insert(session->slot);
  }
  sessions.erase(session->serial);
}

void EngineState::Expire(Nanos now) {
  std::vector<Session*> expired;
  for (const auto& [handle, session] : by_handle) {
    if (session->deadline <= now) expired.push_back(session);
  }
  for (Session* session : expired) {
    End(session, ClosedEvent::Reason::kExpired, "the deadline has passed");
  }
}

void EngineState::AdmitQueued() {
  while (const std::optional<int64_t> id = queue.First()) {
    Group& group = groups.at(*id);
    const int32_t choices = static_cast<int32_t>(group.members.size());
    if (choices > static_cast<int32_t>(free_slots.size())) return;
    std::vector<PageTable> tables = cache.Admit(RequestOf(group.command, choices));
    if (tables.empty()) return;
    queue.Remove(*id);
    for (int32_t i = 0; i < choices; ++i) {
      StartMember(group.command, std::move(tables[i]), group.members[i]);
    }
    group.members.front()->phase = Phase::kLeader;
    group.admitted = true;
  }
}

void EngineState::StartMember(const OpenCommand& command, PageTable pages, Session* session) {
  session->slot = *free_slots.begin();
  free_slots.erase(free_slots.begin());
  by_slot[session->slot] = session;
  session->phase = Phase::kWaiting;
  session->pages = std::move(pages);
  session->tokens.reserve(RequestOf(command, 1).length);
  session->tokens = command.tokens;
  session->params =
      ToDrawParams(command.sampling, session->choice, command.prompt_length, vocab_size);
  slots->SetEdits(session->slot, command.sampling);
  slots->SetParams(session->slot, session->params);
  pools->ClearTable(session->slot);
  UploadTokens(session);
  events.emplace_back(OpenedEvent{session->handle, 0});
}

// A group is forked once all its tokens but the last have been launched. The copies are enqueued at
// once: in stream order they come after the rows that write the source, and before any later owner
// of it.
void EngineState::ForkReadyGroups() {
  std::vector<Session*> running;
  for (auto it = groups.begin(); it != groups.end();) {
    Group& group = it->second;
    const int32_t shared = static_cast<int32_t>(group.command.tokens.size()) - 1;
    const bool is_ready =
        group.admitted && (group.members.size() == 1 || group.members.front()->computed >= shared);
    if (!is_ready) {
      ++it;
      continue;
    }
    Session* leader = group.members.front();
    for (Session* member : group.members) {
      if (member != leader) {
        cache.Fork(shared, &leader->pages, &member->pages, &staging.copies);
        member->computed = shared;
      }
      member->phase = Phase::kRunning;
      running.push_back(member);
    }
    it = groups.erase(it);
  }
  for (const PageCopy& copy : staging.copies) pools->Copy(copy);
  staging.copies.clear();
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

absl::Status EngineState::CheckPages() const {
  std::vector<const PageTable*> tables;
  for (const auto& [serial, session] : sessions) {
    if (!session->pages.groups().empty()) tables.push_back(&session->pages);
  }
  return cache.CheckInvariants(tables);
}

}  // namespace tandem
