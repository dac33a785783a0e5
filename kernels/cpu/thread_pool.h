// Runs the items of one operation on a fixed set of threads. The caller's thread works too.
//
// Items are claimed one by one, so that a thread that the system holds up takes fewer; which thread
// runs an item is left open, and results must not depend on it. A thread that finds no work spins
// for some tens of microseconds, the gap between two operations of a step, and then sleeps.
//
// Threads: Run is for one thread at a time.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace tandem::kernels::cpu {

// Cores that this process may use: its affinity mask, cut to the CPU quota of its control group
// (rounded up). At least 1.
int32_t UsableCores();

class ThreadPool final {
 public:
  // REQUIRES num_threads in [1, 256]. Starts num_threads - 1 threads.
  explicit ThreadPool(int32_t num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int32_t num_threads() const { return static_cast<int32_t>(threads_.size()) + 1; }

  // Calls function(item, thread) for every item in [0, num_items), thread in [0, num_threads());
  // returns when all have returned. What they wrote is then visible to the caller.
  template <typename Function>
  void Run(int32_t num_items, const Function& function) {
    RunItems(num_items, &function, [](const void* context, int32_t item, int32_t thread) {
      (*static_cast<const Function*>(context))(item, thread);
    });
  }

  // The same, for items that lie behind each other in memory: each thread goes through a run of
  // neighbouring items, so that what is prefetched past one item is its own next, and then helps
  // the others with theirs.
  template <typename Function>
  void RunNeighbours(int32_t num_items, const Function& function) {
    const int32_t num_runs = num_threads();
    for (int32_t r = 0; r < num_runs; ++r) {
      runs_[r].next.store(static_cast<int32_t>(int64_t{num_items} * r / num_runs),
                          std::memory_order_relaxed);
      runs_[r].end = static_cast<int32_t>(int64_t{num_items} * (r + 1) / num_runs);
    }
    Run(num_runs, [&](int32_t first_run, int32_t thread) {
      for (int32_t r = 0; r < num_runs; ++r) {
        ItemRun& run = runs_[(first_run + r) % num_runs];
        for (int32_t item; (item = run.next.fetch_add(1, std::memory_order_relaxed)) < run.end;) {
          function(item, thread);
        }
      }
    });
  }

  // function(begin, end) over [0, count), cut into pieces of `piece`.
  template <typename Function>
  void ForPieces(int64_t count, int64_t piece, const Function& function) {
    Run(static_cast<int32_t>((count + piece - 1) / piece), [&](int32_t item, int32_t) {
      function(item * piece, std::min(count, (item + 1) * piece));
    });
  }

  // function(row) for rows [0, num_rows), a few at a time.
  template <typename Function>
  void ForRows(int32_t num_rows, const Function& function) {
    ForPieces(num_rows, std::max(1, num_rows / (4 * num_threads())),
              [&](int64_t begin, int64_t end) {
                for (int64_t row = begin; row < end; ++row) function(static_cast<int32_t>(row));
              });
  }

 private:
  struct alignas(64) ItemRun {
    std::atomic<int32_t> next{0};
    int32_t end = 0;
  };
  using Invoke = void (*)(const void* context, int32_t item, int32_t thread);

  void RunItems(int32_t num_items, const void* context, Invoke invoke);
  void Work(int32_t thread);
  // Claims and runs items until none is left.
  void RunClaimed(int32_t thread);
  // Waits until there is work or the pool ends; true: work.
  bool AwaitWork();

  // The job. Written while unclaimed_ is 0 and every claimed item is done, so that whoever claims
  // an item reads the job it belongs to.
  const void* context_ = nullptr;
  Invoke invoke_ = nullptr;
  int32_t num_items_ = 0;
  int32_t spins_ = 0;  // rounds of waiting before sleep

  alignas(64) std::atomic<int32_t> unclaimed_{0};
  alignas(64) std::atomic<int32_t> unfinished_{0};
  alignas(64) std::atomic<int32_t> sleepers_{0};
  std::atomic<uint32_t> wake_ups_{0};
  std::atomic<bool> caller_sleeps_{false};
  std::atomic<bool> stop_{false};
  std::vector<ItemRun> runs_;  // [num_threads()]
  std::vector<std::thread> threads_;
};

}  // namespace tandem::kernels::cpu
