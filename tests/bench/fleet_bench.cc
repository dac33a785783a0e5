// Tokens per second through both tiers on loopback: N sessions at once over prompts of distinct
// token ids, a fixed length.
//
//   fleet_bench MODEL [--device D] [--sessions N ...] [--context N] [--tokens N] [--run-ahead N]
//               [--drafts N] [--shards N] [--temperature T] [--rounds N] [--door grpc|http ...]
// MODEL: a .gguf file, or random:NAME. Prints one JSON object a line, which compares with
// decode_bench's of the same batch and context:
//   tokens_per_second   of all sessions together, while all decode: from the last first token to
//                       the first end; median and best of the rounds
//   first_token_seconds the median session's
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tests/bench/bench_support.h"
#include "tests/e2e/fleet.h"
#include "tests/support/raw_client.h"

namespace tandem::test {
namespace {

using Clock = std::chrono::steady_clock;

struct Flags {
  std::string model;
  std::string device = "auto";
  std::vector<int> sessions = {1, 32};
  int context = 64;
  int tokens = 256;
  int run_ahead = 4;
  int drafts = 0;
  int shards = 1;
  int rounds = 3;
  float temperature = 0.0f;
  std::vector<std::string> doors = {"grpc"};
};

// Tokens of one session as they came: seconds since the start, how many.
using Arrivals = std::vector<std::pair<double, int>>;

class Bench final {
 public:
  explicit Bench(const Flags& flags) : flags_(flags), fleet_(OptionsOf(flags)) {
    grpc::ClientContext context;
    v1::ListModelsResponse models;
    const grpc::Status status = fleet_.stub().ListModels(&context, {}, &models);
    if (!status.ok() || models.models_size() != 1) Fail("no model: " + status.error_message());
    vocab_size_ = models.models(0).vocab_size();
    RunRound(1, "grpc");  // warm-up
  }

  void Measure(int sessions, const std::string& door) {
    std::vector<double> rates, first_tokens;
    for (int round = 0; round < flags_.rounds; ++round) {
      const std::vector<Arrivals> all = RunRound(sessions, door);
      double begin = 0.0, end = all[0].back().first;
      for (const Arrivals& arrivals : all) {
        first_tokens.push_back(arrivals.front().first);
        begin = std::max(begin, arrivals.front().first);
        end = std::min(end, arrivals.back().first);
      }
      if (end <= begin) Fail("the sessions never decode all at once: more --tokens are needed");
      int64_t tokens = 0;
      for (const Arrivals& arrivals : all) {
        for (const auto& [seconds, count] : arrivals) {
          if (seconds > begin && seconds <= end) tokens += count;
        }
      }
      rates.push_back(static_cast<double>(tokens) / (end - begin));
    }
    const nlohmann::json line = {{"bench", "fleet"},
                                 {"model", flags_.model},
                                 {"device", flags_.device},
                                 {"door", door},
                                 {"sessions", sessions},
                                 {"context", flags_.context},
                                 {"tokens", flags_.tokens},
                                 {"run_ahead", flags_.run_ahead},
                                 {"drafts", flags_.drafts},
                                 {"tokens_per_second", Quantile(rates, 0.5)},
                                 {"tokens_per_second_best", Quantile(rates, 1.0)},
                                 {"first_token_seconds", Quantile(first_tokens, 0.5)}};
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
  }

 private:
  static Fleet::Options OptionsOf(const Flags& flags) {
    const int most = *std::max_element(flags.sessions.begin(), flags.sessions.end());
    const int length = flags.context + flags.tokens + 64;
    const auto text = [](int number) { return std::to_string(number); };
    return {.model = flags.model,
            // As decode_bench has it: room for all, all prompts first, then decode alone.
            .worker_flags = {"--device", flags.device, "--max-sessions", text(most), "--max-queued",
                             text(most), "--context", text(length), "--kv-tokens",
                             text(most * (length + 64)), "--prefix-cache", "off",
                             "--decode-slowdown", "0", "--max-run-ahead", text(flags.run_ahead),
                             "--max-drafts", text(flags.drafts)},
            .text_flags = {"--shards", text(flags.shards), "--max-requests", text(most + 1)},
            .patience_seconds = 300};
  }
  [[noreturn]] static void Fail(const std::string& what) {
    std::fprintf(stderr, "fleet_bench: %s\n", what.c_str());
    std::exit(1);
  }

