// Latencies of any number of events in constant memory.
//
// A histogram whose buckets are as wide as 1/128 of the power of two that they lie in: below 256 ns
// each nanosecond has its own, above that a value that is read back is off by at most 1/256 of
// itself (0.4 %). Count, mean, least and most are exact.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/clock.h"

namespace tandem::cli {

class LatencyHistogram final {
 public:
  LatencyHistogram();

  // A negative latency counts as 0.
  void Add(Nanos latency);
  void Merge(const LatencyHistogram& other);

  int64_t count() const { return count_; }
  // Of nothing, each is 0.
  Nanos min() const { return count_ > 0 ? min_ : 0; }
  Nanos max() const { return max_; }
  double mean() const { return count_ > 0 ? sum_ / static_cast<double>(count_) : 0.0; }
  // The least latency that at least the share q of all does not exceed (nearest rank), to the
  // precision above. REQUIRES 0 <= q <= 1.
  Nanos Quantile(double q) const;

 private:
  std::vector<int64_t> counts_;
  int64_t count_ = 0;
  double sum_ = 0.0;
  Nanos min_ = INT64_MAX;
  Nanos max_ = 0;
};

}  // namespace tandem::cli
