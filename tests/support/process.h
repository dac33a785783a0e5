// A child process for tests of whole programs: started with its output in a file, killed when the
// object goes.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

namespace tandem::test {

class Process final {
 public:
  // argv[0] is a path. Fails the test run (abort) if the program cannot be started.
  explicit Process(const std::vector<std::string>& argv);
  ~Process();  // SIGKILL, if it still runs
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void Signal(int signal);
  // Waits until it has ended; -1 after the time-out, else the exit status (128 + signal if one
  // ended it).
  int Wait(double timeout_seconds);
  bool running();
  // Everything written to stdout and stderr so far.
  std::string output() const;
  pid_t pid() const { return pid_; }

 private:
  bool Reap(bool block);
  pid_t pid_ = -1;
  int status_ = -1;
  bool ended_ = false;
  std::string output_path_;
};

// Runs to the end and returns status and output.
struct RunResult {
  int status = -1;
  std::string output;
};
RunResult RunProgram(const std::vector<std::string>& argv, double timeout_seconds = 60);

// A folder of its own for a test, removed with the object.
class TemporaryFolder final {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace tandem::test
