// The worker's metrics: the table of all of them, and the text that Prometheus reads.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "engine/decode_engine.h"
#include "engine/memory_plan.h"
#include "services/common/metrics.h"
#include "services/worker/session_ends.h"
#include "services/worker/worker_counts.h"

namespace tandem {

std::span<const MetricSpec> WorkerMetricTable();

// Everything that the metrics and the status line are made of. Before the model is loaded all of it
// is zero and empty.
struct WorkerSnapshot {
  std::string device_kind;  // "cpu", "cuda", ...
  MemoryPlan memory;
  int32_t step_rows = 0;  // most rows of a step
  int32_t streams = 0;
  EngineLoad load;
  WorkerCounts counts;
  std::array<int64_t, SessionEnds::kNumReasons> ends{};
};

// In Prometheus' text format.
std::string ExposeMetrics(const WorkerSnapshot& snapshot);

// "12 running, 3 queued, 1,204 tok/s, 83 steps/s, step 11 ms (median), pages 61 % free" for the
// log, as an event with fields. earlier: the snapshot that was taken so long ago. Nothing is
// written where nothing ran in between.
void LogStatus(const WorkerSnapshot& now, const WorkerSnapshot& earlier, double seconds);

}  // namespace tandem
