#include "services/common/progress.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"

namespace tandem {
namespace {

constexpr int kBarWidth = 32;  // characters, at most
constexpr int kMinBarWidth = 4;
constexpr int kAroundBar = 10;  // " [", "] 100 %", and the last column, which stays free
constexpr int kPlainStep = 25;

}  // namespace

Progress::Progress(std::string label, bool terminal, std::ostream& out, int columns)
    : label_(std::move(label)),
      terminal_(terminal),
      out_(out),
      width_(std::clamp(columns - static_cast<int>(label_.size()) - kAroundBar, kMinBarWidth,
                        kBarWidth)) {}

Progress::~Progress() {
  if (line_open_) out_ << "\n" << std::flush;
}

void Progress::Update(int64_t done, int64_t total) {
  TANDEM_CHECK(done >= 0 && done <= total) << "progress " << done << " of " << total;
  const int percent =
      total == 0 ? 100 : static_cast<int>(static_cast<double>(done) * 100.0 / total);
  if (!terminal_) {
    const int step = percent / kPlainStep * kPlainStep;
    if (step <= shown_percent_ || step == 0) return;
    shown_percent_ = step;
    out_ << label_ << ": " << step << " %\n" << std::flush;
    return;
  }
  if (percent == shown_percent_) return;
  shown_percent_ = percent;
  const int filled = percent * width_ / 100;
  out_ << "\r" << label_ << " [" << std::string(filled, '#') << std::string(width_ - filled, '.')
       << "] " << percent << " %";
  line_open_ = done != total;
  if (!line_open_) out_ << "\n";
  out_ << std::flush;
}

}  // namespace tandem
