// What a person types: edited on a terminal (libedit), plain lines elsewhere.
//
// A line that ends with a backslash goes on with the next one. What is pasted into a terminal that
// says where a paste begins and ends (bracketed paste) is one message with all of its lines; a
// newline in it is shown as U+2424 while it is edited, and in the history.
//
// Ctrl-C throws away what was typed; at an empty prompt it ends the input, as Ctrl-D does.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tandem::cli {

// At most one, from the thread that made it.
class LineReader final {
 public:
  // terminal: stdin is one, and lines are edited there.
  explicit LineReader(bool terminal);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // For arrow-up; oldest first.
  void SetHistory(const std::vector<std::string>& lines);

  struct Input {
    std::string text;     // of the lines, joined with newlines
    std::string history;  // the same as one line, for the history
  };
  // Nothing: the input has ended.
  std::optional<Input> Read();
  // The last Read ended with Ctrl-C.
  bool interrupted() const { return interrupted_; }

 private:
  // One line without its end. interrupted_ says whether Ctrl-C ended it.
  std::optional<std::string> ReadLine(const char* prompt);

  const bool terminal_;
  bool interrupted_ = false;
};

}  // namespace tandem::cli
