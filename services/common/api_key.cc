#include "services/common/api_key.h"

#include <algorithm>

namespace tandem {

bool IsApiKey(std::string_view text) {
  return !text.empty() && text.size() <= kMaxApiKeyBytes &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

std::string_view TrimKeyLine(std::string_view line) {
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
  return line;
}

}  // namespace tandem
