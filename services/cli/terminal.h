// What is shown to a person on stderr; nothing of it where stderr is not a terminal.
#pragma once

#include <string>
#include <string_view>

namespace tandem::cli {

bool StderrIsTerminal();
bool StdinIsTerminal();

// Text that came over the network, for a terminal: control characters except newline and tab become
// U+FFFD, so that no answer can move the cursor or set a title.
std::string ForTerminal(std::string_view text);

}  // namespace tandem::cli
