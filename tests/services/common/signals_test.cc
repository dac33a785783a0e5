#include "services/common/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

namespace tandem {
namespace {

TEST(SignalWatcher, CountsTheSignalsOfTheProcessInItsOwnThread) {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::pair<int, int>> seen;
  const SignalWatcher watcher([&](int signal, int count) {
    std::lock_guard lock(mutex);
    seen.emplace_back(signal, count);
    changed.notify_all();
  });
  const auto wait_for = [&](size_t count) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(10), [&] { return seen.size() == count; });
  };
  kill(getpid(), SIGTERM);
  ASSERT_TRUE(wait_for(1));
  kill(getpid(), SIGINT);
  ASSERT_TRUE(wait_for(2));
  EXPECT_EQ(seen[0], std::make_pair(SIGTERM, 1));
  EXPECT_EQ(seen[1], std::make_pair(SIGINT, 2));
}

TEST(SignalWatcher, AWriteIntoAClosedPipeIsAnErrorNotADeath) {
  const SignalWatcher watcher([](int, int) {});
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  EXPECT_EQ(write(ends[1], "x", 1), -1);
  EXPECT_EQ(errno, EPIPE);
  close(ends[1]);
}

}  // namespace
}  // namespace tandem
