// The version of this build, as CMake's project() states it.
#pragma once

#include <string_view>

namespace tandem {

// "0.1.0"
std::string_view Version();

}  // namespace tandem
