// SIGTERM and SIGINT, taken by a thread of their own, where any code may run.
#pragma once

#include <functional>
#include <thread>

namespace tandem {

// While it lives, the two signals are blocked in the thread that made it and in all threads that
// one starts afterwards, and on_signal(signal number, how many so far) runs in this object's thread
// for each. Make it first thing in main, before any library starts threads. SIGPIPE is ignored from
// then on: a closed pipe is an error of the write.
class SignalWatcher final {
 public:
  explicit SignalWatcher(std::function<void(int signal, int count)> on_signal);
  // Waits for a running on_signal. The signals stay blocked.
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

 private:
  void Run();

  const std::function<void(int, int)> on_signal_;
  int signal_fd_ = -1;
  int stop_fd_ = -1;
  std::thread thread_;
};

}  // namespace tandem
