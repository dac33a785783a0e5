#include "kernels/cpu/thread_pool.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/check.h"

namespace tandem::kernels::cpu {
namespace {

// A round of waiting is a pause instruction, about 40 ns: together some 50 microseconds.
constexpr int32_t kSpins = 1200;

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

int32_t CoresOfAffinity() {
#if defined(__linux__)
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0) return CPU_COUNT(&cpus);
#endif
  return static_cast<int32_t>(std::thread::hardware_concurrency());
}

// Quota of one control group in cores (version 2's cpu.max: "quota period", both in microseconds);
// infinite where there is none.
double CoresOfQuota(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  double quota = 0.0, period = 0.0;  // "max" does not parse as a number
  if (file >> quota >> period && period > 0.0) return quota / period;
  return INFINITY;
}

// The least quota of this process's control group and those above it.
double CoresOfControlGroup() {
  const std::string root = "/sys/fs/cgroup";
  double cores = CoresOfQuota(root);
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.rfind("0::", 0) != 0) continue;  // version 2's line
    std::string path = line.substr(3);
    while (path.size() > 1) {
      cores = std::min(cores, CoresOfQuota(root + path));
      path.resize(path.rfind('/'));
    }
  }
  return cores;
}

}  // namespace

int32_t UsableCores() {
  const double cores = std::min<double>(CoresOfAffinity(), std::ceil(CoresOfControlGroup()));
  return std::max(1, static_cast<int32_t>(cores));
}

ThreadPool::ThreadPool(int32_t num_threads) : runs_(num_threads) {
  KERNELS_REQUIRE(num_threads >= 1 && num_threads <= 256, "num_threads %d", num_threads);
  // With more threads than cores a waiting thread would spin on a core that a working one needs.
  spins_ = num_threads <= CoresOfAffinity() ? kSpins : 0;
  threads_.reserve(num_threads - 1);
  for (int32_t i = 1; i < num_threads; ++i) threads_.emplace_back([this, i] { Work(i); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  wake_ups_.fetch_add(1);
  wake_ups_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::RunItems(int32_t num_items, const void* context, Invoke invoke) {
  if (num_items <= 1 || threads_.empty()) {
    for (int32_t item = 0; item < num_items; ++item) invoke(context, item, 0);
    return;
  }
  context_ = context;
  invoke_ = invoke;
  num_items_ = num_items;
  unfinished_.store(num_items, std::memory_order_relaxed);
  unclaimed_.store(num_items);  // publishes the job
  if (sleepers_.load() > 0) {
    wake_ups_.fetch_add(1);
    wake_ups_.notify_all();
  }
  RunClaimed(0);
  for (int32_t i = 0; i < spins_ && unfinished_.load(std::memory_order_acquire) > 0; ++i) Pause();
  if (unfinished_.load() == 0) return;
  caller_sleeps_.store(true);
  for (int32_t left; (left = unfinished_.load()) > 0;) unfinished_.wait(left);
  caller_sleeps_.store(false);
}

void ThreadPool::RunClaimed(int32_t thread) {
  int32_t unclaimed = unclaimed_.load(std::memory_order_relaxed);
  while (unclaimed > 0) {
    if (!unclaimed_.compare_exchange_weak(unclaimed, unclaimed - 1, std::memory_order_acquire,
                                          std::memory_order_relaxed)) {
      continue;
    }
    invoke_(context_, num_items_ - unclaimed, thread);
    if (unfinished_.fetch_sub(1) == 1 && caller_sleeps_.load()) unfinished_.notify_one();
    unclaimed = unclaimed_.load(std::memory_order_relaxed);
  }
}

bool ThreadPool::AwaitWork() {
  for (int32_t i = 0; i < spins_; ++i) {
    if (unclaimed_.load(std::memory_order_relaxed) > 0) return true;
    Pause();
  }
  while (!stop_.load()) {
    // Either the caller sees this thread among the sleepers and wakes it, or this thread sees the
    // caller's items: both sides write before they read, in one total order.
    const uint32_t wake_ups = wake_ups_.load();
    sleepers_.fetch_add(1);
    if (unclaimed_.load() == 0 && !stop_.load()) wake_ups_.wait(wake_ups);
    sleepers_.fetch_sub(1);
    if (unclaimed_.load() > 0) return true;
  }
  return false;
}

void ThreadPool::Work(int32_t thread) {
  while (AwaitWork()) RunClaimed(thread);
}

}  // namespace tandem::kernels::cpu