  std::vector<Arrivals> RunRound(int sessions, const std::string& door) {
    std::vector<Arrivals> all(static_cast<size_t>(sessions));
    std::vector<std::thread> threads;
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < sessions; ++i) {
      threads.emplace_back([this, i, start, &all, is_http = door == "http"] {
        all[i] = is_http ? RunOverHttp(i, start) : RunOne(i, start);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return all;
  }

  Arrivals RunOne(int number, Clock::time_point start) {
    v1::GenerateRequest request;
    for (const int32_t id :
         Tokens(static_cast<uint64_t>(number + 1), flags_.context, vocab_size_)) {
      request.mutable_token_ids()->add_ids(id);
    }
    request.set_max_tokens(flags_.tokens);
    request.mutable_sampling()->set_temperature(flags_.temperature);
    request.mutable_sampling()->set_seed(static_cast<uint64_t>(number));
    request.mutable_stopping()->set_ignore_eos(true);
    request.mutable_response()->set_token_ids(true);
    grpc::ClientContext context;
    const auto reader = fleet_.stub().Generate(&context, request);
    v1::GenerateResponse response;
    Arrivals arrivals;
    int tokens = 0;
    while (reader->Read(&response)) {
      if (!response.has_delta()) continue;
      const int count = response.delta().token_ids_size();
      arrivals.emplace_back(std::chrono::duration<double>(Clock::now() - start).count(), count);
      tokens += count;
    }
    const grpc::Status status = reader->Finish();
    if (!status.ok() || tokens != flags_.tokens) {
      Fail("session " + std::to_string(number) + ": " + std::to_string(tokens) + " tokens, " +
           status.error_message());
    }
    return arrivals;
  }

  Arrivals RunOverHttp(int number, Clock::time_point start) {
    const nlohmann::json body = {
        {"prompt", Tokens(static_cast<uint64_t>(number + 1), flags_.context, vocab_size_)},
        {"max_tokens", flags_.tokens},
        {"temperature", flags_.temperature},
        {"seed", number},
        {"ignore_eos", true},
        {"return_token_ids", true},
        {"stream", true}};
    const std::string& address = fleet_.http_address();
    RawClient client(std::stoi(address.substr(address.rfind(':') + 1)));
    client.Send(RequestText("POST", "/v1/completions", body.dump()));
    Arrivals arrivals;
    int tokens = 0;
    while (tokens < flags_.tokens) {
      // An event; what stands before its first byte is the framing.
      const std::string event = client.ReadUntil("\n\n");
      const size_t begin = event.find("\"token_ids\":[");
      if (begin == std::string::npos) {
        if (event.empty() || event.find("\"error\"") != std::string::npos) {
          Fail("session " + std::to_string(number) + ": " + event);
        }
        continue;
      }
      const size_t end = event.find(']', begin);
      const int count =
          1 + static_cast<int>(std::count(event.begin() + static_cast<std::ptrdiff_t>(begin),
                                          event.begin() + static_cast<std::ptrdiff_t>(end), ','));
      arrivals.emplace_back(std::chrono::duration<double>(Clock::now() - start).count(), count);
      tokens += count;
    }
    return arrivals;
  }

  const Flags flags_;
  Fleet fleet_;
  int32_t vocab_size_ = 0;
};

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Tokens per second through both tiers.", "fleet_bench");
  app.add_option("model", flags.model, "A .gguf file or random:NAME")->required();
  app.add_option("--device", flags.device)
      ->check(CLI::IsMember({"auto", "cpu", "reference", "cuda"}));
  app.add_option("--sessions", flags.sessions, "At once")->check(CLI::Range(1, 1024));
  app.add_option("--context", flags.context, "Tokens of each prompt")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--tokens", flags.tokens, "Tokens of each output")->check(CLI::Range(8, 1 << 20));
  app.add_option("--run-ahead", flags.run_ahead, "0: each token waits for the text tier's decision")
      ->check(CLI::Range(0, 16));
  app.add_option("--drafts", flags.drafts)->check(CLI::Range(0, 32));
  app.add_option("--shards", flags.shards)->check(CLI::Range(1, 64));
  app.add_option("--rounds", flags.rounds)->check(CLI::Range(1, 100));
  app.add_option("--temperature", flags.temperature)->check(CLI::Range(0.0f, 2.0f));
  app.add_option("--door", flags.doors)->check(CLI::IsMember({"grpc", "http"}));
  CLI11_PARSE(app, argc, argv);
  Bench bench(flags);
  for (const int sessions : flags.sessions) {
    for (const std::string& door : flags.doors) bench.Measure(sessions, door);
  }
  return 0;
}

}  // namespace
}  // namespace tandem::test

int main(int argc, char** argv) { return tandem::test::Main(argc, argv); }
