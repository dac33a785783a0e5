#include "services/worker/worker_metrics.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/common/logging.h"
#include "services/common/status_text.h"
#include "services/common/version.h"

namespace tandem {
namespace {

using Type = MetricSpec::Type;

constexpr MetricSpec kTable[] = {
    {"tandem_worker_build_info", Type::kGauge, "version; device_kind: cpu, cuda, reference",
     "1; the labels say what runs"},
    {"tandem_worker_streams", Type::kGauge, "", "Decode streams, one a text replica"},
    {"tandem_worker_sessions_running", Type::kGauge, "", "Sessions that have a place"},
    {"tandem_worker_sessions_queued", Type::kGauge, "", "Opens that wait for one"},
    {"tandem_worker_queued_prefill_tokens", Type::kGauge, "", "Prompt tokens that are to be run"},
    {"tandem_worker_opened_sessions_total", Type::kCounter, "", "Sessions that were admitted"},
    {"tandem_worker_closed_sessions_total", Type::kCounter,
     "reason: done, preempted, draining, expired, refused, non_finite, fault, stream_ended",
     "Sessions that ended, those too that were never admitted"},
    {"tandem_worker_steps_total", Type::kCounter, "", "Steps whose results are here"},
    {"tandem_worker_step_seconds", Type::kHistogram, "",
     "Of a step, from its launch to its results, less the time that it waited for the one before",
     kStepBounds},
    {"tandem_worker_busy_seconds_total", Type::kCounter, "", "Time with a step on the device"},
    {"tandem_worker_engine_seconds_total", Type::kCounter,
     "phase: commands, launch, wait, collect, post",
     "Time of the engine's thread: taking commands in; putting a step together and starting it (on "
     "a CPU, computing it); waiting for the device; results to events; handing events on"},
    {"tandem_worker_step_rows", Type::kHistogram, "kind: decode, prefill",
     "Rows of a step; those of drafts and fetches are decode rows", kRowBounds},
    {"tandem_worker_step_rows_limit", Type::kGauge, "",
     "Most rows of a step (--step-tokens), to hold them against"},
    {"tandem_worker_candidates_total", Type::kCounter, "",
     "Positions whose candidates were handed on"},
    {"tandem_worker_prefilled_tokens_total", Type::kCounter, "", "Prompt tokens that were run"},
    {"tandem_worker_reused_tokens_total", Type::kCounter, "",
     "Prompt tokens that were found in the cache"},
    {"tandem_worker_fetches_total", Type::kCounter, "what: lists, ids, row",
     "Fetches that text tiers sent"},
    {"tandem_worker_cuts_total", Type::kCounter, "", "Extends that cut what was held"},
    {"tandem_worker_drafted_tokens_total", Type::kCounter, "", "Guesses that were verified"},
    {"tandem_worker_taken_drafts_total", Type::kCounter, "", "Those of them that were drawn"},
    {"tandem_worker_pages", Type::kGauge, "", "Pages of the KV cache"},
    {"tandem_worker_free_pages", Type::kGauge, "", "Those of them that no session has"},
    {"tandem_worker_cached_pages", Type::kGauge, "",
     "Those of the free ones that hold tokens which may be asked for again"},
    {"tandem_worker_evicted_pages_total", Type::kCounter, "",
     "Cached pages that were taken for other tokens"},
    {"tandem_worker_preempted_sessions_total", Type::kCounter, "",
     "Sessions whose pages were taken away"},
    {"tandem_worker_device_memory_bytes", Type::kGauge,
     "kind: weights, activations, slots, kv_pages, workspace",
     "Memory of the device that is taken at the start, for all that comes"},
};

constexpr std::array<std::string_view, kNumEnginePhases> kPhaseNames = {"commands", "launch",
                                                                        "wait", "collect", "post"};
constexpr std::array<std::string_view, 3> kFetchNames = {"lists", "ids", "row"};

double Double(int64_t count) { return static_cast<double>(count); }

void ExposeLoad(const EngineLoad& load, Exposition* out) {
  const std::pair<std::string_view, int64_t> values[] = {
      {"tandem_worker_sessions_running", load.running},
      {"tandem_worker_sessions_queued", load.queued},
      {"tandem_worker_queued_prefill_tokens", load.queued_prefill_tokens},
      {"tandem_worker_prefilled_tokens_total", load.prefilled_tokens},
      {"tandem_worker_reused_tokens_total", load.reused_tokens},
      {"tandem_worker_cuts_total", load.cuts},
      {"tandem_worker_drafted_tokens_total", load.drafted_tokens},
      {"tandem_worker_taken_drafts_total", load.taken_drafts},
      {"tandem_worker_pages", load.total_pages},
      {"tandem_worker_free_pages", load.free_pages},
      {"tandem_worker_cached_pages", load.cached_pages},
      {"tandem_worker_evicted_pages_total", load.evicted_pages},
      {"tandem_worker_preempted_sessions_total", load.preempted},
  };
  for (const auto& [name, value] : values) out->Add(name, {}, Double(value));
}

void ExposeCounts(const WorkerCounts& counts, Exposition* out) {
  out->Add("tandem_worker_opened_sessions_total", {}, Double(counts.opened));
  out->Add("tandem_worker_steps_total", {}, Double(counts.steps));
  out->Add("tandem_worker_step_seconds", {}, counts.step_seconds.view());
  out->Add("tandem_worker_busy_seconds_total", {}, counts.busy_seconds);
  for (size_t i = 0; i < kNumEnginePhases; ++i) {
    out->Add("tandem_worker_engine_seconds_total", {{"phase", kPhaseNames[i]}},
             counts.engine_seconds[i]);
  }
  out->Add("tandem_worker_step_rows", {{"kind", "decode"}}, counts.decode_rows.view());
  out->Add("tandem_worker_step_rows", {{"kind", "prefill"}}, counts.prefill_rows.view());
  out->Add("tandem_worker_candidates_total", {}, Double(counts.candidates));
  for (size_t i = 0; i < kFetchNames.size(); ++i) {
    out->Add("tandem_worker_fetches_total", {{"what", kFetchNames[i]}}, Double(counts.fetches[i]));
  }
}

void ExposeMemory(const MemoryPlan& memory, Exposition* out) {
  const std::pair<std::string_view, int64_t> kinds[] = {{"weights", memory.weights},
                                                        {"activations", memory.activations},
                                                        {"slots", memory.slots},
                                                        {"kv_pages", memory.kv_pages},
                                                        {"workspace", memory.workspace}};
  for (const auto& [kind, bytes] : kinds) {
    out->Add("tandem_worker_device_memory_bytes", {{"kind", kind}}, Double(bytes));
  }
}

}  // namespace

std::span<const MetricSpec> WorkerMetricTable() { return kTable; }

std::string ExposeMetrics(const WorkerSnapshot& snapshot) {
  Exposition out(kTable);
  out.Add("tandem_worker_build_info",
          {{"version", Version()}, {"device_kind", snapshot.device_kind}}, 1.0);
  out.Add("tandem_worker_streams", {}, snapshot.streams);
  out.Add("tandem_worker_step_rows_limit", {}, snapshot.step_rows);
  ExposeLoad(snapshot.load, &out);
  ExposeCounts(snapshot.counts, &out);
  for (size_t i = 0; i < snapshot.ends.size(); ++i) {
    out.Add("tandem_worker_closed_sessions_total", {{"reason", SessionEnds::kNames[i]}},
            Double(snapshot.ends[i]));
  }
  ExposeMemory(snapshot.memory, &out);
  return out.Text();
}

void LogStatus(const WorkerSnapshot& now, const WorkerSnapshot& earlier, double seconds) {
  const int64_t steps = now.counts.steps - earlier.counts.steps;
  const EngineLoad& load = now.load;
  if (steps == 0 && load.running + load.queued == 0) return;
  auto step_seconds = now.counts.step_seconds;
  step_seconds.Subtract(earlier.counts.step_seconds);
  const double median = Quantile(step_seconds.view(), 0.5);
  const double tokens = Double(now.counts.candidates - earlier.counts.candidates) / seconds;
  const double rate = Double(steps) / seconds;
  const int64_t percent = load.total_pages > 0 ? 100 * load.free_pages / load.total_pages : 0;
  const std::string text =
      absl::StrCat(load.running, " running, ", load.queued, " queued, ", Grouped(tokens),
                   " tok/s, ", Grouped(rate), " steps/s, ",
                   steps > 0 ? absl::StrFormat("step %.2g ms (median), ", 1e3 * median) : "",
                   "pages ", percent, " % free");
  LogEvent(LogLevel::kInfo, "status",
           {{"running", load.running},
            {"queued", load.queued},
            {"tokens_per_second", tokens},
            {"steps_per_second", rate},
            {"step_seconds_p50", median},
            {"pages_free_percent", percent}},
           text);
}

}  // namespace tandem
