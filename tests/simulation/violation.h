// The first thing that a simulation found wrong.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"

namespace tandem::test {

class Violation final {
 public:
  // Keeps the first one. Returns `ok`.
  template <typename... Parts>
  bool Require(bool ok, const Parts&... parts) {
    if (!ok && text_.empty()) text_ = absl::StrCat(parts...);
    return ok;
  }
  bool any() const { return !text_.empty(); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace tandem::test
