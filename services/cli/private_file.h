// Files that are their user's alone (0600): what somebody has typed, or been told.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tandem::cli {

// The whole file, or what was there before. A link is followed. UNAVAILABLE: it cannot be written.
absl::Status ReplacePrivateFile(const std::string& path, const std::string& bytes);

// The lines that somebody typed, oldest first, over all chats of this user: one a line in a file.
class InputHistory final {
 public:
  static constexpr size_t kMaxLines = 1000;
  static constexpr size_t kMaxLineBytes = size_t{64} << 10;  // a longer one is not kept

  // path: "", to keep nothing.
  explicit InputHistory(std::string path);

  // Where it belongs: $XDG_STATE_HOME/tandem/chat_history, else ~/.local/state/tandem/...; "" where
  // neither variable is set.
  static std::string DefaultPath();

  // At most the last kMaxLines. UNAVAILABLE: the file is there and cannot be read, or its folder
  // cannot be made; then nothing is kept.
  absl::Status Open();
  const std::vector<std::string>& lines() const { return lines_; }
  // Appends to the file, too, where it can: a line that is lost is no reason to stop.
  void Add(const std::string& line);

 private:
  std::string path_;
  std::vector<std::string> lines_;
};

}  // namespace tandem::cli
