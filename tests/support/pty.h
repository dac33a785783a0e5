// A program on a terminal of its own, for tests of what a person sees and types.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

namespace tandem::test {

class Pty final {
 public:
  // argv[0] is a path; environment: "NAME=value", beside this process's. 100 columns, 30 rows.
  explicit Pty(const std::vector<std::string>& argv,
               const std::vector<std::string>& environment = {});
  ~Pty();  // SIGKILL, if it still runs
  Pty(const Pty&) = delete;
  Pty& operator=(const Pty&) = delete;

  void Type(const std::string& keys);
  // Waits until the program has written this behind what earlier calls waited for; returns what
  // came up to its end, or, after the patience or at the program's end, all there is, with
  // "[nothing like it]" behind it.
  std::string WaitFor(const std::string& text, double patience_seconds = 60);
  // Waits until it has ended: the exit status, 128 + signal, or -1 after the patience.
  int Wait(double patience_seconds = 60);
  // Everything that it wrote, escape sequences and all.
  const std::string& output() const { return output_; }

 private:
  // Reads what is there, waiting a little. False: the program has closed the terminal.
  bool Read();

  int fd_ = -1;
  pid_t pid_ = -1;
  std::string output_;
  size_t seen_ = 0;
};

}  // namespace tandem::test
