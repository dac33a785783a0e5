#include "services/common/ticker.h"

#include <utility>

namespace tandem {

Ticker::Ticker(std::chrono::milliseconds interval, std::function<void()> tick)
    : tick_(std::move(tick)) {
  thread_ = std::thread([this, interval] { Run(interval); });
}

Ticker::~Ticker() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Ticker::Run(std::chrono::milliseconds interval) {
  auto next = std::chrono::steady_clock::now() + interval;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_until(lock, next, [this] { return stop_; })) {
    lock.unlock();
    tick_();
    next = std::chrono::steady_clock::now() + interval;
    lock.lock();
  }
}

}  // namespace tandem
