#include "services/cli/private_file.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace tandem::cli {
namespace {

constexpr mode_t kPrivate = 0600;

absl::Status Failed(const std::string& path, const char* what) {
  return absl::UnavailableError(absl::StrCat(path, ": ", what, ": ", std::strerror(errno)));
}

bool WriteAll(int fd, const std::string& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t written = write(fd, bytes.data() + done, bytes.size() - done);
    if (written <= 0) return false;
    done += static_cast<size_t>(written);
  }
  return true;
}

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

absl::Status ReplacePrivateFile(const std::string& path, const std::string& bytes) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::weakly_canonical(path, error);
  const std::string target = error ? path : real.string();
  std::string draft = target + ".XXXXXX";
  const int fd = mkstemp(draft.data());  // 0600
  if (fd < 0) return Failed(path, "cannot be written");
  const bool written = WriteAll(fd, bytes) && fsync(fd) == 0;
  const absl::Status failed = written ? absl::OkStatus() : Failed(path, "cannot be written");
  close(fd);
  if (written && rename(draft.c_str(), target.c_str()) == 0) return absl::OkStatus();
  const absl::Status status = written ? Failed(path, "cannot be replaced") : failed;
  unlink(draft.c_str());
  return status;
}

InputHistory::InputHistory(std::string path) : path_(std::move(path)) {}

std::string InputHistory::DefaultPath() {
  std::string state = Variable("XDG_STATE_HOME");
  // The specification says that a relative one is to be left out.
  if (state.empty() || state[0] != '/') {
    const std::string home = Variable("HOME");
    if (home.empty()) return "";
    state = home + "/.local/state";
  }
  return state + "/tandem/chat_history";
}

absl::Status InputHistory::Open() {
  if (path_.empty()) return absl::OkStatus();
  const std::string path = std::exchange(path_, "");
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!std::filesystem::exists(folder, error)) {
    std::filesystem::create_directories(folder, error);
    if (error) {
      return absl::UnavailableError(absl::StrCat(folder.string(), ": ", error.message()));
    }
    chmod(folder.c_str(), 0700);
  }
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kPrivate);
  if (fd < 0) return Failed(path, "cannot be opened");
  // An older file may have been made with another mode.
  const bool is_private = fchmod(fd, kPrivate) == 0;
  close(fd);
  if (!is_private) return Failed(path, "cannot be made private");
  std::ifstream file(path, std::ios::binary);
  std::string line;
  size_t count = 0;
  while (std::getline(file, line)) {
    ++count;
    if (line.empty() || line.size() > kMaxLineBytes) continue;
    lines_.push_back(line);
    if (lines_.size() > 2 * kMaxLines) lines_.erase(lines_.begin(), lines_.begin() + kMaxLines);
  }
  if (lines_.size() > kMaxLines) {
    lines_.erase(lines_.begin(), lines_.end() - static_cast<std::ptrdiff_t>(kMaxLines));
  }
  path_ = path;
  if (count <= 2 * kMaxLines) return absl::OkStatus();
  std::string kept;
  for (const std::string& each : lines_) absl::StrAppend(&kept, each, "\n");
  return ReplacePrivateFile(path, kept);
}

void InputHistory::Add(const std::string& line) {
  if (line.empty() || line.size() > kMaxLineBytes) return;
  if (line.find('\n') != std::string::npos) return;
  if (!lines_.empty() && lines_.back() == line) return;
  lines_.push_back(line);
  if (path_.empty()) return;
  const int fd =
      open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kPrivate);
  if (fd < 0) return;
  // One write, so that lines of two chats do not mix.
  WriteAll(fd, line + "\n");
  close(fd);
}

}  // namespace tandem::cli
