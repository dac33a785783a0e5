#include "services/cli/interrupt.h"

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <utility>

namespace tandem::cli {
namespace {

// A process has one SIGINT, so what it does is the process's state too.
struct State {
  std::mutex mutex;
  std::function<void()> restore_terminal;
  InterruptScope* innermost = nullptr;
};

State& GetState() {
  static State& state = *new State;
  return state;
}

}  // namespace

void HandleSignal(int signal) {
  State& state = GetState();
  std::lock_guard<std::mutex> lock(state.mutex);
  InterruptScope* const scope = state.innermost;
  if (signal == SIGINT && scope != nullptr && !scope->interrupted_) {
    scope->interrupted_ = true;
    scope->stop_();
    return;
  }
  if (state.restore_terminal != nullptr) state.restore_terminal();
  std::cerr << std::endl;
  std::_Exit(128 + signal);
}

void SetRestoreTerminal(std::function<void()> restore_terminal) {
  State& state = GetState();
  std::lock_guard<std::mutex> lock(state.mutex);
  state.restore_terminal = std::move(restore_terminal);
}

InterruptScope::InterruptScope(std::function<void()> stop) : stop_(std::move(stop)) {
  State& state = GetState();
  std::lock_guard<std::mutex> lock(state.mutex);
  outer_ = std::exchange(state.innermost, this);
}

InterruptScope::~InterruptScope() {
  State& state = GetState();
  std::lock_guard<std::mutex> lock(state.mutex);
  state.innermost = outer_;
}

bool InterruptScope::interrupted() const {
  std::lock_guard<std::mutex> lock(GetState().mutex);
  return interrupted_;
}

}  // namespace tandem::cli
