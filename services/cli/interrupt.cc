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
  std::function<void()> stop;
  bool interrupted = false;
};

State& GetState() {
  static State& state = *new State;
  return state;
}

}  // namespace

void HandleSignal(int signal) {
  State& state = GetState();
  std::lock_guard<std::mutex> lock(state.mutex);
  if (signal == SIGINT && state.stop != nullptr && !state.interrupted) {
    state.interrupted = true;
    state.stop();
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

InterruptScope::InterruptScope(std::function<void()> stop) {
  State& state = GetState();
  std::lock_guard<std::mutex> lock(state.mutex);
  state.stop = std::move(stop);
  state.interrupted = false;
}

InterruptScope::~InterruptScope() {
  State& state = GetState();
  std::lock_guard<std::mutex> lock(state.mutex);
  state.stop = nullptr;
}

bool InterruptScope::interrupted() const {
  State& state = GetState();
  std::lock_guard<std::mutex> lock(state.mutex);
  return state.interrupted;
}

}  // namespace tandem::cli
