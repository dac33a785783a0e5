// Loops over a target that the test decides.
#include "services/cli/load_generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

namespace tandem::cli {
namespace {

// Answers from a thread of its own, each `delay` after it was sent, at most `slots` at a time: what
// comes beyond that waits, as at a server.
class FakeTarget final : public LoadTarget {
 public:
  explicit FakeTarget(std::chrono::milliseconds delay, size_t slots = 1000)
      : delay_(delay), slots_(slots), thread_([this] { Run(); }) {}
  ~FakeTarget() override {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void Send(int64_t number, std::function<void(LoadResult)> done) override {
    std::lock_guard lock(mutex_);
    numbers.insert(number);
    waiting_.push_back({number, std::move(done)});
    most = std::max(most, waiting_.size() + running_);
    changed_.notify_all();
  }
  void CancelAll() override {
    std::lock_guard lock(mutex_);
    cancel_ = true;
    changed_.notify_all();
  }

  std::function<void(int64_t, LoadResult*)> change;  // of what is answered
  bool never = false;                                // nothing is answered but by CancelAll
  std::set<int64_t> numbers;
  size_t most = 0;  // in flight

 private:
  struct Waiting {
    int64_t number;
    std::function<void(LoadResult)> done;
  };
  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stop_ || (!waiting_.empty() && (!never || cancel_)); });
      if (stop_) return;
      std::vector<Waiting> batch;
      while (!waiting_.empty() && batch.size() < slots_) {
        batch.push_back(std::move(waiting_.front()));
        waiting_.pop_front();
      }
      running_ = batch.size();
      const bool cancelled = cancel_;
      lock.unlock();
      const Nanos sent = SteadyNow();
      if (!cancelled) std::this_thread::sleep_for(delay_);
      for (Waiting& waiting : batch) {
        LoadResult result;
        result.cancelled = cancelled;
        result.prompt_tokens = 10;
        result.output_tokens = 3;
        result.first = sent + 1000;
        result.last = sent + 5000;
        result.gaps = {1000, 3000};
        result.done = SteadyNow();
        if (change) change(waiting.number, &result);
        lock.lock();
        --running_;
        lock.unlock();
        waiting.done(std::move(result));
      }
      lock.lock();
    }
  }

  const std::chrono::milliseconds delay_;
  const size_t slots_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;
  size_t running_ = 0;
  bool stop_ = false;
  bool cancel_ = false;
  std::thread thread_;
};

class LoadGeneratorTest : public testing::Test {
 protected:
  LoadReport Run(FakeTarget& target, const LoadOptions& options) {
    return LoadGenerator(&target, &meter_).Run(options, stop_, [this] { ++ticks_; });
  }
  LoadMeter meter_;
  std::atomic<bool> stop_{false};
  int ticks_ = 0;
};

TEST_F(LoadGeneratorTest, AClosedLoopKeepsSoManyInFlightAndSendsEachNumberOnce) {
  FakeTarget target(std::chrono::milliseconds(1));
  const LoadReport report = Run(target, {.concurrency = 4, .requests = 40});
  EXPECT_EQ(report.ok, 40);
  EXPECT_EQ(report.failed, 0);
  EXPECT_EQ(target.numbers.size(), 40u);
  EXPECT_EQ(*target.numbers.begin(), 0);
  EXPECT_EQ(*target.numbers.rbegin(), 39);
  EXPECT_EQ(target.most, 4u);
  EXPECT_EQ(report.output_tokens, 120);
  EXPECT_EQ(report.prompt_tokens, 400);
  EXPECT_EQ(report.first_token.count(), 40);
  EXPECT_EQ(report.gap.count(), 80);
  EXPECT_EQ(report.gap.max(), 3000);
  EXPECT_EQ(report.per_output_token.count(), 40);
  EXPECT_EQ(report.per_output_token.max(), 2000) << "(5000 - 1000) / (3 - 1)";
  EXPECT_FALSE(report.server.has_value());
  EXPECT_GE(report.elapsed, 10 * kNanosPerSecond / 1000) << "ten rounds of a millisecond";
  EXPECT_EQ(meter_.started, 40);
  EXPECT_EQ(meter_.ended, 40);
  EXPECT_GE(ticks_, 1);
}

TEST_F(LoadGeneratorTest, TheWarmUpGoesFirstAndCountsForNothing) {
  FakeTarget target(std::chrono::milliseconds(0));
  target.change = [](int64_t number, LoadResult* result) {
    if (number < 5) result->error = "of the warm-up";
  };
  const LoadReport report = Run(target, {.concurrency = 2, .requests = 10, .warmup = 5});
  EXPECT_EQ(report.ok, 10);
  EXPECT_EQ(report.failed, 0);
  EXPECT_TRUE(report.errors.empty());
  EXPECT_EQ(target.numbers.size(), 15u);
}

