#include "services/common/signals.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "engine/base/check.h"

namespace tandem {

SignalWatcher::SignalWatcher(std::function<void(int, int)> on_signal)
    : on_signal_(std::move(on_signal)) {
  signal(SIGPIPE, SIG_IGN);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  TANDEM_CHECK(pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0) << "errno " << errno;
  signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC);
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  TANDEM_CHECK(signal_fd_ >= 0 && stop_fd_ >= 0) << "errno " << errno;
  thread_ = std::thread([this] { Run(); });
}

SignalWatcher::~SignalWatcher() {
  const uint64_t one = 1;
  TANDEM_CHECK(write(stop_fd_, &one, sizeof(one)) == sizeof(one)) << "errno " << errno;
  thread_.join();
  close(signal_fd_);
  close(stop_fd_);
}

void SignalWatcher::Run() {
  int count = 0;
  while (true) {
    pollfd fds[] = {{signal_fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) {
      TANDEM_CHECK(errno == EINTR) << "errno " << errno;
      continue;
    }
    if (fds[1].revents != 0) return;
    signalfd_siginfo info;
    if (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
      on_signal_(static_cast<int>(info.ssi_signo), ++count);
    }
  }
}

}  // namespace tandem
