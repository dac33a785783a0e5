#include "services/common/status_text.h"

#include <cmath>
#include <cstdint>

namespace tandem {

std::string Grouped(double value) {
  const std::string digits = std::to_string(static_cast<int64_t>(std::llround(value)));
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

}  // namespace tandem
