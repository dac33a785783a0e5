#include "services/text/choice.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "engine/base/check.h"
#include "engine/base/status.h"
#include "engine/sampling/draw_probability.h"
#include "services/common/decode_codec.h"
#include "services/text/router.h"

namespace tandem::text {
namespace {

namespace pb = decode::v1;

void SetDuration(Nanos from, Nanos to, google::protobuf::Duration* out) {
  ToProto(std::max<Nanos>(0, to - from), out);
}

// The fields that keep tokens from being chosen.
std::string Restrictions(const SamplingParameters& sampling) {
  std::vector<const char*> names;
  if (!sampling.allowed_ids.empty()) names.push_back("sampling.allowed_ids");
  if (!sampling.banned_ids.empty()) names.push_back("sampling.banned_ids");
  if (sampling.min_tokens > 0) names.push_back("min_tokens");
  return absl::StrJoin(names, " and ");
}

}  // namespace

Choice::Choice(const GenerationRequest& request, int32_t index, const ReplayPolicy& policy)
    : request_(request),
      index_(index),
      replay_(policy),
      output_(request),
      decider_(request.sampling, static_cast<uint32_t>(request.first_choice + index),
               static_cast<int32_t>(request.prompt.size()), request.prompt,
               request.model->vocab_size, request.model->defined_bits) {
  for (const int32_t token : request.resume) {
    output_.Add(token);  // its text is with the client already
    decider_.Append(token);
  }
}

void Choice::FinishIfComplete(Nanos now, SessionOutput* out) {
  if (output_.ended()) Finish(*output_.end(), absl::OkStatus(), now, out);
}

void Choice::OnOpened(const pb::Opened& event, Nanos now) {
  if (state_ != State::kQueued) return;
  state_ = State::kWaiting;
  asked_at_ = now;
  if (opened()) return;
  opened_at_ = now;
  cached_tokens_ = std::max(cached_tokens_, event.cached_tokens());
}

void Choice::OnPrefill(const pb::Prefill& event) {
  cached_tokens_ = std::max(cached_tokens_, event.cached_tokens());
}

bool Choice::InEpoch(uint32_t epoch, Nanos now, SessionOutput* out) {
  if (epoch > epoch_) {
    Broken(absl::StrCat("candidates of epoch ", epoch, " in epoch ", epoch_), now, out);
  }
  return epoch == epoch_;
}

void Choice::OnCandidates(const pb::Candidates& event, Nanos now, SessionOutput* out) {
  if (!placed() || !InEpoch(event.epoch(), now, out)) return;
  if (state_ == State::kQueued) return Broken("candidates before Opened", now, out);
  const int32_t expected = decider_.position() + static_cast<int32_t>(pending_.size());
  if (event.position() != expected) {
    return Broken(
        absl::StrCat("candidates for position ", event.position(), ": the next is ", expected), now,
        out);
  }
  if (static_cast<int32_t>(pending_.size()) > request_.run_ahead) {
    return Broken(
        absl::StrCat("candidates for ", pending_.size() + 1,
                     " positions that are not confirmed: at most ", request_.run_ahead + 1),
        now, out);
  }
  if (!pending_.empty() && pending_.back().drawn < 0) {
    return Broken(
        absl::StrCat("candidates for position ", event.position(), " behind one without a draw"),
        now, out);
  }
  Pending& pending = pending_.push_back();
  const absl::Status status = FromProto(event, request_.model->vocab_size, &pending.candidates);
  if (!status.ok()) return Broken(std::string(status.message()), now, out);
  if (first_candidates_at_ < 0) first_candidates_at_ = now;
  pending.position = event.position();
  pending.drawn = pending.candidates.summary.drawn;
  DecideWhatIsPending(now, out);
}

void Choice::DecideWhatIsPending(Nanos now, SessionOutput* out) {
  while (state_ == State::kWaiting && !paused_ && !pending_.empty()) {
    if (by_row_) return FetchRow(now, out);
    Act(decider_.DecideFromCandidates(pending_.front().candidates), now, out);
  }
}

void Choice::SetPaused(bool paused, Nanos now, SessionOutput* out) {
  paused_ = paused;
  asked_at_ = now;
  if (wants_worker()) replay_.OnWanted(now);
  DecideWhatIsPending(now, out);
}

void Choice::Act(const Decision& decision, Nanos now, SessionOutput* out) {
  const int32_t position = decider_.position();
  switch (decision.kind) {
    case Decision::Kind::kToken:
      return Take(decision.token, now, out);
    case Decision::Kind::kUndecided:
      return FetchMore(now, out);
    case Decision::Kind::kFault:
      counters_.set_faults(counters_.faults() + 1);
      by_row_ = true;
      return FetchRow(now, out);
    case Decision::Kind::kNoToken:
      return Finish(v1::FINISH_REASON_ERROR,
                    InvalidArgument("no token is allowed at position ", position, ": ",
                                    Restrictions(request_.sampling), " leave none"),
                    now, out);
    case Decision::Kind::kNonFinite:
      return Finish(
          v1::FINISH_REASON_ERROR,
          Internal("the logit of id ", decision.token, " at position ", position, " is not finite"),
          now, out);
  }
}

pb::Command* Choice::AddCommand(SessionOutput* out) const {
  WorkerCommand& command = out->commands.emplace_back();
  command.connection = connection_;
  return &command.command;
}

pb::Fetch* Choice::AddFetch(Nanos now, SessionOutput* out) {
  if (state_ != State::kFetching) fetching_since_ = now;
  state_ = State::kFetching;
  pb::Fetch* fetch = AddCommand(out)->mutable_fetch();
  fetch->set_handle(handle_);
  fetch->set_position(decider_.position());
  return fetch;
}

void Choice::FetchMore(Nanos now, SessionOutput* out) {
  const Candidates& lists = pending_.front().candidates;
  fetch_top_ = std::max(fetch_top_, static_cast<int32_t>(lists.top.size()));
  fetch_perturbed_ = std::max(fetch_perturbed_, static_cast<int32_t>(lists.perturbed.size()));
  if (fetch_perturbed_ < limits_.max_perturbed) {
    fetch_perturbed_ = std::min(2 * fetch_perturbed_, limits_.max_perturbed);
  } else if (fetch_top_ < limits_.max_top) {
    fetch_top_ = std::min(2 * fetch_top_, limits_.max_top);
  } else {
    return FetchRow(now, out);
  }
  fetching_row_ = false;
  pb::Fetch::More* more = AddFetch(now, out)->mutable_more();
  more->set_num_top(fetch_top_);
  more->set_num_perturbed(fetch_perturbed_);
}

void Choice::FetchRow(Nanos now, SessionOutput* out) {
  fetching_row_ = true;
  row_.clear();
  AddFetch(now, out)->mutable_row();
}

void Choice::OnFetched(const pb::Fetched& event, Nanos now, SessionOutput* out) {
  if (state_ != State::kFetching || event.position() != decider_.position()) return;
  if (event.has_values() && fetching_row_) return OnFetchedRow(event.values(), now, out);
  if (!event.has_more() || fetching_row_) {
    return Broken("a Fetched that is not what was asked for", now, out);
  }
  const absl::Status status =
      FromProto(event.more(), request_.model->vocab_size, &pending_.front().candidates);
  if (!status.ok()) return Broken(std::string(status.message()), now, out);
  Act(decider_.DecideFromCandidates(pending_.front().candidates), now, out);
  DecideWhatIsPending(now, out);
}

void Choice::OnFetchedRow(const pb::Fetched::Values& values, Nanos now, SessionOutput* out) {
  const int32_t vocab_size = request_.model->vocab_size;
  const int64_t received = static_cast<int64_t>(row_.size());
  if (!values.row() || values.total() != vocab_size || values.offset() != received ||
      values.values().empty() || received + values.values_size() > vocab_size) {
    return Broken(absl::StrCat("row values ", values.offset(), " to ",
                               int64_t{values.offset()} + values.values_size(), " of ",
                               values.total(), ": expected from ", received, " of ", vocab_size),
                  now, out);
  }
  row_.insert(row_.end(), values.values().begin(), values.values().end());
  if (static_cast<int32_t>(row_.size()) < vocab_size) return;
  const Decision decision = decider_.DecideFromRow(row_);
  if (decision.kind == Decision::Kind::kToken && (request_.logprobs || request_.token_details)) {
    pending_.front().candidates = decider_.CandidatesFromRow(row_);
  }
  Act(decision, now, out);
  DecideWhatIsPending(now, out);
}

std::optional<v1::PositionLogprobs> Choice::LogprobsOf(int32_t token) const {
  if (!request_.logprobs) return std::nullopt;
  const Candidates& candidates = pending_.front().candidates;
  const std::optional<RankedLogit> chosen =
      row_.empty() ? FindInLists(candidates, token) : FindInRow(row_, token);
  TANDEM_CHECK(chosen.has_value()) << "token " << token << " was decided from lists without it";
  return MakeLogprobs(candidates, token, *chosen, request_.model->tokenizer());
}

void Choice::FillDetail(int32_t token, Nanos now, v1::TokenDetail* out) const {
  out->set_fetched(state_ == State::kFetching);
  out->set_ahead(goes_on_);
  out->set_worker(WorkerOf(connection_));
  const Nanos since = last_token_at_ >= 0 ? last_token_at_ : request_.received;
  out->set_microseconds(std::max<Nanos>(0, now - since) / 1000);
  const std::optional<double> probability =
      DrawProbability(decider_.params(), pending_.front().candidates, token);
  if (probability.has_value()) out->set_probability(static_cast<float>(*probability));
}

void Choice::Take(int32_t token, Nanos now, SessionOutput* out) {
  TANDEM_CHECK(token >= 0 && token < request_.model->tokenizer().vocab_size())
      << "token " << token << " was decided: the tokenizer does not define it";
  const bool fetched = state_ == State::kFetching;
  const int32_t drawn = pending_.front().drawn;
  const bool miss = drawn >= 0 && drawn != token;
  std::optional<v1::PositionLogprobs> logprobs = LogprobsOf(token);
  if (request_.token_details) FillDetail(token, now, held_.add_token_details());
  goes_on_ = drawn == token && std::min(request_.run_ahead, limits_.max_run_ahead) > 0;
  pending_.pop_front();
  row_.clear();
  fetch_top_ = fetch_perturbed_ = 0;
  state_ = State::kWaiting;

  if (fetched) {
    counters_.set_fetched(counters_.fetched() + 1);
  } else {
    counters_.set_from_lists(counters_.from_lists() + 1);
  }
  if (miss) counters_.set_misses(counters_.misses() + 1);
  if (drawn == token) ++confirmed_draws_;
  decider_.Append(token);
  if (first_token_at_ < 0) first_token_at_ = now;
  last_token_at_ = now;

  OutputText::Result result = output_.Add(token);
  EmitToken(token, std::move(result.text), std::move(logprobs), out);
  if (result.end.has_value()) return Finish(*result.end, absl::OkStatus(), now, out);
  asked_at_ = now;
  Extend(token, miss, out);
}

void Choice::Extend(int32_t token, bool differs, SessionOutput* out) {
  if (differs) {
    ++epoch_;
    pending_.clear();  // of the worker's own continuation, which this cuts
    counters_.set_rewound(counters_.rewound() + 1);
  }
  const int32_t position = decider_.position() - 1;
  pb::Extend* extend = nullptr;
  if (!out->commands.empty() && out->commands.back().command.has_extend()) {
    extend = out->commands.back().command.mutable_extend();
    const bool joins = out->commands.back().connection == connection_ &&
                       extend->handle() == handle_ &&
                       extend->position() + extend->tokens_size() == position &&
                       extend->epoch() + (differs ? 1 : 0) == epoch_;
    if (!joins) extend = nullptr;
  }
  if (extend == nullptr) {
    extend = AddCommand(out)->mutable_extend();
    extend->set_handle(handle_);
    extend->set_position(position);
  }
  extend->set_epoch(epoch_);
  extend->add_tokens(static_cast<uint32_t>(token));
}

void Choice::EmitToken(int32_t token, std::string text,
                       std::optional<v1::PositionLogprobs> logprobs, SessionOutput* out) {
  ++held_tokens_;
  held_.mutable_text()->append(text);
  if (request_.token_ids) held_.add_token_ids(token);
  if (logprobs.has_value()) *held_.add_logprobs() = *std::move(logprobs);
  if (held_tokens_ >= request_.stream_interval || output_.ended()) EmitHeld(out);
}

void Choice::EmitHeld(SessionOutput* out) {
  held_tokens_ = 0;
  if (held_.text().empty() && held_.token_ids().empty() && held_.logprobs().empty() &&
      held_.token_details().empty()) {
    return;
  }
  held_.set_choice(index_);
  out->messages.emplace_back().mutable_delta()->Swap(&held_);
}

void Choice::Broken(std::string what, Nanos now, SessionOutput* out) {
  Finish(v1::FINISH_REASON_ERROR, Internal("the worker broke the protocol: ", what), now, out);
}

void Choice::Finish(v1::FinishReason reason, absl::Status status, Nanos now, SessionOutput* out) {
  if (finished()) return;
  state_ = State::kFinished;
  finish_reason_ = reason;
  status_ = std::move(status);
  Close(/*retain=*/0, out);
  ForgetWorker();
  EmitHeld(out);
  std::string held = output_.Flush();
  if (!held.empty()) {
    v1::Delta* delta = out->messages.emplace_back().mutable_delta();
    delta->set_choice(index_);
    delta->set_text(std::move(held));
  }
  EmitFinished(reason, now, out);
}

void Choice::EmitFinished(v1::FinishReason reason, Nanos now, SessionOutput* out) {
  v1::Finished* finished = out->messages.emplace_back().mutable_finished();
  finished->set_choice(index_);
  finished->set_reason(reason);
  if (reason == v1::FINISH_REASON_STOP_STRING)
    finished->set_stop(request_.stop_strings[output_.stop()]);
  if (output_.stop_token() >= 0) finished->set_stop_token_id(output_.stop_token());
  v1::Usage* usage = finished->mutable_usage();
  usage->set_prompt_tokens(static_cast<int32_t>(request_.prompt.size()));
  usage->set_cached_tokens(cached_tokens_);
  usage->set_output_tokens(output_.num_tokens());
  v1::Timings* timings = finished->mutable_timings();
  SetDuration(request_.received, opened() ? opened_at_ : now, timings->mutable_queue());
  if (opened()) {
    SetDuration(opened_at_, first_candidates_at_ >= 0 ? first_candidates_at_ : now,
                timings->mutable_prefill());
  }
  SetDuration(first_token_at_, last_token_at_, timings->mutable_decode());
  *finished->mutable_counters() = counters_;
  if (reason == v1::FINISH_REASON_ERROR) finished->set_error(std::string(status_.message()));
}

}  // namespace tandem::text
