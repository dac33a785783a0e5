// What a token costs the text tier: the real one, with clients in front and a worker that answers
// at once behind it, both in processes of their own, so that all CPU time of this process
// is the text tier's. CPU time and not time, since the others run on the same cores.
//
//   text_tier_bench [--sessions N ...] [--tokens N] [--shards N] [--connections N] [--rounds N]
//                   [--run-ahead N] [--door grpc|http ...]
// Prints one JSON object a line:
//   whole  microseconds of CPU time a token, tokens that a client's message had, and waits
//   parts  the same code part by part (text_tier_parts.h), with as many tokens a message. What they
//          leave of the whole is gRPC, its sockets, queues and wake-ups.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "engine/base/check.h"
#include "services/text/text_server.h"
#include "tandem/v1/generation.grpc.pb.h"
#include "tests/bench/bench_support.h"
#include "tests/bench/canned_worker.h"
#include "tests/bench/text_tier_parts.h"
#include "tests/support/process.h"
#include "tests/support/raw_client.h"

namespace tandem::test {
namespace {

constexpr double kPatience = 600;

struct Flags {
  std::vector<int32_t> sessions = {64, 1024};
  int32_t tokens = 512;
  int32_t shards = 1;
  int32_t connections = 8;
  int32_t rounds = 3;
  int32_t run_ahead = 4;
  std::vector<std::string> doors = {"grpc"};
  std::string role;
  std::string address;
};

// The client process: all sessions at once; prints what came.
int RunClients(const Flags& flags) {
  struct Totals {
    std::mutex mutex;
    std::condition_variable changed;
    int32_t left = 0;
    int64_t messages = 0, tokens = 0, bytes = 0;
  } totals;
  class Call final : public grpc::ClientReadReactor<v1::GenerateResponse> {
   public:
    Call(v1::Generation::Stub* stub, const v1::GenerateRequest& request, Totals* totals)
        : totals_(totals), request_(request) {
      stub->async()->Generate(&context_, &request_, this);
      StartRead(&message_);
      StartCall();
    }
    void OnReadDone(bool ok) override {
      if (!ok) return;
      ++messages_;
      bytes_ += static_cast<int64_t>(message_.delta().text().size());
      if (message_.has_finished()) tokens_ = message_.finished().usage().output_tokens();
      StartRead(&message_);
    }
    void OnDone(const grpc::Status& status) override {
      TANDEM_CHECK(status.ok()) << status.error_message();
      std::lock_guard lock(totals_->mutex);
      totals_->messages += messages_;
      totals_->tokens += tokens_;
      totals_->bytes += bytes_;
      if (--totals_->left == 0) totals_->changed.notify_all();
    }

   private:
    Totals* const totals_;
    const v1::GenerateRequest request_;
    grpc::ClientContext context_;
    v1::GenerateResponse message_;
    int64_t messages_ = 0, tokens_ = 0, bytes_ = 0;
  };
  std::vector<std::unique_ptr<v1::Generation::Stub>> stubs;
  for (int32_t i = 0; i < flags.connections; ++i) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
    stubs.push_back(v1::Generation::NewStub(
        grpc::CreateCustomChannel(flags.address, grpc::InsecureChannelCredentials(), arguments)));
  }
  totals.left = flags.sessions[0];
  std::vector<std::unique_ptr<Call>> calls;
  for (int32_t i = 0; i < flags.sessions[0]; ++i) {
    calls.push_back(std::make_unique<Call>(stubs[static_cast<size_t>(i % flags.connections)].get(),
                                           BenchRequest(flags.tokens), &totals));
  }
  std::unique_lock lock(totals.mutex);
  totals.changed.wait(lock, [&] { return totals.left == 0; });
  const nlohmann::json out = {
      {"messages", totals.messages}, {"tokens", totals.tokens}, {"bytes", totals.bytes}};
  std::printf("%s\n", out.dump().c_str());
  return 0;
}

// The same over HTTP, a thread and a connection each.
int RunHttpClients(const Flags& flags) {
  const v1::GenerateRequest request = BenchRequest(flags.tokens);
  const nlohmann::json body = {{"prompt", request.prompt()},
                               {"max_tokens", flags.tokens},
                               {"temperature", request.sampling().temperature()},
                               {"top_p", request.sampling().top_p()},
                               {"seed", request.sampling().seed()},
                               {"ignore_eos", true},
                               {"stop", request.stopping().stop_strings()},
                               {"stream", true},
                               {"stream_options", {{"include_usage", true}}}};
  const std::string text = RequestText("POST", "/v1/completions", body.dump());
  const int port = std::stoi(flags.address.substr(flags.address.rfind(':') + 1));
  std::atomic<int64_t> messages = 0, tokens = 0, bytes = 0;
  std::vector<std::thread> threads;
  for (int32_t i = 0; i < flags.sessions[0]; ++i) {
    threads.emplace_back([&] {
      RawClient client(port);
      TANDEM_CHECK(client.Send(text)) << "the server has ended the connection";
      const std::string answer = client.Read().body;
      int64_t events = 0;
      for (size_t at = answer.find("\n\n"); at != std::string::npos;
           at = answer.find("\n\n", at + 2)) {
        ++events;
      }
      constexpr std::string_view kUsage = "\"completion_tokens\":";
      const size_t usage = answer.rfind(kUsage);
      TANDEM_CHECK(usage != std::string::npos) << answer.substr(0, 1000);
      messages += events;
      bytes += static_cast<int64_t>(answer.size());
      tokens += std::atoll(answer.c_str() + usage + kUsage.size());
    });
  }
  for (std::thread& thread : threads) thread.join();
  const nlohmann::json out = {
      {"messages", messages.load()}, {"tokens", tokens.load()}, {"bytes", bytes.load()}};
  std::printf("%s\n", out.dump().c_str());
  return 0;
}

// The worker process: until it is killed.
int RunWorker(const Flags& flags) {
  const CannedWorker worker(flags.tokens, flags.run_ahead);
  std::printf("%d\n", worker.port());
  std::fflush(stdout);
  while (true) pause();
}

// Microseconds of CPU time, and waits, of this process so far.
struct Usage {
  double micros = 0.0;
  int64_t waits = 0;
};
Usage UsageNow() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto micros = [](const timeval& t) {
    return 1e6 * static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec);
  };
  return {micros(usage.ru_utime) + micros(usage.ru_stime), usage.ru_nvcsw};
}

