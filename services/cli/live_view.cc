#include "services/cli/live_view.h"

#include <algorithm>
#include <vector>

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "services/cli/interrupt.h"
#include "services/cli/terminal.h"

namespace tandem::cli {
namespace {

constexpr char kHideCursor[] = "\x1b[?25l";
constexpr char kShowCursor[] = "\x1b[?25h";
constexpr char kClearToEnd[] = "\x1b[J";

void Write(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t written = write(fd, text.data() + done, text.size() - done);
    if (written <= 0) return;  // the terminal is gone: nobody looks
    done += static_cast<size_t>(written);
  }
}

}  // namespace

LiveView::LiveView(int fd) : fd_(fd) {
  SetRestoreTerminal([fd] { Write(fd, kShowCursor); });
  Write(fd_, kHideCursor);
}

LiveView::~LiveView() {
  Write(fd_, kShowCursor);
  SetRestoreTerminal(nullptr);
}

void LiveView::Draw(const std::string& lines) {
  const TerminalSize size = SizeOfTerminal(fd_);
  std::vector<std::string> all = absl::StrSplit(lines, '\n', absl::SkipEmpty());
  const size_t most = static_cast<size_t>(std::max(1, size.rows - 1));
  if (all.size() > most) {
    all.resize(most);
    all.back() = "(more lines need a higher terminal)";
  }
  std::string text = drawn_ > 0 ? absl::StrCat("\r\x1b[", drawn_, "A") : "\r";
  text += kClearToEnd;
  for (const std::string& line : all) absl::StrAppend(&text, CutToWidth(line, size.columns), "\n");
  Write(fd_, text);
  drawn_ = static_cast<int>(all.size());
}

void LiveView::Clear() {
  if (drawn_ > 0) Write(fd_, absl::StrCat("\r\x1b[", drawn_, "A", kClearToEnd));
  drawn_ = 0;
}

}  // namespace tandem::cli
