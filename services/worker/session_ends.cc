#include "services/worker/session_ends.h"

#include "services/common/logging.h"

namespace tandem {

void SessionEnds::OnClosed(const ClosedEvent& event) {
  const auto reason = static_cast<size_t>(event.reason);
  counts_[reason].fetch_add(1, std::memory_order_relaxed);
  const bool broken = event.reason == ClosedEvent::Reason::kNonFinite ||
                      event.reason == ClosedEvent::Reason::kFault;
  if (!broken && !log_all_) return;
  LogEvent(broken ? LogLevel::kError : LogLevel::kInfo, "session_closed",
           {{"request_id", event.request_id},
            {"stream", event.handle.stream},
            {"handle", event.handle.number},
            {"reason", kNames[reason]},
            {"detail", event.detail}});
}

void SessionEnds::OnStreamEnded(int32_t sessions) {
  counts_[kNumReasons - 1].fetch_add(sessions, std::memory_order_relaxed);
}

std::array<int64_t, SessionEnds::kNumReasons> SessionEnds::counts() const {
  std::array<int64_t, kNumReasons> out{};
  for (size_t i = 0; i < kNumReasons; ++i) out[i] = counts_[i];
  return out;
}

}  // namespace tandem
