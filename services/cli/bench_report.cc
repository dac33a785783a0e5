#include "services/cli/bench_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/cli/table.h"
#include "services/cli/terminal.h"

namespace tandem::cli {
namespace {

double ToSeconds(Nanos nanos) { return static_cast<double>(nanos) / kNanosPerSecond; }

double PerSecond(int64_t count, Nanos elapsed) {
  return elapsed > 0 ? static_cast<double>(count) / ToSeconds(elapsed) : 0.0;
}

nlohmann::json ToJson(const LatencyHistogram& latency) {
  return {{"count", latency.count()},
          {"mean", latency.mean() / kNanosPerSecond},
          {"min", ToSeconds(latency.min())},
          {"p50", ToSeconds(latency.Quantile(0.5))},
          {"p90", ToSeconds(latency.Quantile(0.9))},
          {"p99", ToSeconds(latency.Quantile(0.99))},
          {"max", ToSeconds(latency.max())}};
}

void AddLatency(const std::string& run, const char* what, const LatencyHistogram& latency,
                Table* table) {
  if (latency.count() == 0) return;
  table->AddRow(
      {run, what, ShortTime(latency.mean() / kNanosPerSecond),
       ShortTime(ToSeconds(latency.Quantile(0.5))), ShortTime(ToSeconds(latency.Quantile(0.9))),
       ShortTime(ToSeconds(latency.Quantile(0.99))), ShortTime(ToSeconds(latency.max()))});
}

std::string Remarks(const BenchRun& run) {
  const LoadReport& report = run.report;
  std::string text;
  for (const auto& [error, count] : report.errors) {
    absl::StrAppend(&text, run.name, ": ", count, " failed: ", ForTerminal(error), "\n");
  }
  if (report.cancelled > 0) {
    absl::StrAppend(&text, run.name, ": ", report.cancelled, " were cancelled by Ctrl-C\n");
  }
  if (report.send_lag.Quantile(0.99) > kNanosPerSecond / 100) {
    absl::StrAppend(&text, run.name, ": requests were sent late, p99 ",
                    ShortTime(ToSeconds(report.send_lag.Quantile(0.99))),
                    ": the latencies hold that, but the load was less than it should be\n");
  }
  if (!report.server.has_value()) return text;
  const ServerSide& server = *report.server;
  absl::StrAppend(&text, run.name, ": ", WithCommas(server.from_lists),
                  " tokens decided from lists, ", WithCommas(server.fetched), " fetched, ",
                  WithCommas(server.rewound), " cuts, opened again ", WithCommas(server.reopened),
                  " times (", WithCommas(server.approximate), " approximate)\n");
  if (server.misses + server.faults > 0) {
    absl::StrAppend(&text, run.name, ": ", server.misses, " misses and ", server.faults,
                    " faults of workers: a bug\n");
  }
  return text;
}

}  // namespace

std::string BenchText(const std::vector<BenchRun>& runs) {
  using enum Table::Align;
  Table rates({{"LOAD", kLeft},
               {"OK"},
               {"FAILED"},
               {"TIME"},
               {"REQ/S"},
               {"OUTPUT TOK/S"},
               {"ALL TOK/S"},
               {"PROMPT"},
               {"CACHED"},
               {"OUTPUT"}});
  Table latencies({{"LOAD", kLeft}, {"", kLeft}, {"MEAN"}, {"P50"}, {"P90"}, {"P99"}, {"MAX"}});
  std::string remarks;
  for (const BenchRun& run : runs) {
    const LoadReport& report = run.report;
    rates.AddRow({run.name, WithCommas(report.ok), WithCommas(report.failed),
                  ShortTime(ToSeconds(report.elapsed)),
                  absl::StrFormat("%.2f", PerSecond(report.ok, report.elapsed)),
                  absl::StrFormat("%.1f", PerSecond(report.output_tokens, report.elapsed)),
                  absl::StrFormat("%.1f", PerSecond(report.output_tokens + report.prompt_tokens,
                                                    report.elapsed)),
                  WithCommas(report.prompt_tokens), WithCommas(report.cached_tokens),
                  WithCommas(report.output_tokens)});
    AddLatency(run.name, "first token", report.first_token, &latencies);
    AddLatency(run.name, "per output token", report.per_output_token, &latencies);
    AddLatency(run.name, "between messages", report.gap, &latencies);
    AddLatency(run.name, "end to end", report.end_to_end, &latencies);
    AddLatency(run.name, "in the queue", report.queue, &latencies);
    AddLatency(run.name, "prefill", report.prefill, &latencies);
    remarks += Remarks(run);
  }
  std::string text = rates.Text(0);
  if (!latencies.empty()) absl::StrAppend(&text, "\n", latencies.Text(0));
  if (!remarks.empty()) absl::StrAppend(&text, "\n", remarks);
  return text;
}

nlohmann::json BenchJson(const BenchRun& run) {
  const LoadReport& report = run.report;
  nlohmann::json out = run.parameters;
  out["requests"] = {{"ok", report.ok}, {"failed", report.failed}, {"cancelled", report.cancelled}};
  out["errors"] = report.errors;
  out["elapsed_seconds"] = ToSeconds(report.elapsed);
  out["rates"] = {{"requests_per_second", PerSecond(report.ok, report.elapsed)},
                  {"output_tokens_per_second", PerSecond(report.output_tokens, report.elapsed)},
                  {"total_tokens_per_second",
                   PerSecond(report.output_tokens + report.prompt_tokens, report.elapsed)}};
  out["tokens"] = {{"prompt", report.prompt_tokens},
                   {"cached", report.cached_tokens},
                   {"output", report.output_tokens}};
  out["latencies_seconds"] = {{"first_token", ToJson(report.first_token)},
                              {"per_output_token", ToJson(report.per_output_token)},
                              {"between_messages", ToJson(report.gap)},
                              {"end_to_end", ToJson(report.end_to_end)},
                              {"send_lag", ToJson(report.send_lag)}};
  if (!report.server.has_value()) return out;
  out["latencies_seconds"]["queue"] = ToJson(report.queue);
  out["latencies_seconds"]["prefill"] = ToJson(report.prefill);
  const ServerSide& server = *report.server;
  out["counters"] = {{"from_lists", server.from_lists},  {"fetched", server.fetched},
                     {"misses", server.misses},          {"faults", server.faults},
                     {"rewound", server.rewound},        {"reopened", server.reopened},
                     {"approximate", server.approximate}};
  return out;
}

std::string BenchProgress(const std::string& name, double seconds, const LoadMeter& meter,
                          double rate) {
  const int64_t ended = meter.ended;
  return absl::StrFormat("%s: %s, %s ended, %s run, %s failed, %s output tokens, %.0f tok/s\n",
                         name, ShortTime(seconds), WithCommas(ended),
                         WithCommas(std::max<int64_t>(0, meter.started - ended)),
                         WithCommas(meter.failed), WithCommas(meter.output_tokens), rate);
}

}  // namespace tandem::cli
