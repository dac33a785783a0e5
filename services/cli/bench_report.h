// What a bench found, as text and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "services/cli/load_generator.h"

namespace tandem::cli {

struct BenchRun {
  std::string name;  // "4 at once", "10/s"
  nlohmann::json parameters;
  LoadReport report;
};

// A table of rates and one of latencies, a line a run, then errors and what is out of the ordinary.
std::string BenchText(const std::vector<BenchRun>& runs);

// {"concurrency" or "rate", ..., "requests": {"ok", "failed", "cancelled"}, "errors",
//  "elapsed_seconds", "rates", "tokens", "latencies_seconds", "counters"}; each latency is
// {"count", "mean", "min", "p50", "p90", "p99", "max"}. "counters" and the latencies "queue" and
// "prefill" are there where the server says them.
nlohmann::json BenchJson(const BenchRun& run);

// One line for a terminal while it runs. seconds: since the start; rate: output tokens a second of
// late.
std::string BenchProgress(const std::string& name, double seconds, const LoadMeter& meter,
                          double rate);

}  // namespace tandem::cli
