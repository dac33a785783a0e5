#include "services/text/session.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/status.h"
#include "services/common/decode_codec.h"

namespace tandem::text {
namespace {

namespace pb = decode::v1;

}  // namespace

Session::Session(GenerationRequest request) : request_(std::move(request)) {
  for (int32_t i = 0; i < request_.choices; ++i) {
    choices_.push_back(std::make_unique<Choice>(request_, i));
  }
}

void Session::Open(const WorkerLimits& worker, Nanos now, SessionOutput* out) {
  const std::vector<int32_t>& tokens = request_.prompt;
  const int32_t total = static_cast<int32_t>(tokens.size());
  int32_t done = std::min(total, kTokensPerCommand);
  pb::Open* open = out->commands.emplace_back().mutable_open();
  open->set_choices(request_.choices);
  open->set_first_choice(0);
  TokensToProto(std::span(tokens).first(done), open->mutable_tokens());
  open->set_total_tokens(total);
  open->set_prompt_length(total);
  if (request_.max_tokens.has_value()) open->set_max_new(*request_.max_tokens);
  ToProto(request_.sampling, open->mutable_draw());
  open->set_run_ahead(std::min(request_.run_ahead, worker.max_run_ahead));
  open->set_drafts(std::min(request_.drafts, worker.max_drafts));
  open->set_priority(request_.priority);
  open->set_salt(request_.cache_salt);
  open->set_no_cache(request_.cache_bypass);
  if (request_.deadline != kNoDeadline) {
    ToProto(std::max<Nanos>(0, request_.deadline - now), open->mutable_time_left());
  }
  while (done < total) {
    const int32_t count = std::min(total - done, kTokensPerCommand);
    TokensToProto(std::span(tokens).subspan(done, count),
                  out->commands.emplace_back().mutable_open_more()->mutable_tokens());
    done += count;
  }
}

void Session::SetHandles(uint64_t first_handle) {
  TANDEM_CHECK(first_handle_ == 0 && first_handle != 0) << "handles are given once";
  first_handle_ = first_handle;
  for (int32_t i = 0; i < request_.choices; ++i) choices_[i]->SetHandle(first_handle + i);
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
      // It is one prefill for all choices, whichever of them the worker names.
      for (const auto& each : choices_) each->OnPrefill(event.prefill());
      return OnPrefill(event.prefill(), out);
    case pb::Event::kCandidates:
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
  if (!started_) out->messages.resize(messages);
}

void Session::Start(int32_t cached_tokens, SessionOutput* out) {
  started_ = true;
  v1::Started* started = out->messages.emplace_back().mutable_started();
  started->set_request_id(request_.request_id);
  started->set_seed(request_.sampling.seed);
  started->set_prompt_tokens(static_cast<int32_t>(request_.prompt.size()));
  started->set_cached_tokens(cached_tokens);
  started->set_model(request_.model->name);
  started->set_worker_fingerprint(request_.model->WorkerFingerprint());
}

void Session::OnPrefill(const pb::Prefill& event, SessionOutput* out) {
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
  if (!started_) out->messages.resize(messages);
}

void Session::OnWorkerLost(const absl::Status& status, Nanos now, SessionOutput* out) {
  for (const auto& choice : choices_) choice->ForgetHandle();
  FinishAll(v1::FINISH_REASON_ERROR, status, now, out);
}

void Session::Cancel(const absl::Status& status, Nanos now, SessionOutput* out) {
  FinishAll(v1::FINISH_REASON_CANCELLED, status, now, out);
}

void Session::OnTimer(Nanos now, SessionOutput* out) {
  if (now < request_.deadline) return;
  FinishAll(v1::FINISH_REASON_DEADLINE, absl::DeadlineExceededError("the deadline passed"), now,
            out);
}

void Session::SetPaused(bool paused, Nanos now, SessionOutput* out) {
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
