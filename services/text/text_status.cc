// The text tier's status line.
#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/common/logging.h"
#include "services/common/status_text.h"
#include "services/text/text_metrics.h"

namespace tandem::text {

void LogStatus(const TextSnapshot& now, const TextSnapshot& earlier, double seconds) {
  const int64_t tokens = now.shards.output_tokens() - earlier.shards.output_tokens();
  if (tokens == 0 && now.shards.running == 0) return;
  auto first_token = now.shards.first_token_seconds;
  first_token.Subtract(earlier.shards.first_token_seconds);
  const bool any_first = first_token.view().total() > 0;
  const double median = Quantile(first_token.view(), 0.5);
  int64_t free = 0, pages = 0, connected = 0;
  for (const WorkerReports::Report& worker : now.workers) {
    if (worker.state == WorkerReports::State::kLost) continue;
    ++connected;
    free += worker.free_pages;
    pages += worker.total_pages;
  }
  const double rate = static_cast<double>(tokens) / seconds;
  const int64_t running = now.shards.running - now.shards.waiting;
  const int64_t percent = pages > 0 ? 100 * free / pages : 0;
  const std::string text = absl::StrCat(
      running, " running, ", now.shards.waiting, " queued, ", Grouped(rate), " tok/s, ",
      any_first ? absl::StrFormat("first token %.2g s (median), ", median) : "", "pages ", percent,
      " % free, ", connected, " of ", now.workers.size(), " workers");
  LogEvent(LogLevel::kInfo, "status",
           {{"running", running},
            {"queued", now.shards.waiting},
            {"tokens_per_second", rate},
            {"first_token_seconds_p50", any_first ? median : std::nan("")},  // null
            {"pages_free_percent", percent},
            {"workers", connected}},
           text);
}

}  // namespace tandem::text
