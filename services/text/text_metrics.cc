#include "services/text/text_metrics.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "services/common/logging.h"
#include "services/common/version.h"

namespace tandem::text {
namespace {

using Type = MetricSpec::Type;

constexpr MetricSpec kTable[] = {
    {"tandem_text_build_info", Type::kGauge, "version", "1; the label says what runs"},
    {"tandem_text_requests_total", Type::kCounter, "door: grpc, http; status: OK, CANCELLED, ...",
     "Generations that ended, refused ones too, by the status that the client got"},
    {"tandem_text_refused_requests_total", Type::kCounter,
     "door; reason: too_many, draining, no_worker, no_model, invalid, no_key, gone",
     "Those of them that were turned away before they came to a session"},
    {"tandem_text_requests_running", Type::kGauge, "", "Generations that have a session"},
    {"tandem_text_requests_waiting", Type::kGauge, "",
     "Those of them that no worker has admitted yet"},
    {"tandem_text_tasks_waiting", Type::kGauge, "",
     "Requests that wait for a thread that renders and tokenises"},
    {"tandem_text_queue_seconds", Type::kHistogram, "",
     "From a request's arrival until a worker admits it", kQueueBounds},
    {"tandem_text_time_to_first_token_seconds", Type::kHistogram, "",
     "From a request's arrival until a choice's first token is decided", kFirstTokenBounds},
    {"tandem_text_inter_token_seconds", Type::kHistogram, "",
     "Between a choice's token and the one before it; 0 for all but the first of those that were "
     "decided together",
     kTokenBounds},
    {"tandem_text_request_seconds", Type::kHistogram, "",
     "From a request's arrival to its end, of those that came to a session", kRequestBounds},
    {"tandem_text_choices_total", Type::kCounter,
     "finish: stop_string, stop_token, end_of_text, max_tokens, context_full, deadline, cancelled, "
     "error",
     "Choices that ended"},
    {"tandem_text_prompt_tokens_total", Type::kCounter, "",
     "Prompt tokens of requests that have a first token"},
    {"tandem_text_cached_prompt_tokens_total", Type::kCounter, "",
     "Those of them that the worker found in its cache"},
    {"tandem_text_output_tokens_total", Type::kCounter, "decided_from: lists, fetched",
     "Tokens decided, from the worker's lists or from what had to be fetched beyond them"},
    {"tandem_text_confirmed_draws_total", Type::kCounter, "",
     "Tokens that the worker had drawn as well, so that it ran ahead without waiting for them"},
    {"tandem_text_misses_total", Type::kCounter, "",
     "Worker's draws unlike the decision; not 0: a bug"},
    {"tandem_text_faults_total", Type::kCounter, "",
     "Worker's list entries unlike what this side computes; not 0: a bug"},
    {"tandem_text_rewinds_total", Type::kCounter, "", "Extends that cut what the worker held"},
    {"tandem_text_fetch_seconds", Type::kHistogram, "",
     "From the first Fetch of a position until its token is decided", kTokenBounds},
    {"tandem_text_worker_wait_seconds", Type::kHistogram, "",
     "From a choice's last Extend to the Candidates of its next token, where nothing drawn ahead "
     "was left to decide: the wire and the worker's step",
     kTokenBounds},
    {"tandem_text_decide_seconds", Type::kHistogram, "",
     "Of a shard's wake-up that decided tokens: from its mail to the last message handed on",
     kDecideBounds},
    {"tandem_text_reopened_choices_total", Type::kCounter,
     "reason: lost, fault, draining, preempted, refused, unread; numerics: identical, approximate",
     "Choices opened again on a worker, by what they left the last one for"},
    {"tandem_text_slow_client_pauses_total", Type::kCounter, "",
     "Times that a session stopped because its client did not read"},
    {"tandem_text_workers", Type::kGauge, "state: ready, suspect, draining, lost",
     "Workers that this process was given, by what became of them"},
    {"tandem_text_worker_sessions_running", Type::kGauge, "worker: its address",
     "Sessions that run on a connected worker, of all text replicas, as it said last"},
    {"tandem_text_worker_sessions_queued", Type::kGauge, "worker", "Sessions that wait there"},
    {"tandem_text_worker_pages", Type::kGauge, "worker", "Pages of its KV cache"},
    {"tandem_text_worker_free_pages", Type::kGauge, "worker", "Those of them that no session has"},
    {"tandem_text_worker_cached_pages", Type::kGauge, "worker",
     "Those of the free ones that hold tokens which may be asked for again"},
    {"tandem_text_http_connections", Type::kGauge, "", "Open connections of the HTTP server"},
    {"tandem_text_http_streams", Type::kGauge, "", "HTTP answers that are being streamed"},
};

constexpr std::array<std::string_view, kNumRefusals> kRefusalNames = {
    "too_many", "draining", "no_worker", "no_model", "invalid", "no_key", "gone"};
constexpr std::array<std::string_view, Replay::kNumCauses> kCauseNames = {
    "lost", "fault", "draining", "preempted", "refused", "unread"};
constexpr std::array<std::string_view, WorkerReports::kNumStates> kStateNames = {
    "lost", "ready", "suspect", "draining"};
constexpr std::array<Door, kNumDoors> kDoors = {Door::kGrpc, Door::kHttp};

double Double(int64_t count) { return static_cast<double>(count); }

void ExposeRequests(const TextSnapshot& snapshot, Exposition* out) {
  for (const Door door : kDoors) {
    const auto d = static_cast<size_t>(door);
    for (size_t code = 0; code < kNumStatusCodes; ++code) {
      const std::string name = absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
      out->Add("tandem_text_requests_total", {{"door", Name(door)}, {"status", name}},
               Double(snapshot.shards.requests[d][code] + snapshot.refusals.by_status[d][code]));
    }
    for (size_t reason = 0; reason < kNumRefusals; ++reason) {
      out->Add("tandem_text_refused_requests_total",
               {{"door", Name(door)}, {"reason", kRefusalNames[reason]}},
               Double(snapshot.refusals.by_reason[d][reason]));
    }
  }
}

void ExposeShards(const ShardCounts& shards, Exposition* out) {
  out->Add("tandem_text_requests_running", {}, Double(shards.running));
  out->Add("tandem_text_requests_waiting", {}, Double(shards.waiting));
  out->Add("tandem_text_queue_seconds", {}, shards.queue_seconds.view());
  out->Add("tandem_text_time_to_first_token_seconds", {}, shards.first_token_seconds.view());
  out->Add("tandem_text_inter_token_seconds", {}, shards.inter_token_seconds.view());
  out->Add("tandem_text_request_seconds", {}, shards.request_seconds.view());
  for (int reason = v1::FINISH_REASON_STOP_STRING; reason < v1::FinishReason_ARRAYSIZE; ++reason) {
    const std::string name = FinishLabel(static_cast<v1::FinishReason>(reason));
    out->Add("tandem_text_choices_total", {{"finish", name}},
             Double(shards.choices[static_cast<size_t>(reason)]));
  }
  out->Add("tandem_text_prompt_tokens_total", {}, Double(shards.prompt_tokens));
  out->Add("tandem_text_cached_prompt_tokens_total", {}, Double(shards.cached_tokens));
  const char* const tokens = "tandem_text_output_tokens_total";
  out->Add(tokens, {{"decided_from", "lists"}}, Double(shards.from_lists));
  out->Add(tokens, {{"decided_from", "fetched"}}, Double(shards.fetched));
  out->Add("tandem_text_confirmed_draws_total", {}, Double(shards.confirmed_draws));
  out->Add("tandem_text_misses_total", {}, Double(shards.misses));
  out->Add("tandem_text_faults_total", {}, Double(shards.faults));
  out->Add("tandem_text_rewinds_total", {}, Double(shards.rewinds));
  out->Add("tandem_text_fetch_seconds", {}, shards.fetch_seconds.view());
  out->Add("tandem_text_worker_wait_seconds", {}, shards.worker_wait_seconds.view());
  out->Add("tandem_text_decide_seconds", {}, shards.decide_seconds.view());
  for (size_t cause = 0; cause < kCauseNames.size(); ++cause) {
    for (const size_t approximate : {0, 1}) {
      out->Add("tandem_text_reopened_choices_total",
               {{"reason", kCauseNames[cause]},
                {"numerics", approximate == 0 ? "identical" : "approximate"}},
               Double(shards.reopened[cause][approximate]));
    }
  }
  out->Add("tandem_text_slow_client_pauses_total", {}, Double(shards.pauses));
}

void ExposeWorkers(const std::vector<WorkerReports::Report>& workers, Exposition* out) {
  std::array<int64_t, WorkerReports::kNumStates> states{};
  for (const WorkerReports::Report& worker : workers) {
    ++states[static_cast<size_t>(worker.state)];
    if (worker.state == WorkerReports::State::kLost) continue;
    const std::string_view address = worker.address;
    out->Add("tandem_text_worker_sessions_running", {{"worker", address}}, Double(worker.running));
    out->Add("tandem_text_worker_sessions_queued", {{"worker", address}}, Double(worker.queued));
    out->Add("tandem_text_worker_pages", {{"worker", address}}, Double(worker.total_pages));
    out->Add("tandem_text_worker_free_pages", {{"worker", address}}, Double(worker.free_pages));
    out->Add("tandem_text_worker_cached_pages", {{"worker", address}}, Double(worker.cached_pages));
  }
  for (size_t state = 0; state < states.size(); ++state) {
    out->Add("tandem_text_workers", {{"state", kStateNames[state]}}, Double(states[state]));
  }
}

}  // namespace

std::span<const MetricSpec> TextMetricTable() { return kTable; }

Refusal RefusalOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      return Refusal::kNoWorker;
    case absl::StatusCode::kNotFound:
      return Refusal::kNoModel;
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
      return Refusal::kGone;
    case absl::StatusCode::kResourceExhausted:
      return Refusal::kTooMany;
    case absl::StatusCode::kUnauthenticated:
      return Refusal::kNoKey;
    default:
      return Refusal::kInvalid;
  }
}

