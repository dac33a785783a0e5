// Ctrl-C stops the answer, not the program: while an answer runs, SIGINT calls what was registered;
// otherwise it ends the program with status 128 + signal, after giving the terminal back.
#pragma once

#include <functional>

namespace tandem::cli {

// What main hands to its SignalWatcher.
void HandleSignal(int signal);

// Called before a signal ends the program.
void SetRestoreTerminal(std::function<void()> restore_terminal);

// While it lives, the first SIGINT calls `stop` (from the watcher's thread) instead of ending the
// program. Scopes nest: the innermost one counts. They end in the opposite order.
class InterruptScope final {
 public:
  explicit InterruptScope(std::function<void()> stop);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
  bool interrupted() const;

 private:
  friend void HandleSignal(int signal);
  const std::function<void()> stop_;
  InterruptScope* outer_ = nullptr;  // what is around it
  bool interrupted_ = false;         // guarded by the mutex of all
};

}  // namespace tandem::cli
