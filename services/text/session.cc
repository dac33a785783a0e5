#include "services/text/session.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/status.h"
#include "services/common/decode_codec.h"

namespace tandem::text {

namespace pb = decode::v1;

Session::Session(GenerationRequest request, const ReplayPolicy& policy)
    : request_(std::move(request)), prompt_(request_) {
  for (int32_t i = 0; i < request_.choices; ++i) {
    choices_.push_back(std::make_unique<Choice>(request_, i, policy));
  }
}

void Session::Begin(Nanos now, SessionOutput* out) {
  SessionOutput ends;
  for (const auto& choice : choices_) choice->FinishIfComplete(now, &ends);
  if (ends.messages.empty()) return;
  Start(/*cached_tokens=*/0, out);
  for (v1::GenerateResponse& message : ends.messages) out->messages.emplace_back().Swap(&message);
}

std::optional<Session::Opening> Session::NextOpening(Nanos now) const {
  const auto due = [now](const Choice& choice) {
    return choice.wants_worker() && choice.replay().next_attempt() <= now;
  };
  for (int32_t i = 0; i < request_.choices; ++i) {
    const Choice& first = *choices_[i];
    if (!due(first)) continue;
    Opening out{.first_choice = i,
                .again = first.replay().placed_before(),
                .avoid = first.replay().avoid()};
    // Without output they are one prompt still.
    while (first.output_tokens() == 0 && i + out.choices < request_.choices &&
           due(*choices_[i + out.choices]) && choices_[i + out.choices]->output_tokens() == 0) {
      ++out.choices;
    }
    return out;
  }
  return std::nullopt;
}

Session::Opening Session::Open(const Opening& opening, uint64_t connection,
                               const ServedModel& worker, Nanos now, SessionOutput* out) {
  if (first_opened_at_ < 0) first_opened_at_ = now;
  if (!started_) {
    weights_fingerprint_ = worker.weights_fingerprint;
    numerics_fingerprint_ = worker.numerics_fingerprint;
  }
  Opening opened = opening;
  opened.ticket = ++last_ticket_;
  const bool approximate = worker.numerics_fingerprint != numerics_fingerprint_;
  for (int32_t i = 0; i < opening.choices; ++i) {
    choices_[opening.first_choice + i]->Place(connection, opened.ticket, worker.limits, approximate,
                                              now);
  }
  const auto add = [&] {
    WorkerCommand& command = out->commands.emplace_back();
    command.connection = connection;
    return &command.command;
  };
  const std::vector<int32_t>& tokens = choices_[opening.first_choice]->tokens();
  const int32_t total = static_cast<int32_t>(tokens.size());
  int32_t done = std::min(total, kTokensPerCommand);
  pb::Open* open = add()->mutable_open();
  open->set_choices(opening.choices);
  open->set_first_choice(static_cast<uint32_t>(request_.first_choice + opening.first_choice));
  TokensToProto(std::span(tokens).first(done), open->mutable_tokens());
  open->set_total_tokens(total);
  open->set_prompt_length(static_cast<int32_t>(request_.prompt.size()));
  if (request_.max_tokens.has_value()) open->set_max_new(*request_.max_tokens);
  ToProto(request_.sampling, open->mutable_draw());
  open->set_run_ahead(std::min(request_.run_ahead, worker.limits.max_run_ahead));
  open->set_drafts(std::min(request_.drafts, worker.limits.max_drafts));
  if (worker.limits.prompt_logprobs) prompt_.FillOpen(open);
  if (worker.limits.request_id) open->set_request_id(request_.request_id);
  open->set_priority(request_.priority);
  open->set_salt(request_.cache_salt);
  open->set_no_cache(request_.cache_bypass);
  ToProto(now - first_opened_at_, open->mutable_age());
  if (request_.deadline != kNoDeadline) {
    ToProto(std::max<Nanos>(0, request_.deadline - now), open->mutable_time_left());
  }
  while (done < total) {
    const int32_t count = std::min(total - done, kTokensPerCommand);
    TokensToProto(std::span(tokens).subspan(done, count),
                  add()->mutable_open_more()->mutable_tokens());
    done += count;
  }
  return opened;
}

void Session::OnNoWorker(const Opening& opening, const absl::Status& why, bool busy, Nanos now,
                         SessionOutput* out) {
  const size_t messages = out->messages.size();
  for (int32_t i = 0; i < opening.choices; ++i) {
    choices_[opening.first_choice + i]->OnNoPlace(why, busy, now, out);
  }
  if (!started_) out->messages.truncate(messages);
}

void Session::SetHandles(const Opening& opening, uint64_t connection, uint64_t first_handle,
                         SessionOutput* out) {
  for (int32_t i = 0; i < opening.choices; ++i) {
    Choice& choice = *choices_[opening.first_choice + i];
    if (choice.has_ticket(opening.ticket)) {
      choice.SetHandle(first_handle + static_cast<uint64_t>(i));
    } else {
      WorkerCommand& command = out->commands.emplace_back();
      command.connection = connection;
      command.command.mutable_close()->set_handle(first_handle + static_cast<uint64_t>(i));
    }
  }
}

int32_t Session::ChoiceAt(uint64_t connection, uint64_t handle) const {
  for (int32_t i = 0; i < request_.choices; ++i) {
    if (choices_[i]->IsAt(connection, handle)) return i;
  }
  return -1;
}

void Session::OnEvent(const pb::Event& event, int32_t choice, Nanos now, SessionOutput* out) {
  TANDEM_CHECK(choice >= 0 && choice < request_.choices) << "choice " << choice;
  const size_t messages = out->messages.size();
  Choice& target = *choices_[choice];
  switch (event.event_case()) {
    case pb::Event::kOpened:
      target.OnOpened(event.opened(), now);
      if (!started_ && target.opened()) Start(event.opened().cached_tokens(), out);
      return;
    case pb::Event::kPrefill:
      return OnPrefill(event.prefill(), target, out);
    case pb::Event::kPromptLogprobs:
      OnPromptLogprobs(event.prompt_logprobs(), target, now, out);
      break;
    case pb::Event::kCandidates:
      if (!HasPromptLogprobs(target, now, out)) break;
      target.OnCandidates(event.candidates(), now, out);
      break;
    case pb::Event::kFetched:
      target.OnFetched(event.fetched(), now, out);
      break;
    case pb::Event::kClosed:
      target.OnClosed(event.closed(), now, out);
      break;
    case pb::Event::kHello:
    case pb::Event::EVENT_NOT_SET:
      TANDEM_CHECK(false) << "the connection keeps such events to itself";
  }
  if (!started_) out->messages.truncate(messages);
}

void Session::Start(int32_t cached_tokens, SessionOutput* out) {
  started_ = true;
  v1::Started* started = out->messages.emplace_back().mutable_started();
  started->set_request_id(request_.request_id);
  started->set_seed(request_.sampling.seed);
  started->set_prompt_tokens(static_cast<int32_t>(request_.prompt.size()));
  started->set_cached_tokens(cached_tokens);
  started->set_model(request_.model->name);
  started->set_worker_fingerprint(weights_fingerprint_.empty()
                                      ? request_.model->WorkerFingerprint()
                                      : weights_fingerprint_ + "-" + numerics_fingerprint_);
  prompt_.Start(RunningChoices(), out);
}

std::vector<int32_t> Session::RunningChoices() const {
  std::vector<int32_t> running;
  for (int32_t i = 0; i < request_.choices; ++i) {
    if (!choices_[i]->finished()) running.push_back(i);
  }
  return running;
}

void Session::OnPromptLogprobs(const pb::PromptLogprobs& event, Choice& target, Nanos now,
                               SessionOutput* out) {
  absl::Status status = started_ ? prompt_.OnLogprobs(event, RunningChoices(), out)
                                 : InvalidArgument("prompt logprobs before Opened");
  if (status.ok()) return;
  target.Finish(v1::FINISH_REASON_ERROR,
                Internal("the worker broke the protocol: ", status.message()), now, out);
}

bool Session::HasPromptLogprobs(Choice& target, Nanos now, SessionOutput* out) {
  if (prompt_.complete()) return true;
  target.Finish(v1::FINISH_REASON_ERROR,
                absl::UnimplementedError("the worker gave no logprobs of the prompt"), now, out);
  return false;
}

void Session::OnPrefill(const pb::Prefill& event, Choice& target, SessionOutput* out) {
  // Of one that is opened again the output is read too, which is no news to the client.
  if (target.counters().from_lists() + target.counters().fetched() > 0) return;
  // It is one prefill for all choices, whichever of them the worker names.
  for (const auto& each : choices_) each->OnPrefill(event);
  // Choices share one prefill, which is reported once.
  if (!started_ || !request_.prefill_progress || event.done_tokens() <= progress_) return;
  progress_ = event.done_tokens();
  v1::Progress* progress = out->messages.emplace_back().mutable_progress();
  progress->set_done_tokens(event.done_tokens());
  progress->set_total_tokens(event.total_tokens());
}

void Session::FinishAll(v1::FinishReason reason, const absl::Status& status, Nanos now,
                        SessionOutput* out) {
  const size_t messages = out->messages.size();
  for (const auto& choice : choices_) choice->Finish(reason, status, now, out);
  if (!started_) out->messages.truncate(messages);
}

void Session::OnWorkerLost(uint64_t connection, const absl::Status& status, Nanos now,
                           SessionOutput* out) {
  const size_t messages = out->messages.size();
  for (const auto& choice : choices_) {
    if (choice->IsOn(connection)) choice->Unplace(Replay::Cause::kLost, status, now, out);
  }
  if (!started_) out->messages.truncate(messages);
}

bool Session::AwaitsSince(uint64_t connection, Nanos since) const {
  return std::any_of(choices_.begin(), choices_.end(),
                     [&](const auto& c) { return c->AwaitsSince(connection, since); });
}

void Session::Cancel(const absl::Status& status, Nanos now, SessionOutput* out) {
  FinishAll(v1::FINISH_REASON_CANCELLED, status, now, out);
}

Nanos Session::NextTimer() const {
  Nanos next = request_.deadline;
  for (const auto& choice : choices_) {
    if (choice->wants_worker()) next = std::min(next, choice->replay().next_attempt());
    if (paused_at_ >= 0 && choice->placed()) next = std::min(next, paused_at_ + kParkAfter);
  }
  return next;
}

void Session::OnTimer(Nanos now, SessionOutput* out) {
  if (now >= request_.deadline) {
    return FinishAll(v1::FINISH_REASON_DEADLINE, absl::DeadlineExceededError("the deadline passed"),
                     now, out);
  }
  if (paused_at_ < 0 || now < paused_at_ + kParkAfter) return;
  for (const auto& choice : choices_) choice->Park(now, out);
}

void Session::SetPaused(bool paused, Nanos now, SessionOutput* out) {
  if (!paused) paused_at_ = -1;
  if (paused && paused_at_ < 0) paused_at_ = now;
  for (const auto& choice : choices_) choice->SetPaused(paused, now, out);
}

bool Session::done() const {
  return std::all_of(choices_.begin(), choices_.end(), [](const auto& c) { return c->finished(); });
}

absl::Status Session::FinalStatus() const {
  TANDEM_CHECK(done()) << "choices run";
  for (const auto& choice : choices_) {
    const absl::Status& status = choice->status();
    if (!status.ok() && !(started_ && absl::IsDeadlineExceeded(status))) return status;
  }
  return absl::OkStatus();
}

}  // namespace tandem::text
