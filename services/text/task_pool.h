// A few threads for work that takes milliseconds to seconds (templates, tokenizers), so that no
// thread of gRPC and no shard waits for it. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tandem::text {

class TaskPool final {
 public:
  // At most max_waiting tasks wait for a thread.
  TaskPool(int32_t num_threads, int32_t max_waiting);
  // Runs what waits, then joins.
  ~TaskPool();
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  // False: too many wait; the task is not taken.
  [[nodiscard]] bool Post(std::function<void()> task);
  // Tasks that wait for a thread.
  int32_t waiting() const;

 private:
  void Run();

  const int32_t max_waiting_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;  // guarded by mutex_
  bool stop_ = false;                        // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace tandem::text
