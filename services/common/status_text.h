// Numbers as status lines have them.
#pragma once

#include <string>

namespace tandem {

// Rounded, with commas: 1204.4 is "1,204". REQUIRES 0 <= value < 2^63.
std::string Grouped(double value);

}  // namespace tandem
