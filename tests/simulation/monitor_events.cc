// What events have to say.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/simulation/fake_arithmetic.h"
#include "tests/simulation/monitor.h"

namespace tandem::test {

using kernels::kPageTokens;
using Reason = ClosedEvent::Reason;

void Monitor::OnEvents(std::span<const EngineEvent> events, Nanos now) {
  counters_.Add(Counter::kEvents, static_cast<int64_t>(events.size()));
  for (const EngineEvent& event : events) {
    const SessionHandle handle = std::visit([](const auto& e) { return e.handle; }, event);
    violation_.Require(!ended_streams_.contains(handle.stream), "an event for handle ",
                       handle.number, " follows the end of stream ", handle.stream);
    Session* session = Find(handle);
    if (!violation_.Require(session != nullptr, "event ", event.index(), " for handle ",
                            handle.number, " of stream ", handle.stream,
                            ", which is not live: nothing follows Closed")) {
      return;
    }
    if (const auto* closed = std::get_if<ClosedEvent>(&event)) {
      OnClosed(*closed, session, now);
      sessions_.erase(handle);
      continue;
    }
    // Extends that come early are judged when the prompt is shared; all else is over.
    const bool is_early = std::holds_alternative<OpenedEvent>(event) ||
                          std::holds_alternative<PrefillEvent>(event) ||
                          std::holds_alternative<PromptLogprobsEvent>(event);
    const bool is_expected =
        session->must == Must::kNothing || (session->must == Must::kRefused && is_early);
    if (!violation_.Require(is_expected, "event ", event.index(), " for ", Text(*session),
                            ", which has to be closed")) {
      return;
    }
    session->steps_owed = 0;
    if (const auto* opened = std::get_if<OpenedEvent>(&event)) {
      OnOpened(*opened, session, now);
    } else if (const auto* prefill = std::get_if<PrefillEvent>(&event)) {
      OnPrefill(*prefill, session);
    } else if (const auto* prompt = std::get_if<PromptLogprobsEvent>(&event)) {
      OnPromptLogprobs(*prompt, *session);
    } else if (const auto* candidates = std::get_if<CandidatesEvent>(&event)) {
      OnCandidates(*candidates, session);
    } else if (const auto* fetched = std::get_if<FetchedEvent>(&event)) {
      OnFetched(*fetched, session);
    }
  }
}

void Monitor::OnOpened(const OpenedEvent& event, Session* session, Nanos now) {
  violation_.Require(!session->is_admitted, "Opened comes twice for ", Text(*session));
  violation_.Require(session->deadline > now, "Opened after the deadline for ", Text(*session));
  violation_.Require(!drain_.has_value(), "Opened in a drain for ", Text(*session));
  if (event.cached_tokens > 0) counters_.Add(Counter::kHits);
  CheckHit(event.cached_tokens, *session);
  session->is_admitted = true;
  CheckFairness(*session);
  if (session->choices > 1) counters_.Add(Counter::kForks);
  NotePages(session);
}

void Monitor::OnPrefill(const PrefillEvent& event, Session* session) {
  counters_.Add(Counter::kPrefillEvents);
  violation_.Require(session->is_admitted, "Prefill before Opened for ", Text(*session));
  // Rows that run again behind a cut may be told of too.
  const bool is_again = session->confirmed != session->opened_length || session->epoch > 0;
  violation_.Require(
      is_again || (event.done >= session->prefilled && event.done <= event.total &&
                   event.total == session->opened_length && event.cached <= event.done),
      "Prefill of ", event.done, " of ", event.total, " tokens, ", event.cached, " found, after ",
      session->prefilled, " for ", Text(*session), " of ", session->opened_length);
  session->prefilled = event.done;
  if (event.cached > 0) {
    counters_.Add(Counter::kLateHits);
    CheckHit(event.cached, *session);
  }
}

// Of a group each position comes once and in order, whichever of its handles it names.
void Monitor::OnPromptLogprobs(const PromptLogprobsEvent& event, const Session& session) {
  const auto found = wanted_prompts_.find(session.group);
  if (!violation_.Require(found != wanted_prompts_.end(), "prompt logprobs for ", Text(session),
                          ", which wants no more")) {
    return;
  }
  WantedPrompt& wanted = found->second;
  const PromptLogprobs& logprobs = event.logprobs;
  const int32_t end = static_cast<int32_t>(wanted.tokens.size());
  violation_.Require(session.is_admitted, "prompt logprobs before Opened for ", Text(session));
  if (!violation_.Require(logprobs.position == wanted.next && logprobs.size() >= 1 &&
                              logprobs.size() <= std::min(kMaxPromptLogprobs, end - wanted.next),
                          logprobs.size(), " prompt logprobs from position ", logprobs.position,
                          " on for ", Text(session), ": the next is ", wanted.next, " of ", end)) {
    return;
  }
  const size_t n = static_cast<size_t>(logprobs.size());
  bool equal = logprobs.raw_top.size() == n * static_cast<size_t>(wanted.num_raw_top) &&
               logprobs.reported.size() == n * wanted.report_ids.size() &&
               logprobs.raw_max.size() == n && logprobs.raw_total.size() == n;
  for (size_t i = 0; equal && i < n; ++i) {
    const int32_t position = wanted.next + static_cast<int32_t>(i);
    const uint64_t row = wanted.rows[static_cast<size_t>(position - wanted.first)];
    const kernels::RawEntry& token = logprobs.tokens[i];
    equal = token.id == wanted.tokens[static_cast<size_t>(position)] &&
            token.raw == FakeLogit(row, token.id) && logprobs.raw_total[i] == row;
    for (size_t r = 0; equal && r < wanted.report_ids.size(); ++r) {
      equal = logprobs.reported[i * wanted.report_ids.size() + r].id == wanted.report_ids[r];
    }
  }
  violation_.Require(equal, "the prompt logprobs from position ", wanted.next, " on of ",
                     Text(session), " are of other rows, or not as asked");
  counters_.Add(Counter::kPromptLogprobs, logprobs.size());
  if (wanted.number.has_value() && *wanted.number != session.handle.number) {
    counters_.Add(Counter::kPromptLogprobsMoved);
  }
  wanted.number = session.handle.number;
  wanted.next += logprobs.size();
  if (wanted.next == end) wanted_prompts_.erase(found);
}

void Monitor::OnCandidates(const CandidatesEvent& event, Session* session) {
  const int32_t held = session->held.size();
  const int32_t ahead = held - session->confirmed;
  violation_.Require(session->is_admitted, "Candidates before Opened for ", Text(*session));
  violation_.Require(!wanted_prompts_.contains(session->group),
                     "Candidates before all prompt logprobs for ", Text(*session));
  violation_.Require(event.epoch == session->epoch, "Candidates of epoch ", event.epoch,
                     " in epoch ", session->epoch, " for ", Text(*session));
  if (!violation_.Require(event.position == held && !session->undecided, "Candidates for position ",
                          event.position, ", held are ", held, " tokens",
                          session->undecided ? " and an open decision" : "", ", for ",
                          Text(*session))) {
    return;
  }
  violation_.Require(held < session->limit, "Candidates for position ", held, " at the limit for ",
                     Text(*session));
  violation_.Require(ahead <= session->run_ahead, "Candidates for position ", held, ", ", ahead,
                     " draws are not confirmed, run_ahead is ", session->run_ahead, ", for ",
                     Text(*session));
  // A fetch widens the lists of the rows that are launched after it, whenever that is.
  const auto is_wider = [&] {
    return event.candidates.top.size() > static_cast<size_t>(session->num_top) ||
           event.candidates.perturbed.size() > static_cast<size_t>(session->num_perturbed);
  };
  for (; is_wider() && session->num_widenings > 0; --session->num_widenings) {
    if (session->num_perturbed < kernels::kMaxPerturbed) {
      session->num_perturbed = std::min(2 * session->num_perturbed, kernels::kMaxPerturbed);
    } else {
      session->num_top = std::min(2 * session->num_top, kernels::kMaxTop);
    }
  }
  CheckLists(event.candidates, held, session->num_top, session->num_perturbed, *session);
  if (violation_.any()) return;
  session->has_candidates = true;
  session->has_many = false;
  session->answered = held;
  if (ahead > 0) counters_.Add(Counter::kRunAheadCandidates);
  if (event.candidates.summary.drawn >= 0) {
    session->held.Push(event.candidates.summary.drawn);
  } else {
    session->undecided = true;
    counters_.Add(Counter::kUndecided);
  }
}

void Monitor::CheckLists(const Candidates& candidates, int32_t position, int32_t num_top,
                         int32_t num_perturbed, const Session& session) {
  const kernels::RowSummary& summary = candidates.summary;
  const uint64_t weight = session.held.Weight(position);
  violation_.Require(summary.total_weight == weight, "the row for position ", position, " of ",
                     Text(session), " was computed from other tokens or parameters than are held");
  violation_.Require(summary.drawn == session.held.Draw(position), "the draw for position ",
                     position, " of ", Text(session), " is ", summary.drawn, ", expected ",
                     session.held.Draw(position));
  const size_t top = static_cast<size_t>(std::min(num_top, kFakeVocab));
  const size_t perturbed = static_cast<size_t>(std::min(num_perturbed, kFakeVocab));
  bool equal = candidates.top.size() == top && candidates.perturbed.size() == perturbed &&
               (summary.raw_total != 0) == session.want_raw;
  for (size_t i = 0; equal && i < top; ++i) {
    equal = candidates.top[i].id == FakeListId(weight, static_cast<int32_t>(i));
  }
  for (size_t i = 0; equal && i < perturbed; ++i) {
    equal = candidates.perturbed[i].mass_above == weight;
  }
  violation_.Require(equal, "the lists for position ", position, " of ", Text(session),
                     " are not as asked: ", candidates.top.size(), " of ", top, ", ",
                     candidates.perturbed.size(), " of ", perturbed);
}

void Monitor::OnFetched(const FetchedEvent& event, Session* session) {
  const auto is_asked = [&](const FetchCommand& fetch) {
    return fetch.position == event.position && fetch.what == event.what;
  };
  const auto late =
      std::find_if(session->late_fetches.begin(), session->late_fetches.end(), is_asked);
  const auto asked = std::find_if(session->fetches.begin(), session->fetches.end(), is_asked);
  const bool is_late = late != session->late_fetches.end();
  if (!violation_.Require(is_late || asked != session->fetches.end(), "Fetched for position ",
                          event.position, " of ", Text(*session),
                          " was not asked for, or was cut")) {
    return;
  }
  violation_.Require(is_late || asked == session->fetches.begin(), "Fetched out of order for ",
                     Text(*session));
  const FetchCommand command = is_late ? *late : *asked;
  if (is_late) {
    session->late_fetches.erase(late);
  } else {
    session->fetches.erase(asked);
  }
  const uint64_t row = session->held.Row(event.position);
  switch (event.what) {
    case FetchCommand::What::kMore:
      counters_.Add(Counter::kFetchedMore);
      CheckLists(event.candidates, event.position, command.num_top, command.num_perturbed,
                 *session);
      break;
    case FetchCommand::What::kIds: {
      counters_.Add(Counter::kFetchedIds);
      bool equal = event.values.size() == command.ids.size();
      for (size_t i = 0; equal && i < command.ids.size(); ++i) {
        equal = event.values[i] == FakeLogit(row, command.ids[i]);
      }
      violation_.Require(equal, "the logits fetched for position ", event.position, " of ",
                         Text(*session), " are wrong");
      break;
    }
    case FetchCommand::What::kRow:
      counters_.Add(Counter::kFetchedRow);
      violation_.Require(
          event.values.size() == size_t{kFakeVocab} && LoadHash(event.values.data()) == row,
          "the row fetched for position ", event.position, " of ", Text(*session), " is wrong");
      break;
  }
}

void Monitor::OnClosed(const ClosedEvent& event, Session* session, Nanos now) {
  const bool is_expired = session->deadline <= now;
  switch (event.reason) {
    case Reason::kDone:
      violation_.Require(session->must == Must::kDone, "Closed(DONE) without Close for ",
                         Text(*session));
      break;
    case Reason::kRefused: {
      violation_.Require(session->must == Must::kRefused || MayBeDisplaced(*session),
                         "Closed(REFUSED) for ", Text(*session), ": ", event.detail);
      const bool has_number = std::any_of(event.detail.begin(), event.detail.end(),
                                          [](char c) { return c >= '0' && c <= '9'; });
      violation_.Require(has_number, "Closed(REFUSED) for ", Text(*session),
                         " does not say the limit: ", event.detail);
      break;
    }
    case Reason::kExpired:
      violation_.Require(is_expired, "Closed(EXPIRED) before the deadline for ", Text(*session));
      counters_.Add(Counter::kExpired);
      break;
    case Reason::kPreempted:
      counters_.Add(Counter::kPreempted);
      CheckPreempted(*session);
      break;
    case Reason::kDraining:
      violation_.Require(drain_.has_value(), "Closed(DRAINING) without a drain for ",
                         Text(*session));
      if (drain_.has_value()) CheckDrained(*session, now);
      break;
    case Reason::kNonFinite:
    case Reason::kFault:
      violation_.Require(false, "Closed(", static_cast<int>(event.reason), ") for ", Text(*session),
                         ": ", event.detail);
  }
  if (session->must == Must::kRefused) {
    violation_.Require(event.reason == Reason::kRefused || is_expired ||
                           event.reason == Reason::kDraining || event.reason == Reason::kPreempted,
                       Text(*session), " has to be refused: closed with ",
                       static_cast<int>(event.reason));
  }
}

// ---- cached pages ----------------------------------------------------------------------------

uint64_t Monitor::PrefixKey(int32_t length, const Session& session) const {
  return Hash(session.held.TokensHash(length), session.salt, static_cast<uint64_t>(length));
}

void Monitor::NotePages(Session* session) {
  if (!session->use_cache) return;
  for (int32_t page = session->known_pages + 1; page <= session->confirmed / kPageTokens; ++page) {
    const auto [it, is_new] =
        known_.try_emplace(PrefixKey(page * kPageTokens, *session), KnownPrefix{session->group});
    it->second.had_others |= it->second.group != session->group;
    session->known_pages = page;
  }
}

// Tokens can only be found where an earlier session with the same salt had confirmed them.
void Monitor::CheckHit(int32_t cached, const Session& session) {
  if (cached == 0) return;
  violation_.Require(cached <= session.most_cached, cached, " cached tokens for ", Text(session),
                     ", which wants the rows from ", session.most_cached, " on");
  const bool may_hit = features_.has(Feature::kCache) && options_.prefix_cache && session.use_cache;
  violation_.Require(may_hit, cached, " cached tokens for ", Text(session),
                     ", which uses no cache");
  if (!violation_.Require(cached > 0 && cached < session.opened_length, cached,
                          " cached tokens of ", session.opened_length, " for ", Text(session),
                          ": at least the last token is computed")) {
    return;
  }
  const int32_t pages = (cached + kPageTokens - 1) / kPageTokens;
  const bool is_page = pages <= static_cast<int32_t>(session.opened_keys.size());
  const auto found = is_page ? known_.find(session.opened_keys[pages - 1]) : known_.end();
  violation_.Require(
      found != known_.end() && (found->second.group != session.group || found->second.had_others),
      cached, " cached tokens for ", Text(session),
      ": no earlier session of its salt confirmed them");
}

}  // namespace tandem::test
