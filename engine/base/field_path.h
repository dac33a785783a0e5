// Messages of errors begin with the field that they are about: "chat.messages[2].role is empty".
#pragma once

#include <string_view>

namespace tandem {

// The path of fields and indices that the text begins with ("chat.messages[2].content"), without
// dots behind it; any lower-case word is one. Points into the text.
inline std::string_view LeadingPath(std::string_view text) {
  size_t size = 0;
  const auto is_part = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '[' ||
           c == ']';
  };
  while (size < text.size() && is_part(text[size])) ++size;
  while (size > 0 && text[size - 1] == '.') --size;
  return text.substr(0, size);
}

}  // namespace tandem
