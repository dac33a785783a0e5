#include "services/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace tandem::cli {

bool StderrIsTerminal() { return isatty(STDERR_FILENO) == 1; }
bool StdinIsTerminal() { return isatty(STDIN_FILENO) == 1; }
bool StdoutIsTerminal() { return isatty(STDOUT_FILENO) == 1; }

TerminalSize SizeOfTerminal(int fd) {
  TerminalSize size;
  winsize window{};
  if (ioctl(fd, TIOCGWINSZ, &window) != 0) return size;
  if (window.ws_col > 0) size.columns = window.ws_col;
  if (window.ws_row > 0) size.rows = window.ws_row;
  return size;
}

std::string CutToWidth(std::string_view line, int columns) {
  size_t end = 0;
  for (int seen = 0; end < line.size(); ++end) {
    const bool begins = (static_cast<unsigned char>(line[end]) & 0xC0) != 0x80;
    if (begins && ++seen > columns) break;
  }
  return std::string(line.substr(0, end));
}

std::string ForTerminal(std::string_view text) {
  std::string safe;
  safe.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const unsigned char c = text[i];
    // C1 controls are 0xC2 0x80..0x9F in UTF-8.
    const bool c1 =
        c == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7F || c1) {
      safe += "\xEF\xBF\xBD";
      if (c1) ++i;
    } else {
      safe += text[i];
    }
  }
  return safe;
}

}  // namespace tandem::cli