void RefusalCounts::Count(Door door, Refusal reason, const absl::Status& status) {
  const auto d = static_cast<size_t>(door);
  by_reason_[d][static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
  by_status_[d][static_cast<size_t>(status.code())].fetch_add(1, std::memory_order_relaxed);
}

RefusalCounts::Snapshot RefusalCounts::snapshot() const {
  Snapshot out;
  for (size_t d = 0; d < kNumDoors; ++d) {
    for (size_t i = 0; i < kNumRefusals; ++i) out.by_reason[d][i] = by_reason_[d][i];
    for (size_t i = 0; i < kNumStatusCodes; ++i) out.by_status[d][i] = by_status_[d][i];
  }
  return out;
}

void WorkerReports::SetAddresses(const std::vector<std::string>& addresses) {
  std::lock_guard lock(mutex_);
  reports_.clear();
  for (size_t i = 0; i < addresses.size(); ++i) {
    const auto before = std::count(addresses.begin(), addresses.begin() + i, addresses[i]);
    reports_.push_back(
        {.address = before == 0 ? addresses[i] : absl::StrCat(addresses[i], "#", before + 1)});
  }
}

WorkerReports::Report* WorkerReports::FindLocked(uint64_t connection) {
  const auto found = by_connection_.find(connection);
  return found == by_connection_.end() ? nullptr : &reports_[found->second];
}

void WorkerReports::Connected(int32_t worker, uint64_t connection) {
  std::lock_guard lock(mutex_);
  const auto index = static_cast<size_t>(worker);
  by_connection_[connection] = index;
  reports_[index] = {.address = reports_[index].address, .state = State::kReady};
}

void WorkerReports::Lost(uint64_t connection) {
  std::lock_guard lock(mutex_);
  if (Report* const report = FindLocked(connection)) report->state = State::kLost;
  by_connection_.erase(connection);
}

void WorkerReports::SetSuspect(uint64_t connection, bool suspect) {
  std::lock_guard lock(mutex_);
  Report* const report = FindLocked(connection);
  if (report == nullptr || report->state == State::kDraining) return;
  report->state = suspect ? State::kSuspect : State::kReady;
}

void WorkerReports::SetDraining(uint64_t connection) {
  std::lock_guard lock(mutex_);
  if (Report* const report = FindLocked(connection)) report->state = State::kDraining;
}

void WorkerReports::Update(uint64_t connection, const decode::v1::Load& load) {
  std::lock_guard lock(mutex_);
  Report* const report = FindLocked(connection);
  if (report == nullptr) return;
  report->running = load.running();
  report->queued = load.queued();
  report->free_pages = load.free_pages();
  report->cached_pages = load.cached_pages();
  report->total_pages = load.total_pages();
}

std::vector<WorkerReports::Report> WorkerReports::snapshot() const {
  std::lock_guard lock(mutex_);
  return reports_;
}

std::string ExposeMetrics(const TextSnapshot& snapshot) {
  Exposition out(kTable);
  out.Add("tandem_text_build_info", {{"version", Version()}}, 1.0);
  ExposeRequests(snapshot, &out);
  out.Add("tandem_text_tasks_waiting", {}, Double(snapshot.tasks_waiting));
  ExposeShards(snapshot.shards, &out);
  ExposeWorkers(snapshot.workers, &out);
  out.Add("tandem_text_http_connections", {}, Double(snapshot.http.connections));
  out.Add("tandem_text_http_streams", {}, Double(snapshot.http.streams));
  return out.Text();
}

}  // namespace tandem::text
