// Progress of something that takes seconds: a bar that redraws itself on a terminal, a plain line
// every 25 % elsewhere.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

namespace tandem {

class Progress final {
 public:
  // out must outlive this. columns: of the terminal; the bar is as much shorter as it has to be.
  Progress(std::string label, bool terminal, std::ostream& out, int columns = 80);
  // Ends the line of a bar that did not come to its end.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // REQUIRES 0 <= done <= total, done not falling. A call that changes no shown digit writes
  // nothing; done == total ends the bar's line.
  void Update(int64_t done, int64_t total);

 private:
  const std::string label_;
  const bool terminal_;
  std::ostream& out_;
  const int width_;  // of the bar
  int shown_percent_ = -1;
  bool line_open_ = false;
};

}  // namespace tandem
