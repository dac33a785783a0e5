// Server-sent events out of the bytes of a response, in pieces of any size.
//
// As the HTML standard has them: lines end with CR, LF or both; a blank line ends an event; its
// data are the values of its "data" lines, joined with newlines; comments and fields other than
// data are left out, and so is an event without data, or one that is not ended.
//
// Not thread-safe.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace tandem::cli {

class SseReader final {
 public:
  static constexpr size_t kMaxEventBytes = size_t{4} << 20;

  // Calls on_data for each event that these bytes complete. RESOURCE_EXHAUSTED: an event has more
  // than kMaxEventBytes; nothing may be fed afterwards.
  absl::Status Feed(std::string_view bytes, const std::function<void(const std::string&)>& on_data);

 private:
  void EndLine(const std::function<void(const std::string&)>& on_data);

  std::string line_;
  std::string data_;
  bool has_data_ = false;
  bool after_cr_ = false;  // an LF now belongs to the line before
};

}  // namespace tandem::cli
