#include "services/text/task_pool.h"

#include <utility>

namespace tandem::text {

TaskPool::TaskPool(int32_t num_threads, int32_t max_waiting) : max_waiting_(max_waiting) {
  for (int32_t i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Run(); });
}

TaskPool::~TaskPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool TaskPool::Post(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    if (stop_ || static_cast<int32_t>(tasks_.size()) >= max_waiting_) return false;
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
  return true;
}

int32_t TaskPool::waiting() const {
  std::lock_guard lock(mutex_);
  return static_cast<int32_t>(tasks_.size());
}

void TaskPool::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

}  // namespace tandem::text
