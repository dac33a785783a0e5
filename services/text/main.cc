// tandem-text: the text tier. It loads no model file and needs no GPU; everything it knows of a
// model comes from the workers.
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <google/protobuf/stubs/logging.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>

#include "engine/base/status.h"
#include "services/common/flags.h"
#include "services/common/grpc_log.h"
#include "services/common/logging.h"
#include "services/common/signals.h"
#include "services/common/ticker.h"
#include "services/text/text_metrics.h"
#include "services/text/text_server.h"

namespace tandem::text {
namespace {

// Appears whole or not at all, so that whoever waits for it can read it at once.
absl::Status WritePortFile(const char* flag, const std::string& path, int port) {
  const std::string draft = path + ".new";
  std::ofstream file(draft);
  file << port << "\n";
  file.close();
  if (!file || std::rename(draft.c_str(), path.c_str()) != 0) {
    return InvalidArgument(flag, " ", path, ": the file cannot be written");
  }
  return absl::OkStatus();
}

// A connection is a file, and there may be more of them than the usual limit of a shell; only
// programs that select() have to fear large numbers.
void AllowManyFiles() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &files);
}

// A bell that a signal rings once.
class Bell final {
 public:
  void Ring() {
    {
      std::lock_guard lock(mutex_);
      rung_ = true;
    }
    changed_.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return rung_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool rung_ = false;
};

int Main(int argc, char** argv) {
  Bell stop;
  const SignalWatcher signals([&stop](int, int count) {
    if (count > 1) std::_Exit(1);  // asked twice: no more waiting
    stop.Ring();
  });
  TextServerOptions options;
  options.listen = "127.0.0.1:7700";
  options.shards = DefaultShards();
  options.http.listen = "127.0.0.1:7702";
  std::string port_file;
  std::string http_port_file;
  int drain_seconds = 30;
  CLI::App app("The text tier: text and sampling, on decode workers", "tandem-text");
  app.add_option("--worker", options.workers, "host:port of a decode worker; may be repeated")
      ->required();
  app.add_option("--listen", options.listen, "host:port of the public API; port 0: any free one")
      ->capture_default_str();
  app.add_option("--port-file", port_file, "write the port that was bound to this file");
  app.add_option("--http-listen", options.http.listen,
                 "host:port of the HTTP API; port 0: any free one; empty: none")
      ->capture_default_str();
  app.add_option("--http-port-file", http_port_file, "write the port of the HTTP API to this file");
  app.add_option("--http-max-connections", options.http.max_connections,
                 "connections at once; more are answered 503")
      ->capture_default_str()
      ->check(CLI::Range(1, kMaxHttpConnections));
  app.add_option("--http-tls-cert", options.http.tls.certificate,
                 "PEM file of the certificate chain of the HTTP API");
  app.add_option("--http-tls-key", options.http.tls.key, "PEM file of its private key");
  app.add_option("--http-tls-ca", options.http.tls.authority,
                 "PEM file of the authority that must have signed a client's certificate");
  app.add_option("--http-cors-origin", options.http_door.cors_origins,
                 "an origin whose pages may use the HTTP API, or *; may be repeated");
  app.add_option("--api-key-file", options.api_key_file,
                 "file with an API key a line; clients of both APIs have to show one. Default: "
                 "whoever comes is served");
  app.add_option("--shards", options.shards,
                 "threads that own sessions; default: one for every four cores, 1 to 8")
      ->check(CLI::Range(1, kMaxShards));
  app.add_option("--max-requests", options.max_requests,
                 "generations at once; more are refused at once")
      ->capture_default_str()
      ->check(CLI::Range(1, kMaxRequests));
  app.add_option("--drafts", options.drafts,
                 "guesses of its next tokens that a session has verified in one step, where its "
                 "worker makes any; they change no token. 0: none")
      ->capture_default_str()
      ->check(CLI::Range(0, kMaxDrafts));
  app.add_option("--drain-seconds", drain_seconds,
                 "after SIGTERM, how long what runs may go on before it is cancelled")
      ->capture_default_str()
      ->check(CLI::Range(0, 86400));
  app.add_option("--replay-tries", options.replay.tries,
                 "how often a generation is opened again after a lost worker or a fault; 0: never, "
                 "whatever its worker does")
      ->capture_default_str()
      ->check(CLI::Range(0, kMaxReplayTries));
  int replay_wait_seconds = static_cast<int>(options.replay.wait / kNanosPerSecond);
  app.add_option("--replay-wait-seconds", replay_wait_seconds,
                 "how long such a generation waits for a worker that takes it")
      ->capture_default_str()
      ->check(CLI::Range(0, kMaxReplayWaitSeconds));
  app.add_option("--trace-dir", options.trace.folder,
                 "record generations into files in this folder, for `tandem explain`. They hold "
                 "prompts and output in the clear; only this user can read them. Default: nothing "
                 "is recorded");
  app.add_option("--trace-requests", options.trace.requests,
                 "files that are kept, and requests that are recorded at once; the oldest file "
                 "goes first")
      ->capture_default_str()
      ->check(CLI::Range(1, kMaxTraceRequests));
  app.add_option("--trace-bytes", options.trace.bytes, "most bytes of such a file")
      ->capture_default_str()
      ->check(CLI::Range(kMinTraceFile, kMaxTraceFile));
  app.add_flag("--log-requests", options.log_requests,
               "a line of the log for each generation that ends; without it only for those that "
               "fail by no fault of the client");
  LogOptions log;
  int status_seconds = kDefaultStatusSeconds;
  AddPrintFlag(app, "--metrics-markdown", [] { return MetricsTable(TextMetricTable()); });
  AddLogFlags(app, &log, &status_seconds);
  AddTlsFlags(app, &options.tls);
  app.add_option("--worker-tls-cert", options.worker_tls.certificate,
                 "PEM file of the certificate chain that workers are shown");
  app.add_option("--worker-tls-key", options.worker_tls.key, "PEM file of its private key");
  app.add_option("--worker-tls-ca", options.worker_tls.authority,
                 "PEM file of the authority that must have signed the workers' certificates");
  if (const std::optional<int> exit_code = ParseFlags(app, argc, argv)) return *exit_code;
  options.replay.wait = replay_wait_seconds * kNanosPerSecond;
  InitLogging("tandem-text", log);
  LogWhatGrpcSays();
  AllowManyFiles();
  // A trace that passes the limit of file sizes is lost, as on a full disk, and not the server.
  std::signal(SIGXFSZ, SIG_IGN);
  // It would write a line for each request that is not UTF-8. The client is told; the log is not
  // theirs to fill.
  google::protobuf::SetLogHandler(nullptr);

  auto server = TextServer::Start(options);
  if (!server.ok()) return UsageError(app, server.status());
  if (!port_file.empty()) {
    const absl::Status written = WritePortFile("--port-file", port_file, (*server)->port());
    if (!written.ok()) return UsageError(app, written);
  }
  if (!http_port_file.empty()) {
    const absl::Status written =
        options.http.listen.empty()
            ? InvalidArgument("--http-port-file needs --http-listen")
            : WritePortFile("--http-port-file", http_port_file, (*server)->http_port());
    if (!written.ok()) return UsageError(app, written);
  }
  if (!options.http.listen.empty()) LogInfo("HTTP on ", (*server)->http_address());
  LogInfo("listening on ", (*server)->address(), ", ", options.workers.size(), " workers, ",
          options.shards, " shards");
  std::optional<Ticker> status;
  if (status_seconds > 0) {
    status.emplace(std::chrono::seconds(status_seconds),
                   [&server, status_seconds, last = (*server)->Snapshot()]() mutable {
                     const TextSnapshot now = (*server)->Snapshot();
                     LogStatus(now, std::exchange(last, now), status_seconds);
                   });
  }
  stop.Wait();
  LogInfo("draining ", (*server)->active(), " requests for at most ", drain_seconds, " s");
  (*server)->Drain(std::chrono::seconds(drain_seconds));
  LogInfo("drained");
  return 0;
}

}  // namespace
}  // namespace tandem::text

int main(int argc, char** argv) { return tandem::text::Main(argc, argv); }
