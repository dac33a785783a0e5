#include "services/cli/terminal.h"

#include <unistd.h>

namespace tandem::cli {

bool StderrIsTerminal() { return isatty(STDERR_FILENO) == 1; }
bool StdinIsTerminal() { return isatty(STDIN_FILENO) == 1; }

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
