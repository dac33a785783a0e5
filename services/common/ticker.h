// Calls a function every so often, in a thread of its own, until it goes.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace tandem {

class Ticker final {
 public:
  // The first call comes after one interval. REQUIRES interval > 0.
  Ticker(std::chrono::milliseconds interval, std::function<void()> tick);
  // Waits for a call that runs; none comes afterwards.
  ~Ticker();
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

 private:
  void Run(std::chrono::milliseconds interval);

  const std::function<void()> tick_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace tandem
