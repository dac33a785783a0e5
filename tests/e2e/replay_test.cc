// Generations survive their workers: two workers as real processes, killed, drained and stopped
// under load, and every stream has the tokens that it has without.
//
// TANDEM_TEST_KILLS: how many kills instead of 30. With TANDEM_TEST_MODEL, workers of the default
// model are killed too: 3 times, or as TANDEM_TEST_KILLS says but at most 20. With
// TANDEM_TEST_KILL_MODEL (a file, or random:NAME), workers of that model are, both on the one
// device that TANDEM_TEST_DEVICE names: 3 times, or as TANDEM_TEST_KILLS says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/fleet.h"

namespace tandem::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Seeded, with penalties, stop strings and two choices.
std::vector<v1::GenerateRequest> SeededRequests(int count, int32_t tokens) {
  std::mt19937 random(17);
  std::vector<v1::GenerateRequest> requests;
  for (int i = 0; i < count; ++i) {
    v1::GenerateRequest request;
    request.set_prompt("Stream " + std::to_string(i) + " of " + std::to_string(i % 5) + " has");
    request.set_max_tokens(tokens - static_cast<int32_t>(random() % 8));
    v1::Sampling& sampling = *request.mutable_sampling();
    sampling.set_seed(random());
    sampling.set_temperature(i % 4 == 0 ? 0.0f : 0.9f);
    if (i % 3 == 0) sampling.set_top_p(0.95f);
    sampling.set_repetition_penalty(1.1f);
    sampling.set_presence_penalty(0.4f);
    if (i % 2 == 0) sampling.set_frequency_penalty(0.3f);
    sampling.set_n(2);
    for (const char* stop : {"ee-stop", "\n\n\n\n", "Zq"}) {
      request.mutable_stopping()->add_stop_strings(stop);
    }
    request.mutable_stopping()->set_ignore_eos(true);
    request.mutable_response()->set_token_ids(true);
    request.mutable_response()->set_logprobs(1);
    requests.push_back(std::move(request));
  }
  return requests;
}

class ReplayFleet {
 public:
  ReplayFleet(const std::string& model, std::vector<std::string> worker_flags,
              double patience_seconds = 60)
      : patience(patience_seconds),
        fleet({.model = model,
               .worker_flags = std::move(worker_flags),
               .text_flags = {"--shards", "2", "--replay-tries", "100"},
               .workers = 2,
               .patience_seconds = 2 * patience_seconds}) {}

  // All at once; `disturb` runs meanwhile and is told, when asked, whether any still runs.
  void Run(const std::vector<v1::GenerateRequest>& requests,
           const std::function<void(const std::function<bool()>&)>& disturb) {
    results.assign(requests.size(), {});
    std::atomic<int> running = static_cast<int>(requests.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < requests.size(); ++i) {
      threads.emplace_back([&, i] {
        results[i] = fleet.Generate(requests[i]);
        --running;
      });
    }
    disturb([&] { return running > 0; });
    for (std::thread& thread : threads) thread.join();
  }
  // How often the streams were opened again.
  int ExpectWhole(const std::vector<CallResult>& undisturbed) {
    int reopened = 0;
    for (size_t i = 0; i < results.size(); ++i) {
      SCOPED_TRACE("stream " + std::to_string(i));
      EXPECT_TRUE(results[i].status.ok()) << results[i].status.error_message();
      EXPECT_EQ(results[i].token_ids, undisturbed[i].token_ids);
      EXPECT_EQ(results[i].texts, undisturbed[i].texts);
      for (const v1::Finished& finished : results[i].finished) {
        reopened += finished.counters().reopened();
        EXPECT_EQ(finished.counters().approximate(), 0);
        EXPECT_EQ(finished.counters().misses() + finished.counters().faults(), 0);
      }
    }
    return reopened;
  }

  const double patience;  // seconds for one worker to load
  Fleet fleet;
  std::vector<CallResult> results;
};