TEST_F(LoadGeneratorTest, LatenciesOfAnOpenLoopCountFromTheIntendedStart) {
  // 20 requests within about 20 ms at a server that takes 10 ms for each, one at a time: the last
  // ones wait for all before, which a client that sent them later would not have seen.
  FakeTarget target(std::chrono::milliseconds(10), 1);
  const LoadReport report = Run(target, {.rate = 1000.0, .requests = 20});
  EXPECT_EQ(report.ok, 20);
  EXPECT_GE(report.end_to_end.max(), 150 * kNanosPerSecond / 1000);
  EXPECT_GE(report.end_to_end.Quantile(0.5), 70 * kNanosPerSecond / 1000);
  EXPECT_GE(report.first_token.max(), 140 * kNanosPerSecond / 1000);
  EXPECT_GE(report.elapsed, 200 * kNanosPerSecond / 1000);
}

TEST_F(LoadGeneratorTest, ADurationEndsTheSendingAndWaitsForWhatRuns) {
  FakeTarget target(std::chrono::milliseconds(20));
  const LoadReport report = Run(target, {.concurrency = 3, .duration_seconds = 0.1});
  EXPECT_EQ(report.ok, static_cast<int64_t>(target.numbers.size()));
  EXPECT_EQ(report.cancelled, 0);
  EXPECT_GE(report.ok, 1);
  EXPECT_LE(report.ok, 3 * 6) << "at most five rounds begin within 100 ms, and one at its start";
}

TEST_F(LoadGeneratorTest, ErrorsAreCountedByWhatTheySayAndTheirTokensWithTheRest) {
  FakeTarget target(std::chrono::milliseconds(0));
  target.change = [](int64_t number, LoadResult* result) {
    if (number % 4 == 1) result->error = "UNAVAILABLE: gone";
    if (number % 4 == 2) result->error = "INTERNAL: bug";
  };
  const LoadReport report = Run(target, {.concurrency = 1, .requests = 12});
  EXPECT_EQ(report.ok, 6);
  EXPECT_EQ(report.failed, 6);
  EXPECT_EQ(report.errors,
            (std::map<std::string, int64_t>{{"INTERNAL: bug", 3}, {"UNAVAILABLE: gone", 3}}));
  EXPECT_EQ(report.end_to_end.count(), 6);
  EXPECT_EQ(report.output_tokens, 36);
  EXPECT_EQ(meter_.failed, 6);
}

TEST_F(LoadGeneratorTest, KindsOfErrorsHaveALimit) {
  FakeTarget target(std::chrono::milliseconds(0));
  target.change = [](int64_t number, LoadResult* result) {
    result->error = "error " + std::to_string(number);
  };
  const LoadReport report = Run(target, {.concurrency = 8, .requests = 100});
  EXPECT_EQ(report.failed, 100);
  EXPECT_EQ(report.errors.size(), static_cast<size_t>(kMaxErrorKinds) + 1);
  EXPECT_EQ(report.errors.at("other errors"), 100 - kMaxErrorKinds);
}

TEST_F(LoadGeneratorTest, AStopCancelsWhatRunsAndReportsWhatThereIs) {
  FakeTarget target(std::chrono::milliseconds(0));
  target.never = true;
  std::thread stopper([this] {
    while (meter_.started < 5) std::this_thread::yield();
    stop_ = true;
  });
  const LoadReport report = Run(target, {.concurrency = 5, .requests = 1000});
  stopper.join();
  EXPECT_EQ(report.ok, 0);
  EXPECT_EQ(report.cancelled, 5);
  EXPECT_EQ(report.failed, 0);
  EXPECT_EQ(target.numbers.size(), 5u);
}

TEST_F(LoadGeneratorTest, WhatTheServerSaysIsAddedUp) {
  FakeTarget target(std::chrono::milliseconds(0));
  target.change = [](int64_t number, LoadResult* result) {
    result->server = ServerSide{
        .queue = 100 * (number + 1), .prefill = 7, .from_lists = 2, .fetched = 1, .reopened = 1};
  };
  const LoadReport report = Run(target, {.concurrency = 1, .requests = 2});
  ASSERT_TRUE(report.server.has_value());
  EXPECT_EQ(report.server->from_lists, 4);
  EXPECT_EQ(report.server->fetched, 2);
  EXPECT_EQ(report.server->reopened, 2);
  EXPECT_EQ(report.queue.min(), 100);
  EXPECT_EQ(report.queue.max(), 200);
  EXPECT_EQ(report.prefill.max(), 7);
}

}  // namespace
}  // namespace tandem::cli
