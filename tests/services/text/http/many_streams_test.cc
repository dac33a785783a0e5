// Five hundred streams at once, fifty of which nobody reads: the others have their text, memory is
// bounded, and all is free soon after the clients are gone.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tests/services/text/http/http_fixture.h"
#include "tests/support/allocation_counter.h"

namespace tandem::text {
namespace {

using std::chrono::milliseconds;

constexpr int kReaders = 450;
constexpr int kUnread = 50;
constexpr int kPrompts = 45;  // that differ
constexpr int kTokens = 60;

class ManyStreamsTest : public HttpTest {
 protected:
  ManyStreamsTest() {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = std::min<rlim_t>(files.rlim_max, 8192);
    setrlimit(RLIMIT_NOFILE, &files);
    options_.max_requests = 1000;
    options_.shards = 2;
  }
  static std::string PromptOf(int i) { return "reader " + std::to_string(i % kPrompts); }
  // Asks for more than anyone could buffer, with large events.
  static std::string BigText(int i) {
    Json body = Body("never " + std::to_string(i), 20'000, true);
    body["logprobs"] = 5;
    return test::RequestText("POST", "/v1/completions", body.dump());
  }
};

TEST_F(ManyStreamsTest, StreamsThatNobodyReadHoldUpNobody) {
  AddWorker(Paced(milliseconds(0)));
  Serve();
  std::vector<std::string> expected;
  for (int i = 0; i < kPrompts; ++i) {
    expected.push_back(Ask(Prompt(PromptOf(i), kTokens)).text.at(0));
  }
  const int64_t extends_before = Extends();
  const int64_t live_before = test::LiveBytes();
  std::vector<std::unique_ptr<RawClient>> unread;
  for (int i = 0; i < kUnread; ++i) {
    unread.push_back(
        std::make_unique<RawClient>(http(), RawClient::Options{.receive_buffer = 4096}));
    ASSERT_TRUE(unread.back()->connected());
    unread.back()->Send(BigText(i));
  }
  std::vector<std::unique_ptr<RawClient>> readers;
  for (int i = 0; i < kReaders; ++i) {
    readers.push_back(std::make_unique<RawClient>(http()));
    ASSERT_TRUE(readers.back()->connected());
    readers.back()->Send(StreamText(PromptOf(i), kTokens));
  }
  for (int i = 0; i < kReaders; ++i) {
    const Events events = ParseEvents(readers[i]->Read().body);
    EXPECT_EQ(events.text.at(0), expected[i % kPrompts]) << i;
    EXPECT_TRUE(events.done);
  }
  EXPECT_TRUE(Eventually([this] { return server_->active() == kUnread; }));
  // They stand still, and their places at the worker serve others.
  EXPECT_TRUE(Eventually([this] { return LiveSessions() == 0; }));
  const int64_t extends = Extends() - extends_before - kReaders * kTokens;
  EXPECT_LT(extends, kUnread * 1000) << "tokens that were decided for nobody";
  EXPECT_LT(test::LiveBytes() - live_before, (kReaders + kUnread) * (128 << 10));
  for (const auto& client : unread) client->Close();
  EXPECT_TRUE(EverythingIsFree());
}

// About the time of a machine that does nothing else, so only on request.
TEST_F(ManyStreamsTest, TheOthersWaitNoLongerForTheirTokens) {
  if (std::getenv("TANDEM_EXHAUSTIVE") == nullptr) GTEST_SKIP() << "TANDEM_EXHAUSTIVE is not set";
  AddWorker(Paced(milliseconds(60)));
  options_.drafts = 0;
  Serve();
  // The 99th percentile of the time between two events of a reader, in milliseconds.
  const auto gap = [this] {
    std::vector<std::vector<double>> gaps(kReaders);
    std::vector<std::thread> threads;
    for (int i = 0; i < kReaders; ++i) {
      threads.emplace_back([this, i, &gaps] {
        RawClient client(http());
        client.Send(StreamText(PromptOf(i), 100));
        client.ReadUntil("\n\n");
        for (auto last = std::chrono::steady_clock::now();;) {
          const std::string event = client.ReadUntil("\n\n");
          if (event.find("finish_reason\":null") == std::string::npos) return;
          const auto now = std::chrono::steady_clock::now();
          gaps[i].push_back(std::chrono::duration<double, std::milli>(now - last).count());
          last = now;
        }
      });
    }
    std::vector<double> all;
    for (int i = 0; i < kReaders; ++i) {
      threads[i].join();
      all.insert(all.end(), gaps[i].begin() + 5, gaps[i].end());
    }
    std::nth_element(all.begin(), all.begin() + all.size() * 99 / 100, all.end());
    return all[all.size() * 99 / 100];
  };
  std::vector<double> alone, beside;  // with those fifty read by somebody, and by nobody
  for (int round = 0; round < 3; ++round) {
    for (const bool is_read : {true, false}) {
      std::vector<std::unique_ptr<RawClient>> others;
      std::vector<std::thread> threads;
      std::atomic<bool> stop = false;
      for (int i = 0; i < kUnread; ++i) {
        others.push_back(
            std::make_unique<RawClient>(http(), RawClient::Options{.receive_buffer = 4096}));
        others.back()->Send(BigText(i));
        if (!is_read) continue;
        threads.emplace_back([&stop, client = others.back().get()] {
          while (!stop && !client->ReadUntil("\n\n").empty()) {
          }
        });
      }
      (is_read ? alone : beside).push_back(gap());
      stop = true;
      for (std::thread& thread : threads) thread.join();
      others.clear();
      ASSERT_TRUE(EverythingIsFree());
    }
  }
  std::sort(alone.begin(), alone.end());
  std::sort(beside.begin(), beside.end());
  std::printf(
      "99th percentile of a reader's gap: %.1f ms beside %d streams that are read, %.1f "
      "ms beside as many that are not\n",
      alone[1], kUnread, beside[1]);
  EXPECT_LT(beside[1], 1.1 * alone[1]);
}

TEST_F(ManyStreamsTest, WhenAllClientsLeaveAllSessionsAreFreeWithinTwoSteps) {
  constexpr int kStreams = 500;
  AddWorker(Paced(milliseconds(1000)));
  options_.drafts = 0;
  Serve();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<RawClient>(http()));
    clients.back()->Send(StreamText("go " + std::to_string(i), 90'000));
  }
  for (const auto& client : clients) ASSERT_NE(client->ReadUntil("\n\n"), "");
  const int64_t extends = Extends();
  for (const auto& client : clients) client->Close();
  ASSERT_TRUE(EverythingIsFree());
  EXPECT_LE(Extends() - extends, kStreams * 2 * kTokensOfStep);
  EXPECT_TRUE(Eventually([this] { return workers_[0]->totals().closes == kStreams; }));
}

}  // namespace
}  // namespace tandem::text
