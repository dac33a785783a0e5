// Tokens per second through both tiers on loopback: N sessions at once, each its own prompt,
// greedy, a fixed length.
//
//   fleet_bench MODEL.gguf [sessions ...]     default: 1 32
// Prints one JSON object a line: sessions, tokens, seconds, tokens_per_second (all sessions
// together, from the first delta of any to the last of all), time to first token (median).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/e2e/fleet.h"

namespace tandem::test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kOutputTokens = 128;

struct Timing {
  double first = 0.0;  // seconds since the start
  double last = 0.0;
  int tokens = 0;
};

Timing RunOne(Fleet& fleet, int number, Clock::time_point start) {
  v1::GenerateRequest request;
  request.set_prompt("Session number " + std::to_string(number) +
                     " tells a story about a lighthouse and a storm.");
  request.set_max_tokens(kOutputTokens);
  request.mutable_sampling()->set_temperature(0.0f);
  request.mutable_stopping()->set_ignore_eos(true);
  request.mutable_response()->set_token_ids(true);
  grpc::ClientContext context;
  const auto reader = fleet.stub().Generate(&context, request);
  v1::GenerateResponse response;
  Timing timing;
  while (reader->Read(&response)) {
    if (!response.has_delta()) continue;
    timing.last = std::chrono::duration<double>(Clock::now() - start).count();
    if (timing.tokens == 0) timing.first = timing.last;
    timing.tokens += response.delta().token_ids_size();
  }
  const grpc::Status status = reader->Finish();
  if (!status.ok() || timing.tokens != kOutputTokens) {
    std::fprintf(stderr, "session %d: %d tokens, %s\n", number, timing.tokens,
                 status.error_message().c_str());
    std::exit(1);
  }
  return timing;
}

void Run(Fleet& fleet, int sessions) {
  std::vector<Timing> timings(sessions);
  std::vector<std::thread> threads;
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < sessions; ++i) {
    threads.emplace_back([&, i] { timings[i] = RunOne(fleet, i, start); });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<double> first;
  double begin = timings[0].first;
  double end = 0.0;
  int tokens = 0;
  for (const Timing& timing : timings) {
    first.push_back(timing.first);
    begin = std::min(begin, timing.first);
    end = std::max(end, timing.last);
    tokens += timing.tokens;
  }
  std::sort(first.begin(), first.end());
  const nlohmann::json line = {{"sessions", sessions},
                               {"tokens", tokens},
                               {"seconds", end - begin},
                               {"tokens_per_second", (tokens - sessions) / (end - begin)},
                               {"first_token_seconds_median", first[first.size() / 2]}};
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

}  // namespace
}  // namespace tandem::test

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s MODEL.gguf [sessions ...]\n", argv[0]);
    return 2;
  }
  tandem::test::Fleet fleet({argv[1], {"--max-sessions", "64", "--context", "1024"}, {}});
  tandem::test::Run(fleet, 1);  // warm-up
  std::vector<int> counts;
  for (int i = 2; i < argc; ++i) counts.push_back(std::max(1, std::atoi(argv[i])));
  if (counts.empty()) counts = {1, 32};
  for (const int sessions : counts) tandem::test::Run(fleet, sessions);
  return 0;
}
