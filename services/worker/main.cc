// tandem-worker. Exit codes: 0 after a drain (SIGTERM or SIGINT), 1 for a failure, 2 for a wrong
// command line, 128 + signal for a second signal, which does not wait.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "services/common/flags.h"
#include "services/common/grpc_log.h"
#include "services/common/http/http_server.h"
#include "services/common/http/status_pages.h"
#include "services/common/logging.h"
#include "services/common/progress.h"
#include "services/common/signals.h"
#include "services/common/ticker.h"
#include "services/common/version.h"
#include "services/worker/backend.h"
#include "services/worker/options.h"
#include "services/worker/worker.h"

namespace tandem {
namespace {

std::string Message(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

int Fail(const std::string& what) {
  LogError(what);
  return 1;
}

// Through a second file, so that nobody reads half a number.
bool WritePortFile(const std::string& path, int port) {
  const std::string partial = path + ".partial";
  {
    std::ofstream file(partial);
    file << port << "\n";
    if (!file.flush()) return false;
  }
  std::error_code error;
  std::filesystem::rename(partial, path, error);
  return !error;
}

int RunWorker(const WorkerOptions& options) {
  // Outlives the watcher, whose thread may be about to use it.
  std::unique_ptr<Worker> worker;
  // Set while a drain has something to wait for.
  std::atomic<Worker*> serving = nullptr;
  const SignalWatcher signals([&serving](int signal, int count) {
    if (count > 1) _exit(128 + signal);
    Worker* const to_drain = serving.load();
    if (to_drain == nullptr) {
      LogInfo("signal ", signal, ": nothing is served yet, goodbye");
      _exit(0);
    }
    LogInfo("signal ", signal, ": draining");
    to_drain->RequestDrain();
  });

  absl::StatusOr<std::unique_ptr<kernels::Ops>> ops = MakeOps(options.device, options.threads);
  if (!ops.ok()) return Fail(Message(ops.status()));
  LogInfo("version ", std::string(Version()), ", device ", options.device, ": ",
          (*ops)->info().name, ", ", (*ops)->info().device);
  absl::StatusOr<std::unique_ptr<Worker>> listening = Worker::Listen(options.server);
  if (!listening.ok()) {
    Fail(Message(listening.status()));
    return absl::IsInvalidArgument(listening.status()) ? kExitUsage : 1;
  }
  worker = *std::move(listening);
  LogInfo("listening on ", worker->address());
  if (!options.port_file.empty() && !WritePortFile(options.port_file, worker->port())) {
    return Fail("--port-file " + options.port_file + ": it cannot be written");
  }
  StatusPages pages([&worker] { return worker->Health(); },
                    [&worker] { return worker->MetricsText(); });
  std::unique_ptr<HttpServer> pages_server;
  if (!options.status_pages.listen.empty()) {
    absl::StatusOr<std::unique_ptr<HttpServer>> started =
        HttpServer::Start(options.status_pages, &pages);
    if (!started.ok()) {
      Fail(Message(started.status()));
      return absl::IsInvalidArgument(started.status()) ? kExitUsage : 1;
    }
    pages_server = *std::move(started);
    LogInfo("metrics on http://", pages_server->address(), "/metrics");
    if (!options.metrics_port_file.empty() &&
        !WritePortFile(options.metrics_port_file, pages_server->port())) {
      return Fail("--metrics-port-file " + options.metrics_port_file + ": it cannot be written");
    }
  } else if (!options.metrics_port_file.empty()) {
    Fail("--metrics-port-file needs --metrics-listen");
    return kExitUsage;
  }
  {
    absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint = OpenCheckpoint(options.model);
    if (!checkpoint.ok()) {
      return Fail("--model " + options.model + ": " + Message(checkpoint.status()));
    }
    // A bar is not for a log of objects.
    const bool json = options.log.format == LogFormat::kJson;
    std::ostringstream lines;
    Progress progress("loading " + options.name, isatty(STDERR_FILENO) == 1 && !json,
                      json ? static_cast<std::ostream&>(lines) : std::cerr);
    const auto on_progress = [&](int64_t done, int64_t total) {
      progress.Update(done, total);
      std::string line = lines.str();
      if (line.empty()) return;
      lines.str("");
      line.pop_back();  // the end of the line
      LogInfo(line);
    };
    const absl::Status loaded = worker->Load(
        **checkpoint, *std::move(ops),
        {options.name, options.checked, options.engine, options.log_sessions}, on_progress);
    if (!loaded.ok()) {
      Fail(Message(loaded));
      return absl::IsOutOfRange(loaded) ? kExitUsage : 1;
    }
  }
  serving = worker.get();
  LogInfo(worker->description());
  LogInfo("serving ", options.name, " on ", worker->address());
  std::optional<Ticker> status;
  if (options.status_seconds > 0) {
    status.emplace(
        std::chrono::seconds(options.status_seconds),
        [&worker, seconds = options.status_seconds, last = worker->Snapshot()]() mutable {
          const WorkerSnapshot now = worker->Snapshot();
          LogStatus(now, std::exchange(last, now), seconds);
        });
  }
  const absl::Status ended = worker->Run();
  if (!ended.ok()) return 1;  // what broke was logged when it did
  LogInfo("drained");
  return 0;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::WorkerOptions options;
  if (const auto exit_code = tandem::ParseOptions(argc, argv, &options)) return *exit_code;
  tandem::InitLogging("tandem-worker", options.log);
  tandem::LogWhatGrpcSays();
  return tandem::RunWorker(options);
}
