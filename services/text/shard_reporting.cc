// What a shard counts and what it says in the log.
#include "absl/strings/str_cat.h"
#include "services/common/logging.h"
#include "services/text/shard.h"

namespace tandem::text {
namespace {

// By no fault of the client, which is told of its own; the log is not theirs to fill.
bool IsOurs(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kResourceExhausted:
      return false;
    default:
      return true;
  }
}

double MillisSince(Nanos from, Nanos now) { return static_cast<double>((now - from) / 1000) / 1e3; }

}  // namespace

ShardCounts Shard::counts() const {
  std::lock_guard lock(mutex_);
  return published_;
}

void Shard::Count(const ChoiceMark& before, int32_t choice, Entry* entry) {
  const Session& session = *entry->session;
  if (!entry->admitted && session.started()) CountAdmitted(entry);
  const GenerationRequest& request = session.request();
  const int32_t tokens = before.Count(session.choice(choice), request.received, now_, &counts_);
  if (tokens == 0 || entry->has_tokens) return;
  entry->has_tokens = true;
  counts_.prompt_tokens += static_cast<int64_t>(request.prompt.size());
  counts_.cached_tokens += session.choice(choice).cached_tokens();
}

void Shard::CountAdmitted(Entry* entry) {
  entry->admitted = true;
  --counts_.waiting;
  counts_.queue_seconds.Observe(Seconds(now_ - entry->session->request().received));
}

void Shard::CountRequest(const GenerationRequest& request, const absl::Status& status) {
  ++counts_.requests[static_cast<size_t>(request.door)][static_cast<size_t>(status.code())];
  counts_.request_seconds.Observe(Seconds(now_ - request.received));
}

void Shard::CountEnd(const Entry& entry, const absl::Status& status) {
  const GenerationRequest& request = entry.session->request();
  if (!entry.admitted) --counts_.waiting;
  CountRequest(request, status);
  for (int32_t i = 0; i < request.choices; ++i) {
    ++counts_.choices[static_cast<size_t>(entry.session->choice(i).finish_reason())];
  }
}

void Shard::CountReopening(const Session& session, const Session::Opening& opening,
                           const ServedModel& worker) {
  const bool approximate = worker.numerics_fingerprint != session.numerics_fingerprint();
  for (int32_t i = 0; i < opening.choices; ++i) {
    const Choice& choice = session.choice(opening.first_choice + i);
    ++counts_.reopened[static_cast<size_t>(choice.replay().cause())][approximate ? 1 : 0];
  }
}

void Shard::LogReopening(const Entry& entry, const Placement& placement) const {
  const Session& session = *entry.session;
  const Session::Opening& opening = placement.opening;
  const Choice& first = session.choice(opening.first_choice);
  const bool identical =
      placement.worker.model->numerics_fingerprint == session.numerics_fingerprint();
  LogEvent(LogLevel::kInfo, "reopened",
           {{"request_id", session.request().request_id},
            {"choice", opening.first_choice},
            {"choices", opening.choices},
            {"output_tokens", first.output_tokens()},
            {"worker", placement.worker.worker},
            {"numerics", identical ? "identical" : "approximate"},
            {"tries", first.replay().tries()},
            {"most_tries", policy_.tries},
            {"reason", first.replay().reason()}});
}

void Shard::LogEnd(const Session& session, const absl::Status& status) const {
  const GenerationRequest& request = session.request();
  int64_t output_tokens = 0, misses = 0, faults = 0, reopened = 0;
  std::string finish;
  for (int32_t i = 0; i < request.choices; ++i) {
    const Choice& choice = session.choice(i);
    output_tokens += choice.output_tokens();
    misses += choice.counters().misses();
    faults += choice.counters().faults();
    reopened += choice.counters().reopened();
    absl::StrAppend(&finish, i > 0 ? "," : "", FinishLabel(choice.finish_reason()));
  }
  const bool failed = IsOurs(status) || misses + faults > 0;
  if (!failed && !log_requests_) return;
  LogEvent(failed ? LogLevel::kError : LogLevel::kInfo,
           failed ? "request_failed" : "request_finished",
           {{"request_id", request.request_id},
            {"door", Name(request.door)},
            {"model", request.model->name},
            {"status", absl::StatusCodeToString(status.code())},
            {"finish", finish},
            {"prompt_tokens", request.prompt.size()},
            {"output_tokens", output_tokens},
            {"milliseconds", MillisSince(request.received, now_)},
            {"misses", misses},
            {"faults", faults},
            {"reopened", reopened},
            {"error", std::string(status.message())}});
}

}  // namespace tandem::text
