// Lines at the bottom of a terminal that are drawn again in place. The cursor is hidden while it
// lives, and comes back with its end or with a signal that ends the program.
//
// Not thread-safe.
#pragma once

#include <string>

namespace tandem::cli {

class LiveView final {
 public:
  // fd: a terminal. One at a time.
  explicit LiveView(int fd);
  // What was drawn last stays.
  ~LiveView();
  LiveView(const LiveView&) = delete;
  LiveView& operator=(const LiveView&) = delete;

  // Replaces what was drawn before. Lines end with a newline; they are cut at the width of the
  // terminal, and there are at most as many as it has, less one. REQUIRES no control characters.
  void Draw(const std::string& lines);
  // Takes away what was drawn.
  void Clear();

 private:
  const int fd_;
  int drawn_ = 0;  // lines
};

}  // namespace tandem::cli
