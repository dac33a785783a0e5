#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace tandem::kernels::cpu {
namespace {

TEST(ThreadPool, RunsEveryItemExactlyOnce) {
  for (const int32_t num_threads : {1, 2, 3, 8}) {
    ThreadPool pool(num_threads);
    for (int32_t num_items = 0; num_items < 40; ++num_items) {
      std::vector<std::atomic<int32_t>> runs(num_items);
      pool.Run(num_items, [&](int32_t item, int32_t thread) {
        ASSERT_GE(thread, 0);
        ASSERT_LT(thread, num_threads);
        ++runs[item];
      });
      for (const std::atomic<int32_t>& count : runs) ASSERT_EQ(count, 1);
    }
  }
}

TEST(ThreadPool, RunsEveryNeighbourExactlyOnce) {
  for (const int32_t num_threads : {1, 2, 3, 8}) {
    ThreadPool pool(num_threads);
    for (int32_t num_items = 0; num_items < 40; ++num_items) {
      std::vector<std::atomic<int32_t>> runs(num_items);
      pool.RunNeighbours(num_items, [&](int32_t item, int32_t) { ++runs[item]; });
      for (const std::atomic<int32_t>& count : runs) ASSERT_EQ(count, 1);
    }
  }
}

TEST(ThreadPool, ShowsTheCallerWhatItemsWrote) {
  ThreadPool pool(4);
  std::vector<int64_t> values(64);  // plain memory: a missing edge is a race that TSan sees
  for (int64_t round = 1; round <= 2000; ++round) {
    pool.Run(64, [&](int32_t item, int32_t) { values[item] += item * round; });
    int64_t sum = 0;
    for (const int64_t value : values) sum += value;
    ASSERT_EQ(sum, 2016 * round * (round + 1) / 2);
  }
}

TEST(ThreadPool, WakesThreadsThatHaveGoneToSleep) {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int32_t> started{0};
    // Each item waits for all: only three threads at once get through.
    pool.Run(3, [&](int32_t, int32_t) {
      ++started;
      while (started < 3) std::this_thread::yield();
    });
    ASSERT_EQ(started, 3);
  }
}

TEST(ThreadPool, WaitsForAnItemThatTakesLong) {
  ThreadPool pool(2);
  std::atomic<bool> other_started{false}, done{false};
  pool.Run(2, [&](int32_t, int32_t thread) {
    if (thread == 0) {
      while (!other_started) std::this_thread::yield();
    } else {
      other_started = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      done = true;
    }
  });
  EXPECT_TRUE(done);
}

TEST(ThreadPool, EndsWhetherItsThreadsSpinSleepOrHaveJustStarted) {
  for (int round = 0; round < 50; ++round) {
    ThreadPool pool(4);
    if (round % 2 == 0) pool.Run(8, [](int32_t, int32_t) {});
    if (round % 5 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(UsableCores, StaysWithinTheAffinityMask) {
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  EXPECT_GE(UsableCores(), 1);
  EXPECT_LE(UsableCores(), CPU_COUNT(&all));
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(UsableCores(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(all), &all), 0);
}

}  // namespace
}  // namespace tandem::kernels::cpu
