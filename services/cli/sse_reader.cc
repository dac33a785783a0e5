#include "services/cli/sse_reader.h"

#include <utility>

#include "engine/base/status.h"

namespace tandem::cli {

absl::Status SseReader::Feed(std::string_view bytes,
                             const std::function<void(const std::string&)>& on_data) {
  while (!bytes.empty()) {
    if (std::exchange(after_cr_, false) && bytes[0] == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const size_t end = bytes.find_first_of("\r\n");
    line_ += bytes.substr(0, end);
    if (line_.size() + data_.size() > kMaxEventBytes) {
      return ResourceExhausted("an event has more than ", kMaxEventBytes, " bytes");
    }
    if (end == std::string_view::npos) break;
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    EndLine(on_data);
  }
  return absl::OkStatus();
}

void SseReader::EndLine(const std::function<void(const std::string&)>& on_data) {
  constexpr std::string_view kField = "data";
  const std::string line = std::exchange(line_, "");
  if (line.empty()) {
    const std::string data = std::exchange(data_, "");
    if (std::exchange(has_data_, false)) on_data(data);
    return;
  }
  const size_t colon = line.find(':');
  if (line.substr(0, colon) != kField) return;
  std::string value = colon == std::string::npos ? "" : line.substr(colon + 1);
  if (!value.empty() && value[0] == ' ') value.erase(0, 1);
  if (std::exchange(has_data_, true)) data_ += '\n';
  data_ += value;
}

}  // namespace tandem::cli
