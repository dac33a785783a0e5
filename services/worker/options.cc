#include "services/worker/options.h"

#include <algorithm>
#include <filesystem>

#include "engine/base/status.h"
#include "services/common/flags.h"
#include "services/common/metrics.h"
#include "services/worker/worker_metrics.h"

namespace tandem {
namespace {

// Clients send it, and logs and metrics show it.
bool IsName(const std::string& name) {
  return !name.empty() && name.size() <= 128 &&
         std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

// For CLI11: empty, or what is wrong.
std::string CheckSlowdown(const std::string& text) {
  double value = 0.0;
  const bool is_number = CLI::detail::lexical_cast(text, value);
  if (is_number && (value == 0.0 || (value >= 1.0 && value <= 100.0))) return "";
  return "Value " + text + " not 0 and not in range 1 to 100";
}

}  // namespace

std::optional<int> ParseOptions(int argc, const char* const* argv, WorkerOptions* options) {
  EngineOptions& engine = options->engine;
  options->server.listen = "127.0.0.1:7701";
  options->status_pages.flag = "--metrics";
  CLI::App app("Serves one model's layers and KV caches to text tiers.", "tandem-worker");
  app.add_option("--model", options->model,
                 "The model: a .gguf file, or random:NAME for drawn weights")
      ->required();
  app.add_option("--name", options->name,
                 "Name it is served under; default: the file's without its ending");
  app.add_option("--listen", options->server.listen, "host:port; port 0 takes any free one")
      ->capture_default_str();
  app.add_option("--port-file", options->port_file, "Write the port to this file once it listens");
  app.add_option("--metrics-listen", options->status_pages.listen,
                 "host:port of /metrics and /health over HTTP; port 0 takes any free one. Default: "
                 "none");
  app.add_option("--metrics-port-file", options->metrics_port_file,
                 "Write that port to this file once it listens");
  app.add_option("--device", options->device, "auto, cpu, reference or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "reference", "cuda"}))
      ->capture_default_str();
  app.add_option("--threads", options->threads, "Threads of the cpu device; 0: one per core")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  app.add_option("--context", engine.context_length, "Tokens of a session; 0: the model's limit")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  app.add_option("--max-sessions", engine.max_sessions, "Sessions that run at once")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--max-queued", engine.max_queued,
                 "Sessions that wait for a place; more are refused at once")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  app.add_option("--step-tokens", engine.step_tokens, "Tokens that a step computes")
      ->check(CLI::Range(1, 1 << 14))
      ->capture_default_str();
  app.add_option("--kv-tokens", engine.kv_tokens,
                 "Tokens that the KV cache holds; 0: a quarter of all sessions' contexts")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  std::string prefix_cache = "on";
  app.add_option("--prefix-cache", prefix_cache,
                 "on: pages outlive their sessions, and prompts that begin alike share them; off")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  app.add_option("--max-run-ahead", engine.max_run_ahead,
                 "Drawn tokens that a session may run ahead of those that its peer has confirmed")
      ->check(CLI::Range(0, 16))
      ->capture_default_str();
  app.add_option("--max-drafts", engine.max_drafts,
                 "Guesses of its next tokens that a session may have verified in one step; they "
                 "change no token. 0: none")
      ->check(CLI::Range(0, kMaxDraftLength))
      ->capture_default_str();
  app.add_option("--decode-slowdown", engine.decode_slowdown,
                 "How many times as long a step with decode rows may take for the prompts that are "
                 "read beside them, 1 to 100; 0: no limit")
      ->check(CheckSlowdown)
      ->capture_default_str();
  app.add_flag("--checked", options->checked,
               "Test every operation's output, and say where a value that is not finite came from "
               "first; slower, with the same bits");
  int drain_seconds = static_cast<int>(engine.drain_spread / kNanosPerSecond);
  app.add_option("--drain-seconds", drain_seconds,
                 "After SIGTERM, over how long sessions are handed back one by one")
      ->check(CLI::Range(0, 600))
      ->capture_default_str();
  app.add_flag("--log-requests", options->log_sessions,
               "A line of the log for each session that ends; without it only for those that end "
               "with a fault");
  AddPrintFlag(app, "--metrics-markdown", [] { return MetricsTable(WorkerMetricTable()); });
  AddLogFlags(app, &options->log, &options->status_seconds);
  AddTlsFlags(app, &options->server.tls);
  if (const std::optional<int> exit_code = ParseFlags(app, argc, argv)) return exit_code;
  engine.prefix_cache = prefix_cache == "on";
  engine.drain_spread = drain_seconds * kNanosPerSecond;
  if (options->name.empty()) options->name = std::filesystem::path(options->model).stem().string();
  if (!IsName(options->name)) {
    return UsageError(app, InvalidArgument("--name ", options->name,
                                           ": it must be 1 to 128 printable ASCII characters"));
  }
  return std::nullopt;
}

}  // namespace tandem
