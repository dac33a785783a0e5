// What a shard counts while it works. A plain struct of one thread: what comes with every token
// costs additions and no lock. The shard gives out copies (Shard::counts).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/base/clock.h"
#include "services/common/histogram.h"
#include "services/text/choice.h"
#include "services/text/door.h"
#include "services/text/replay.h"
#include "services/text/session.h"

namespace tandem::text {

// Bounds of buckets, in seconds.
inline constexpr std::array<double, 11> kQueueBounds = {0.001, 0.005, 0.02, 0.1, 0.5, 1,
                                                        2,     5,     10,   30,  60};
inline constexpr std::array<double, 13> kFirstTokenBounds = {0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5,
                                                             1,     2,    5,    10,   20,  60};
inline constexpr std::array<double, 13> kTokenBounds = {
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5};
inline constexpr std::array<double, 13> kRequestBounds = {0.05, 0.1, 0.2, 0.5, 1,   2,  5,
                                                          10,   20,  60,  120, 300, 600};
inline constexpr std::array<double, 13> kDecideBounds = {
    0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1};

inline constexpr size_t kNumStatusCodes = 17;  // absl::StatusCode, 0 to 16

struct ShardCounts {
  // Now.
  int64_t running = 0;  // requests
  int64_t waiting = 0;  // of those: no worker has admitted them yet

  // Since the start.
  std::array<std::array<int64_t, kNumStatusCodes>, kNumDoors> requests{};  // ended, by status
  std::array<int64_t, v1::FinishReason_ARRAYSIZE> choices{};               // finished, by reason
  std::array<std::array<int64_t, 2>, Replay::kNumCauses> reopened{};  // choices; [1]: approximate
  int64_t prompt_tokens = 0;  // of requests that have a first token
  int64_t cached_tokens = 0;  // of those
  int64_t from_lists = 0;     // tokens
  int64_t fetched = 0;        // tokens
  int64_t confirmed_draws = 0;
  int64_t misses = 0;
  int64_t faults = 0;
  int64_t rewinds = 0;
  int64_t pauses = 0;
  Histogram<kQueueBounds> queue_seconds;
  Histogram<kFirstTokenBounds> first_token_seconds;
  Histogram<kTokenBounds> inter_token_seconds;
  Histogram<kTokenBounds> worker_wait_seconds;
  Histogram<kTokenBounds> fetch_seconds;
  Histogram<kRequestBounds> request_seconds;
  Histogram<kDecideBounds> decide_seconds;

  int64_t output_tokens() const { return from_lists + fetched; }
  void Add(const ShardCounts& other);
};

// "max_tokens" of FINISH_REASON_MAX_TOKENS: how metrics and logs name it.
std::string FinishLabel(v1::FinishReason reason);

inline double Seconds(Nanos nanos) { return static_cast<double>(nanos) * 1e-9; }

// What a choice had before an input, so that what the input made of it can be counted afterwards.
class ChoiceMark final {
 public:
  explicit ChoiceMark(const Choice& choice);
  // Once after the input. Returns how many tokens it decided.
  int32_t Count(const Choice& choice, Nanos received, Nanos now, ShardCounts* counts) const;

 private:
  int32_t from_lists_;
  int32_t fetched_;
  int32_t misses_;
  int32_t faults_;
  int32_t rewound_;
  int64_t confirmed_draws_;
  Nanos last_token_at_;
  Nanos idle_since_;
  Nanos fetching_since_;
};

}  // namespace tandem::text