class Bench final {
 public:
  Bench(const Flags& flags, std::string self)
      : flags_(flags),
        self_(std::move(self)),
        worker_({self_, "--role", "worker", "--tokens", std::to_string(flags.tokens), "--run-ahead",
                 std::to_string(flags.run_ahead)}) {
    while (worker_.output().find('\n') == std::string::npos) usleep(10'000);
    text::TextServerOptions options;
    options.workers = {"127.0.0.1:" + std::to_string(std::atoi(worker_.output().c_str()))};
    options.shards = flags.shards;
    options.max_requests = 4096;
    options.http.listen = "127.0.0.1:0";
    options.http.max_connections = 8192;
    // It has no heartbeat.
    options.worker_silence = options.worker_stall = std::chrono::milliseconds(120'000);
    server_ = Must(text::TextServer::Start(options));
    while (!server_->serving()) usleep(10'000);
    Clients(1, "grpc");  // the worker computes its lists
  }

  void Measure(int32_t sessions, const std::string& door) {
    std::vector<double> micros;
    nlohmann::json client;
    double waits = 0.0;
    for (int32_t i = 0; i < flags_.rounds; ++i) {
      const Usage before = UsageNow();
      client = Clients(sessions, door);
      const Usage after = UsageNow();
      const double tokens = client["tokens"];
      TANDEM_CHECK(client["tokens"] == int64_t{sessions} * flags_.tokens);
      micros.push_back((after.micros - before.micros) / tokens);
      waits = static_cast<double>(after.waits - before.waits) / tokens;
    }
    const double tokens = client["tokens"];
    const nlohmann::json whole = {{"bench", "text_tier"},
                                  {"what", "whole"},
                                  {"door", door},
                                  {"sessions", sessions},
                                  {"connections", flags_.connections},
                                  {"shards", flags_.shards},
                                  {"run_ahead", flags_.run_ahead},
                                  {"tokens", tokens},
                                  {"us_per_token_best", Quantile(micros, 0.0)},
                                  {"us_per_token_median", Quantile(micros, 0.5)},
                                  {"tokens_per_message", tokens / client["messages"].get<double>()},
                                  {"waits_per_token", waits}};
    std::printf("%s\n", whole.dump().c_str());
    std::fflush(stdout);
    if (door == "http") return;  // the parts are the same
    nlohmann::json parts =
        MeasureParts({.sessions = sessions,
                      .tokens = std::min(flags_.tokens, 65536 / sessions),
                      .tokens_per_message = std::max(
                          1, static_cast<int32_t>(tokens / client["messages"].get<double>()))});
    const nlohmann::json line = {
        {"bench", "text_tier"}, {"what", "parts"}, {"sessions", sessions}, {"us_per_token", parts}};
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
  }

 private:
  nlohmann::json Clients(int32_t sessions, const std::string& door) {
    const RunResult result =
        RunProgram({self_, "--role", door == "http" ? "http-clients" : "clients", "--address",
                    door == "http" ? server_->http_address() : server_->address(), "--sessions",
                    std::to_string(sessions), "--tokens", std::to_string(flags_.tokens),
                    "--connections", std::to_string(flags_.connections)},
                   kPatience);
    TANDEM_CHECK(result.status == 0) << result.output;
    return nlohmann::json::parse(result.output);
  }

  const Flags flags_;
  const std::string self_;
  Process worker_;
  std::unique_ptr<text::TextServer> server_;
};

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("What a token costs the text tier.", "text_tier_bench");
  app.add_option("--sessions", flags.sessions, "At once")->check(CLI::Range(1, 4000));
  app.add_option("--tokens", flags.tokens, "Of each session")->check(CLI::Range(16, 8192));
  app.add_option("--shards", flags.shards)->check(CLI::Range(1, text::kMaxShards));
  app.add_option("--connections", flags.connections, "That the clients share")
      ->check(CLI::Range(1, 1024));
  app.add_option("--rounds", flags.rounds)->check(CLI::Range(1, 100));
  app.add_option("--run-ahead", flags.run_ahead,
                 "0: each session gets one position at a time, so that a message has one token")
      ->check(CLI::Range(0, 8));
  app.add_option("--door", flags.doors)->check(CLI::IsMember({"grpc", "http"}));
  app.add_option("--role", flags.role)
      ->check(CLI::IsMember({"worker", "clients", "http-clients"}))
      ->group("");
  app.add_option("--address", flags.address)->group("");
  CLI11_PARSE(app, argc, argv);
  if (flags.role == "worker") return RunWorker(flags);
  if (flags.role == "clients") return RunClients(flags);
  if (flags.role == "http-clients") return RunHttpClients(flags);
  Bench bench(flags, std::filesystem::read_symlink("/proc/self/exe"));
  for (const int32_t sessions : flags.sessions) {
    for (const std::string& door : flags.doors) bench.Measure(sessions, door);
  }
  return 0;
}

}  // namespace
}  // namespace tandem::test

int main(int argc, char** argv) { return tandem::test::Main(argc, argv); }
