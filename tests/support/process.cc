#include "tests/support/process.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/check.h"

namespace tandem::test {

Process::Process(const std::vector<std::string>& argv) {
  char name[] = "/tmp/tandem-test-output-XXXXXX";
  const int output = mkstemp(name);
  TANDEM_CHECK(output >= 0) << "cannot make a temporary file";
  output_path_ = name;
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  pid_ = fork();
  TANDEM_CHECK(pid_ >= 0) << "fork failed";
  if (pid_ == 0) {
    const int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  close(output);
}

Process::~Process() {
  if (!Reap(false)) {
    kill(pid_, SIGKILL);
    Reap(true);
  }
  unlink(output_path_.c_str());
}

void Process::Signal(int signal) {
  if (!Reap(false)) kill(pid_, signal);
}

bool Process::Reap(bool block) {
  if (ended_) return true;
  int status = 0;
  if (waitpid(pid_, &status, block ? 0 : WNOHANG) != pid_) return false;
  ended_ = true;
  status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return true;
}

int Process::Wait(double timeout_seconds) {
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_seconds);
  while (!Reap(false)) {
    if (std::chrono::steady_clock::now() > end) return -1;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return status_;
}

bool Process::running() { return !Reap(false); }

std::string Process::output() const {
  std::ifstream file(output_path_, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

RunResult RunProgram(const std::vector<std::string>& argv, double timeout_seconds) {
  Process process(argv);
  RunResult result;
  result.status = process.Wait(timeout_seconds);
  result.output = process.output();
  return result;
}

TemporaryFolder::TemporaryFolder() {
  char name[] = "/tmp/tandem-test-XXXXXX";
  TANDEM_CHECK(mkdtemp(name) != nullptr) << "cannot make a temporary folder";
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

}  // namespace tandem::test
