// What an API key is: a client shows one as `authorization: Bearer KEY`, on both wires.
#pragma once

#include <cstddef>
#include <string_view>

namespace tandem {

inline constexpr size_t kMaxApiKeyBytes = 512;

// 1 to kMaxApiKeyBytes visible ASCII characters.
bool IsApiKey(std::string_view text);

// A line of a file of keys without what editors leave at its end.
std::string_view TrimKeyLine(std::string_view line);

}  // namespace tandem