// Kills one worker after the other at random moments, `kills` times, in as many rounds of all
// requests as that takes.
void KillAtRandomMoments(ReplayFleet& replay, const std::vector<v1::GenerateRequest>& requests,
                         int kills, milliseconds shortest, milliseconds longest) {
  const auto start = Clock::now();
  replay.Run(requests, [](const auto&) {});
  const std::vector<CallResult> undisturbed = replay.results;
  for (const CallResult& result : undisturbed) {
    ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  }
  std::printf("undisturbed: %.2f s\n", std::chrono::duration<double>(Clock::now() - start).count());
  std::mt19937 random(3);
  int killed = 0, rounds = 0, reopened = 0;
  while (killed < kills) {
    ++rounds;
    const int before = killed;
    replay.Run(requests, [&](const std::function<bool()>& any) {
      while (killed < kills) {
        std::this_thread::sleep_for(shortest + (longest - shortest) * (random() % 1000) / 1000);
        if (!any()) return;
        const int worker = static_cast<int>(random() % 2);
        replay.fleet.KillWorker(worker);
        ++killed;
        replay.fleet.StartWorkerAgain(worker);
        // At times the other one follows before this one is back.
        if (random() % 4 == 0) continue;
        ASSERT_TRUE(IsServing(replay.fleet.worker_address(worker), replay.patience));
      }
    });
    reopened += replay.ExpectWhole(undisturbed);
    if (::testing::Test::HasFailure()) break;
    ASSERT_GT(killed, before) << "the streams are too short to be killed";
    ASSERT_TRUE(replay.fleet.WaitServing(replay.patience));
  }
  std::printf("%d kills in %d rounds of %zu streams, opened again %d times, %.2f s\n", killed,
              rounds, requests.size(), reopened,
              std::chrono::duration<double>(Clock::now() - start).count());
  EXPECT_GE(reopened, kills);
}

int Kills(int fallback) {
  const char* text = std::getenv("TANDEM_TEST_KILLS");
  return text == nullptr ? fallback : std::atoi(text);
}

const std::vector<std::string> kTinyFlags = {"--threads",    "1",  "--max-sessions", "128",
                                             "--max-queued", "64", "--context",      "512"};

TEST(Replay, StreamsHaveTheirTokensThroughKillsAtRandomMoments) {
  ReplayFleet replay("random:tiny", kTinyFlags);
  KillAtRandomMoments(replay, SeededRequests(64, 160), Kills(30), milliseconds(20),
                      milliseconds(150));
}

TEST(Replay, StreamsOfTheDefaultModelHaveTheirTokensThroughKills) {
  const auto model = DefaultModel();
  if (!model) GTEST_SKIP() << "TANDEM_TEST_MODEL is not set";
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr int kStreams = 3, kTokens = 16, kKills = 1;  // products take twenty times as long
#else
  constexpr int kStreams = 12, kTokens = 60, kKills = 3;
#endif
  ReplayFleet replay(*model, {"--threads", "1", "--max-sessions", "32", "--context", "512"});
  KillAtRandomMoments(replay, SeededRequests(kStreams, kTokens), std::min(Kills(kKills), 20),
                      milliseconds(200), milliseconds(2000));
}

// Long outputs, since a fast device is soon done with short ones. Pages for all of them and no
// more, so that two workers fit onto one device.
TEST(Replay, StreamsOfAChosenModelHaveTheirTokensThroughKills) {
  const char* const model = std::getenv("TANDEM_TEST_KILL_MODEL");
  if (model == nullptr) GTEST_SKIP() << "TANDEM_TEST_KILL_MODEL is not set";
  const char* const device = std::getenv("TANDEM_TEST_DEVICE");
  ReplayFleet replay(model,
                     {"--device", device == nullptr ? "auto" : device, "--max-sessions", "32",
                      "--max-queued", "32", "--context", "1024", "--kv-tokens", "32768"},
                     /*patience_seconds=*/150);
  KillAtRandomMoments(replay, SeededRequests(12, 600), Kills(3), milliseconds(100),
                      milliseconds(1500));
}

class ReplayUnderLoad : public ::testing::Test {
 protected:
  ReplayUnderLoad() : replay_("random:tiny", kTinyFlags), requests_(SeededRequests(32, 200)) {
    replay_.Run(requests_, [](const auto&) {});
    undisturbed_ = replay_.results;
  }
  ReplayFleet replay_;
  std::vector<v1::GenerateRequest> requests_;
  std::vector<CallResult> undisturbed_;
};

TEST_F(ReplayUnderLoad, B151_ADrainOfOneWorkerLosesNothing) {
  replay_.Run(requests_, [&](const auto&) {
    std::this_thread::sleep_for(milliseconds(100));
    replay_.fleet.worker(0).Signal(SIGTERM);
    EXPECT_EQ(replay_.fleet.worker(0).Wait(30), 0);
  });
  EXPECT_GT(replay_.ExpectWhole(undisturbed_), 0);
}

TEST_F(ReplayUnderLoad, AWorkerThatStandsStillIsSurvived) {
  replay_.Run(requests_, [&](const auto&) {
    std::this_thread::sleep_for(milliseconds(100));
    replay_.fleet.worker(1).Signal(SIGSTOP);
  });
  EXPECT_GT(replay_.ExpectWhole(undisturbed_), 0);
  replay_.fleet.worker(1).Signal(SIGCONT);
  EXPECT_TRUE(replay_.fleet.WaitServing(30));
}

}  // namespace
}  // namespace tandem::test
