// Sends requests in a closed or an open loop and adds up what comes back.
//
// Closed loop: so many requests are in flight; one that ends is followed by the next. Open loop:
// requests start when the plan says, whatever became of those before, and a request's latencies
// count from that intended start: a client that falls behind, or a server that makes everybody
// wait, shows in every latency that it caused (no coordinated omission).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "services/cli/latency.h"

namespace tandem::cli {

// What only a text tier's own API says of a request.
struct ServerSide {
  Nanos queue = 0;  // received to admitted
  Nanos prefill = 0;
  int64_t from_lists = 0;
  int64_t fetched = 0;
  int64_t misses = 0;
  int64_t faults = 0;
  int64_t rewound = 0;
  int64_t reopened = 0;
  int64_t approximate = 0;
};

// What became of one request. Times are SteadyNow's.
struct LoadResult {
  std::string error;       // empty: it finished; else in one line what went wrong
  bool cancelled = false;  // by CancelAll; `error` is of no meaning
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt, found in a worker's cache
  int64_t output_tokens = 0;  // that arrived, also where it failed
  Nanos first = 0;            // first output token; 0: none
  Nanos last = 0;             // last output token
  Nanos done = 0;
  std::vector<Nanos> gaps;  // between messages with output tokens that follow each other
  std::optional<ServerSide> server;
};

class LoadTarget {
 public:
  virtual ~LoadTarget() = default;
  // Sends request `number` and returns. `done` is called once, from any thread, also before Send
  // returns.
  virtual void Send(int64_t number, std::function<void(LoadResult)> done) = 0;
  // Ends what is in flight, soon.
  virtual void CancelAll() = 0;
};

// Numbers that change while it runs. Thread-safe.
struct LoadMeter {
  std::atomic<int64_t> started{0};
  std::atomic<int64_t> ended{0};
  std::atomic<int64_t> failed{0};
  std::atomic<int64_t> output_tokens{0};  // as they arrive
};

struct LoadOptions {
  int32_t concurrency = 1;      // of a closed loop, at least 1
  std::optional<double> rate;   // requests a second: an open loop instead
  int64_t requests = 0;         // 0: no limit
  double duration_seconds = 0;  // no request starts later; 0: no limit. REQUIRES one of the two
  // Requests that go first, in a closed loop, and count for nothing.
  int64_t warmup = 0;
  uint64_t seed = 1;  // of the arrivals
};

// In flight, at most, in an open loop: one more waits, and its wait counts.
inline constexpr int32_t kMaxInFlight = 16384;
// Kinds of errors that are told apart.
inline constexpr int32_t kMaxErrorKinds = 32;

struct LoadReport {
  int64_t ok = 0;
  int64_t failed = 0;
  int64_t cancelled = 0;
  std::map<std::string, int64_t> errors;  // how many; beyond kMaxErrorKinds: "other errors"
  Nanos elapsed = 0;                      // from the first intended start to the last end
  // Of requests that finished, except output_tokens: of all.
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t output_tokens = 0;
  LatencyHistogram first_token;       // intended start to first output token
  LatencyHistogram per_output_token;  // of a request: (last - first) / (output tokens - 1)
  LatencyHistogram gap;
  LatencyHistogram end_to_end;  // intended start to the end
  LatencyHistogram send_lag;    // intended start to sending: what this client was late
  // Where the target has them.
  LatencyHistogram queue;
  LatencyHistogram prefill;
  std::optional<ServerSide> server;  // sums; its times are of no meaning
};

class LoadGenerator final {
 public:
  // Both must outlive this.
  LoadGenerator(LoadTarget* target, LoadMeter* meter) : target_(target), meter_(meter) {}

  // Returns once nothing is in flight. Requests are numbered from 0, warm-up included. Once *stop
  // is true nothing more starts, and what runs is cancelled. tick is called about ten times a
  // second, from this thread.
  LoadReport Run(const LoadOptions& options, const std::atomic<bool>& stop,
                 const std::function<void()>& tick);

 private:
  LoadTarget* const target_;
  LoadMeter* const meter_;
};

}  // namespace tandem::cli
