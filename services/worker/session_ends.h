// How sessions end: counted, and said in the log with the request that they were of. Faults and
// values that are not finite always; the others where the log is to have each session. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/decode_engine.h"

namespace tandem {

class SessionEnds final {
 public:
  // The reasons of ClosedEvent, in their order, and the end of a session's stream.
  static constexpr size_t kNumReasons = 8;
  static constexpr std::array<std::string_view, kNumReasons> kNames = {
      "done", "preempted", "draining", "expired", "refused", "non_finite", "fault", "stream_ended"};

  SessionEnds() = default;
  SessionEnds(const SessionEnds&) = delete;
  SessionEnds& operator=(const SessionEnds&) = delete;

  void SetLogAll(bool log_all) { log_all_ = log_all; }
  void OnClosed(const ClosedEvent& event);
  // So many sessions went with it.
  void OnStreamEnded(int32_t sessions);
  std::array<int64_t, kNumReasons> counts() const;

 private:
  std::atomic<bool> log_all_{false};
  std::array<std::atomic<int64_t>, kNumReasons> counts_{};
};

}  // namespace tandem
