// What a person's terminal is, and what may be written to it.
#pragma once

#include <string>
#include <string_view>

namespace tandem::cli {

bool StderrIsTerminal();
bool StdinIsTerminal();
bool StdoutIsTerminal();

struct TerminalSize {
  int columns = 80;
  int rows = 24;
};
// Of the terminal at fd, or 80 x 24 where it does not say.
TerminalSize SizeOfTerminal(int fd);

// The first `columns` code points of a line.
std::string CutToWidth(std::string_view line, int columns);

// Text that came over the network, for a terminal: control characters except newline and tab become
// U+FFFD, so that no answer can move the cursor or set a title.
std::string ForTerminal(std::string_view text);

}  // namespace tandem::cli
