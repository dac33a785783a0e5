// What commands do to the expectation.
#include "tests/simulation/monitor.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tests/simulation/fake_arithmetic.h"
#include "tests/simulation/script.h"

namespace tandem::test {
namespace {

uint64_t SaltHash(const std::string& salt) {
  uint64_t hash = 1;
  for (const char c : salt) hash = Hash(hash, static_cast<uint8_t>(c));
  return hash;
}

}  // namespace

Monitor::Session* Monitor::Find(const SessionHandle& handle) {
  const auto found = sessions_.find(handle);
  return found == sessions_.end() ? nullptr : &found->second;
}

Monitor::Session* Monitor::FindForCommand(const SessionHandle& handle, Nanos now) {
  Session* session = Find(handle);
  if (session == nullptr || session->must != Must::kNothing) {
    counters_.Add(Counter::kLateCommands);
    return nullptr;
  }
  if (session->deadline <= now) {
    session->must = Must::kExpired;
    return nullptr;
  }
  return session;
}

std::string Monitor::Text(const Session& session) {
  return absl::StrCat("handle ", session.handle.number, " of stream ", session.handle.stream);
}

int32_t Monitor::QueuedGroups() const {
  std::set<int64_t> groups;
  for (const auto& [handle, session] : sessions_) {
    if (!session.is_admitted && session.must == Must::kNothing) groups.insert(session.group);
  }
  return static_cast<int32_t>(groups.size());
}

int32_t Monitor::QueuedGroups(int64_t stream) const {
  std::set<int64_t> groups;
  for (auto it = sessions_.lower_bound({stream, 0});
       it != sessions_.end() && it->first.stream == stream; ++it) {
    const Session& session = it->second;
    if (!session.is_admitted && session.must == Must::kNothing) groups.insert(session.group);
  }
  return static_cast<int32_t>(groups.size());
}

bool Monitor::WantsPrompt(const OpenCommand& command) {
  return command.prompt_logprobs_from > 0 && command.prompt_logprobs_from < command.prompt_length;
}

Monitor::WantedPrompt Monitor::WantedOf(const OpenCommand& command, const ListModel& list) {
  WantedPrompt wanted;
  wanted.first = wanted.next = command.prompt_logprobs_from;
  wanted.num_raw_top = std::min(command.prompt_raw_top, kFakeVocab);
  wanted.report_ids = command.sampling.report_ids;
  wanted.tokens.assign(command.tokens.begin(), command.tokens.begin() + command.prompt_length);
  for (int32_t position = wanted.first; position < command.prompt_length; ++position) {
    wanted.rows.push_back(list.Row(position));
  }
  return wanted;
}

void Monitor::BeforeOpen(const OpenCommand& command, bool is_bad, Nanos now) {
  const int32_t choices =
      command.choices >= 1 && command.choices <= options_.max_choices ? command.choices : 1;
  bool is_taken = false;
  for (int32_t i = 0; i < choices; ++i) {
    is_taken |= sessions_.contains({command.first.stream, command.first.number + i});
  }
  displaces_.reset();
  if (QueuedGroups() >= options_.max_queued) {
    displaces_ = {command.first.stream, command.priority};
  }
  const int64_t group = next_group_++;
  for (int32_t i = 0; i < choices; ++i) {
    const SessionHandle handle{command.first.stream, command.first.number + i};
    auto found = sessions_.find(handle);
    if (found == sessions_.end()) {
      found = sessions_.emplace(handle, NewSession(command, i, choices, is_bad, now)).first;
      found->second.group = group;
    }
    Session& session = found->second;
    if (i == 0 && !is_bad && !is_taken && WantsPrompt(command)) {
      wanted_prompts_.emplace(group, WantedOf(command, session.held));
    }
    if (is_bad || is_taken) {
      session.must = Must::kRefused;
    } else if (drain_.has_value()) {
      session.must = Must::kDraining;
    } else if (command.deadline <= now) {
      session.must = Must::kExpired;
    }
  }
}

Monitor::Session Monitor::NewSession(const OpenCommand& command, int32_t index, int32_t choices,
                                     bool is_bad, Nanos now) {
  const SamplingParameters& sampling = command.sampling;
  const uint32_t choice = command.first_choice + static_cast<uint32_t>(index);
  Session session{.held =
                      ListModel(sampling.seed, choice, EditsOf(sampling, command.prompt_length))};
  session.handle = {command.first.stream, command.first.number + static_cast<uint64_t>(index)};
  session.serial = next_serial_++;
  session.birth = now - command.age;
  session.key = FakeOps::SessionKey(sampling.seed, choice);
  session.salt = SaltHash(command.salt);
  session.use_cache = command.use_cache;
  session.most_cached =
      WantsPrompt(command) ? command.prompt_logprobs_from - 1 : std::numeric_limits<int32_t>::max();
  session.grows = command.max_new == 0;
  session.want_raw = sampling.want_raw;
  session.opened_length = static_cast<int32_t>(command.tokens.size());
  session.limit = session.grows ? kFakeContext
                                : std::min(kFakeContext, command.prompt_length + command.max_new);
  session.priority = command.priority;
  session.run_ahead = command.run_ahead;
  asks_drafts_ |= command.drafts > 0;
  session.choices = choices;
  const int32_t reserved =
      session.grows ? session.opened_length + options_.ahead_tokens : session.limit;
  session.cost = int64_t{choices} * std::min(reserved, session.limit);
  max_cost_ = std::max(max_cost_, session.cost);
  known_streams_.insert(session.handle.stream);
  session.num_top = sampling.num_top;
  session.num_perturbed = sampling.num_perturbed;
  session.deadline = command.deadline;
  if (!is_bad) session.held.Push(command.tokens);
  session.confirmed = session.held.size();
  session.longest = session.confirmed;
  for (int32_t page = 1; page <= session.confirmed / kernels::kPageTokens; ++page) {
    session.opened_keys.push_back(PrefixKey(page * kernels::kPageTokens, session));
  }
  return session;
}

std::string Monitor::WhyRefused(const ExtendCommand& command, const Session& session,
                                int32_t* same) const {
  const int64_t held = session.held.size();
  const int64_t count = static_cast<int64_t>(command.tokens.size());
  const int64_t end = command.position + count;
  *same = static_cast<int32_t>(held);
  if (command.position < 0 || command.position > held) return "position";
  if (end == 0) return "no token is left";
  if (end > session.limit) return "limit";
  for (const int32_t token : command.tokens) {
    if (token < 0 || token >= kFakeVocab) return "token";
  }
  int64_t common = command.position;
  const std::vector<int32_t>& tokens = session.held.tokens();
  while (common < std::min(end, held) &&
         tokens[common] == command.tokens[common - command.position]) {
    ++common;
  }
  const bool cuts = count == 0 ? command.position < held : common < std::min(end, held);
  *same = static_cast<int32_t>(cuts ? common : std::max(common, held));
  if (command.epoch != session.epoch && command.epoch != session.epoch + 1) return "epoch";
  if (cuts && command.epoch == session.epoch) return "a cut under the current epoch";
  if (cuts && session.longest - common > options_.max_rewind) return "max_rewind";
  return "";
}

void Monitor::BeforeExtend(const ExtendCommand& command, Nanos now) {
  displaces_.reset();
  Session* session = FindForCommand(command.handle, now);
  if (session == nullptr) return;
  int32_t same = 0;
  if (!WhyRefused(command, *session, &same).empty()) {
    session->must = Must::kRefused;
    return;
  }
  counters_.Add(Counter::kExtends);
  const int32_t end = command.position + static_cast<int32_t>(command.tokens.size());
  if (command.epoch > session->epoch) {
    session->epoch = command.epoch;
    // Draws behind what it names are given up too: their Candidates come again.
    const int32_t kept = std::min(same, std::max(end, session->confirmed));
    session->held.Truncate(kept);
    std::erase_if(session->late_fetches,
                  [&](const FetchCommand& fetch) { return fetch.position > same; });
    std::erase_if(session->fetches, [&](const FetchCommand& fetch) {
      if (fetch.position <= kept) return false;
      counters_.Add(Counter::kFetchesCut);
      return true;
    });
    session->undecided = false;
    session->confirmed = std::min(session->confirmed, kept);
    session->known_pages = std::min(session->known_pages, kept / kernels::kPageTokens);
    // Where it appends nothing, the last row runs again.
    session->answered = std::min(session->answered, end > kept ? kept : kept - 1);
  }
  while (session->held.size() < end) {
    session->held.Push(command.tokens[session->held.size() - command.position]);
    session->undecided = false;
  }
  session->has_many = session->has_many || end - session->answered > 1;
  session->confirmed = std::max(session->confirmed, end);
  session->longest = std::max(session->longest, session->confirmed);
  // Those out of reach are answered only where their row is in flight.
  const int32_t lowest = session->longest - options_.max_rewind;
  std::erase_if(session->fetches, [&](const FetchCommand& fetch) {
    const bool is_gone = fetch.position < lowest;
    if (is_gone) session->late_fetches.push_back(fetch);
    return is_gone;
  });
  if (session->is_admitted) NotePages(session);
}

void Monitor::BeforeFetch(const FetchCommand& command, Nanos now) {
  displaces_.reset();
  Session* session = FindForCommand(command.handle, now);
  if (session == nullptr) return;
  const int32_t lowest = std::max(1, session->longest - options_.max_rewind);
  if (command.position < lowest || command.position > session->held.size()) {
    session->must = Must::kRefused;
    return;
  }
  session->fetches.push_back(command);
  session->num_widenings += command.what == FetchCommand::What::kMore;
}

void Monitor::BeforeClose(const CloseCommand& command) {
  displaces_.reset();
  Session* session = Find(command.handle);
  if (session == nullptr) {
    counters_.Add(Counter::kDuplicateCloses);
    return;
  }
  // A refusal that waits for the prompt is overtaken.
  session->must = Must::kDone;
  if (!session->is_admitted) {
    counters_.Add(Counter::kClosedQueued);
  } else if (IsInFlight(*session)) {
    counters_.Add(session->has_candidates ? Counter::kClosedInFlight : Counter::kClosedPrefill);
  } else {
    counters_.Add(Counter::kClosedWaiting);
  }
}

void Monitor::BeforeCloseStream(int64_t stream) {
  displaces_.reset();
  std::erase_if(sessions_, [&](const auto& entry) { return entry.first.stream == stream; });
  waiting_.erase(stream);
  ended_streams_.insert(stream);
}

void Monitor::BeforeDrain(Nanos now) {
  displaces_.reset();
  drain_.emplace();
  drain_->since = now;
  for (auto& [handle, session] : sessions_) {
    drain_->running += session.is_admitted;
    if (!session.is_admitted && session.must == Must::kNothing) session.must = Must::kDraining;
  }
}

}  // namespace tandem::test
