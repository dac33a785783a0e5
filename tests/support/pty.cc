#include "tests/support/pty.h"

#include <chrono>
#include <csignal>
#include <cstdlib>

#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/check.h"

namespace tandem::test {
namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point After(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

Pty::Pty(const std::vector<std::string>& argv, const std::vector<std::string>& environment) {
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  winsize size{};
  size.ws_col = 100;
  size.ws_row = 30;
  pid_ = forkpty(&fd_, nullptr, nullptr, &size);
  TANDEM_CHECK(pid_ >= 0) << "forkpty failed";
  if (pid_ == 0) {
    setenv("TERM", "xterm", 1);
    for (const std::string& entry : environment) putenv(const_cast<char*>(entry.c_str()));
    execv(arguments[0], arguments.data());
    _exit(127);
  }
}

Pty::~Pty() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(fd_);
}

void Pty::Type(const std::string& keys) {
  TANDEM_CHECK(write(fd_, keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()));
}

bool Pty::Read() {
  pollfd poll_fd{fd_, POLLIN, 0};
  if (poll(&poll_fd, 1, 20) <= 0) return true;
  char bytes[4096];
  const ssize_t count = read(fd_, bytes, sizeof(bytes));
  if (count <= 0) return false;
  output_.append(bytes, static_cast<size_t>(count));
  return true;
}

std::string Pty::WaitFor(const std::string& text, double patience_seconds) {
  const Clock::time_point end = After(patience_seconds);
  const size_t begin = seen_;
  bool open = true;
  while (true) {
    const size_t found = output_.find(text, seen_);
    if (found != std::string::npos) {
      seen_ = found + text.size();
      return output_.substr(begin, seen_ - begin);
    }
    if (!open || Clock::now() > end) return output_.substr(begin) + "[nothing like it]";
    open = Read();
  }
}

int Pty::Wait(double patience_seconds) {
  const Clock::time_point end = After(patience_seconds);
  int status = 0;
  while (pid_ > 0 && waitpid(pid_, &status, WNOHANG) != pid_) {
    if (Clock::now() > end) return -1;
    // What it writes has to be read, or it waits for that.
    if (!Read()) usleep(1000);
  }
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace tandem::test
