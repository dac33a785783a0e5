#include "services/text/http/http_generation.h"

#include <ctime>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "services/text/message_check.h"

namespace tandem::text {
namespace {

// Ids of a call's requests differ from each other, and stay within the limit.
std::string NumberedId(const std::string& id, size_t prompt) {
  const std::string number = absl::StrCat("-", prompt);
  return id.substr(0, kMaxRequestIdBytes - number.size()) + number;
}

absl::Status ClientGone() { return absl::CancelledError("the client is gone"); }

absl::Status DeadlinePassed() { return absl::DeadlineExceededError("the deadline passed"); }

}  // namespace

HttpGeneration::HttpGeneration(Intake* intake, Arrival arrival, Reply reply)
    : intake_(intake), reply_(std::move(reply)), arrival_(std::move(arrival)) {}

HttpGeneration::~HttpGeneration() {
  if (opened_) --*arrival_.streams;
}

void HttpGeneration::Start(Intake* intake, Arrival arrival, Reply reply) {
  Intake::Place place;
  absl::Status status = intake->Admit(1, &place);
  const auto call = std::make_shared<HttpGeneration>(intake, std::move(arrival), std::move(reply));
  if (status.ok()) {
    call->place_ = std::move(place);  // nobody else knows it yet
    call->reply_.exchange().Watch(call);
    status = intake->Post([call] { call->Run(); });
  }
  if (status.ok()) return;
  intake->CountRefusal(Door::kHttp, status);
  Told told;
  std::lock_guard lock(call->mutex_);
  call->FailLocked(status, -1, &told);
}

void HttpGeneration::Run() {
  std::vector<GenerationRequest> prepared;
  int32_t prompt = -1;
  const absl::Status status = Prepare(&prepared, &prompt);
  if (status.ok()) return Submit(std::move(prepared));
  intake_->CountRefusal(Door::kHttp, status);
  Told told;
  std::lock_guard lock(mutex_);
  if (!done_) FailLocked(status, prompt, &told);
  const Intake::Place given_back = TakePlaceLocked();
}

absl::Status HttpGeneration::Prepare(std::vector<GenerationRequest>* prepared, int32_t* prompt) {
  if (reply_.exchange().gone()) return ClientGone();
  if (arrival_.deadline <= SteadyNow()) return DeadlinePassed();
  ASSIGN_OR_RETURN(call_, ParseCompletionCall(arrival_.endpoint, arrival_.body));
  std::string().swap(arrival_.body);
  const size_t prompts = call_.requests.size();
  ASSIGN_OR_RETURN(const std::string id, ChooseRequestId());
  {
    std::lock_guard lock(mutex_);
    reply_.SetRequestId(id);
    if (prompts > 1) RETURN_IF_ERROR(intake_->Admit(static_cast<int32_t>(prompts) - 1, &place_));
  }
  for (size_t p = 0; p < prompts; ++p) {
    v1::GenerateRequest& request = call_.requests[p];
    request.set_request_id(prompts == 1 ? id : NumberedId(id, p));
    *prompt = static_cast<int32_t>(p);
    RETURN_IF_ERROR(CheckMessage(request));
    ASSIGN_OR_RETURN(GenerationRequest one,
                     intake_->Prepare(request, Door::kHttp, arrival_.received, arrival_.deadline));
    prepared->push_back(std::move(one));
    request.Clear();  // a long prompt is not kept twice
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> HttpGeneration::ChooseRequestId() const {
  const std::string& named = call_.requests.front().request_id();
  if (arrival_.request_id.empty()) return named.empty() ? arrival_.id : named;
  if (!named.empty() && named != arrival_.request_id) {
    return InvalidArgument("request_id is ", named, ", and x-request-id ", arrival_.request_id,
                           ": they must be the same, or one of them not there");
  }
  return arrival_.request_id;
}

void HttpGeneration::Submit(std::vector<GenerationRequest> prepared) {
  std::vector<Shard*> shards;
  bool gone = false;
  {
    std::lock_guard lock(mutex_);
    gone = done_;
    if (!gone) {
      answer_.emplace(call_, arrival_.id, std::time(nullptr));
      for (const GenerationRequest& request : prepared) {
        Part& part =
            parts_.emplace_back(this, static_cast<int32_t>(parts_.size()), intake_->NextKey());
        part.call.SetShard(intake_->ShardOf(request));
        part.submitted = true;
        shards.push_back(intake_->ShardOf(request));
      }
    }
    const Intake::Place given_back = TakePlaceLocked();
  }
  if (gone) intake_->CountRefusal(Door::kHttp, ClientGone());
  for (size_t p = 0; p < shards.size(); ++p) {
    shards[p]->Submit(parts_[p].call.key(), std::move(prepared[p]),
                      std::shared_ptr<ResponseSink>(shared_from_this(), &parts_[p].sink));
  }
}

bool HttpGeneration::Write(int32_t prompt, v1::GenerateResponse* message) {
  std::lock_guard lock(mutex_);
  // What is collected does not wait for the client.
  return parts_[prompt].call.Write(message, opened_ ? reply_.exchange().waiting_bytes() : 0);
}

void HttpGeneration::Flush() {
  Told told;
  {
    std::lock_guard lock(mutex_);
    PumpLocked(&told);
  }
  Tell(told);
}

void HttpGeneration::Finish(int32_t prompt, absl::Status status) {
  Told told;
  Intake::Place given_back;
  {
    std::lock_guard lock(mutex_);
    parts_[prompt].call.Finish(std::move(status));
    PumpLocked(&told);
    given_back = TakePlaceLocked();
  }
  Tell(told);
}

bool HttpGeneration::cancelled(int32_t prompt) const {
  std::lock_guard lock(mutex_);
  return parts_[prompt].call.cancelled();
}

void HttpGeneration::OnDrained() {
  Told told;
  Intake::Place given_back;
  {
    std::lock_guard lock(mutex_);
    PumpLocked(&told);
    given_back = TakePlaceLocked();
  }
  Tell(told);
}

void HttpGeneration::OnGone() {
  Told told;
  Intake::Place given_back;
  {
    std::lock_guard lock(mutex_);
    done_ = true;
    CancelAllLocked(&told);
    given_back = TakePlaceLocked();
  }
  Tell(told);
}

void HttpGeneration::PumpLocked(Told* told) {
  HttpExchange& exchange = reply_.exchange();
  const int32_t prompts = static_cast<int32_t>(parts_.size());
  const auto has_room = [&] {
    return !opened_ || exchange.waiting_bytes() <= HttpExchange::kDrainMark;
  };
  for (int32_t i = 0; i < prompts && !done_ && has_room(); ++i) {
    const int32_t prompt = (first_ + i) % prompts;
    Part& part = parts_[prompt];
    while (!done_ && has_room() && part.call.Take(&taken_)) AcceptLocked(prompt, told);
    const absl::Status* const end = part.call.end();
    if (done_ || end == nullptr || part.answered) continue;
    part.answered = true;
    if (!end->ok()) {
      FailLocked(*end, prompt, told);
    } else if (++answered_ == prompts) {
      CompleteLocked();
    }
  }
  if (done_) return;
  if (opened_) {
    first_ = (first_ + 1) % prompts;
    exchange.Flush();
  }
  const int64_t behind = opened_ ? exchange.waiting_bytes() : 0;
  for (Part& part : parts_) {
    if (Shard* const shard = part.call.TakeResume(behind); shard != nullptr) {
      told->resumed.emplace_back(shard, part.call.key());
    }
  }
}

void HttpGeneration::AcceptLocked(int32_t prompt, Told* told) {
  const bool finished = taken_.has_finished();
  const v1::FinishReason reason =
      finished ? taken_.finished().reason() : v1::FINISH_REASON_UNSPECIFIED;
  has_output_ |= taken_.has_delta() && !taken_.delta().echo();
  if (reason == v1::FINISH_REASON_DEADLINE && !has_output_ && !opened_) {
    return FailLocked(DeadlinePassed(), prompt, told);
  }
  answer_->Add(prompt, taken_, &out_);
  if (!stream()) {
    if (answer_->too_large()) {
      // Not RESOURCE_EXHAUSTED, which clients would try again.
      FailLocked(absl::OutOfRangeError(absl::StrCat("the answer is too large: at most ",
                                                    CompletionAnswer::kMaxBytes,
                                                    " bytes; with stream there is no limit")),
                 -1, told);
    }
    return;
  }
  // The end of a choice that failed is followed by its status, which is the answer if nothing is
  // out yet.
  const bool failed = reason == v1::FINISH_REASON_ERROR || reason == v1::FINISH_REASON_CANCELLED;
  if (!opened_ && (taken_.has_delta() || taken_.has_prompt_logprobs() || (finished && !failed))) {
    OpenLocked();
  }
  if (opened_ && !out_.empty()) {
    reply_.exchange().Write(out_);
    out_.clear();
  }
}

void HttpGeneration::FailLocked(const absl::Status& status, int32_t prompt, Told* told) {
  done_ = true;
  if (opened_) {
    answer_->Fail(status, &out_);
    reply_.exchange().Write(out_);
    reply_.exchange().End();
  } else {
    reply_.SendError(ErrorOf(status, call_.names, prompt));
  }
  CancelAllLocked(told);
}

void HttpGeneration::CompleteLocked() {
  done_ = true;
  answer_->Finish(&out_);
  if (!stream()) return reply_.SendJson(std::move(out_));
  if (!opened_) OpenLocked();
  reply_.exchange().Write(out_);
  reply_.exchange().End();
}

void HttpGeneration::OpenLocked() {
  opened_ = true;
  ++*arrival_.streams;
  reply_.StartEvents();
}

void HttpGeneration::CancelAllLocked(Told* told) {
  for (Part& part : parts_) {
    const bool runs = !part.call.finished();
    Shard* const shard = part.call.Cancel();
    if (runs && shard != nullptr) told->cancelled.emplace_back(shard, part.call.key());
  }
}

Intake::Place HttpGeneration::TakePlaceLocked() {
  Intake::Place place;
  if (!done_) return place;
  for (const Part& part : parts_) {
    if (part.submitted && !part.call.finished()) return place;
  }
  place = std::move(place_);
  return place;
}

void HttpGeneration::Tell(const Told& told) {
  for (const auto& [shard, key] : told.resumed) shard->Resume(key);
  for (const auto& [shard, key] : told.cancelled) shard->Cancel(key);
}

}  // namespace tandem::text
