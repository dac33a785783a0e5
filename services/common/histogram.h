// A distribution as counts in fixed buckets: what a thread keeps of its own while it works, at the
// price of a search among a few bounds and an addition. A copy is a snapshot.
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tandem {

// A Histogram of any bounds, for whoever writes it out. Valid as long as what it looks at.
struct HistogramView {
  std::span<const double> bounds;   // upper ends, inclusive, ascending
  std::span<const int64_t> counts;  // of each bucket alone; the last is of what is above all bounds
  double sum = 0.0;

  int64_t total() const {
    int64_t out = 0;
    for (const int64_t count : counts) out += count;
    return out;
  }
};

// kBounds: a std::array<double, n> of upper ends, inclusive, ascending, in the metric's own unit.
template <const auto& kBounds>
class Histogram final {
 public:
  // The same value so many times.
  void Observe(double value, int64_t times = 1) {
    const auto bucket = std::lower_bound(kBounds.begin(), kBounds.end(), value);
    counts_[static_cast<size_t>(bucket - kBounds.begin())] += times;
    sum_ += value * static_cast<double>(times);
  }
  void Add(const Histogram& other) {
    for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
    sum_ += other.sum_;
  }
  // What came since `earlier`, a snapshot of this.
  void Subtract(const Histogram& earlier) {
    for (size_t i = 0; i < counts_.size(); ++i) counts_[i] -= earlier.counts_[i];
    sum_ -= earlier.sum_;
  }
  HistogramView view() const { return {kBounds, counts_, sum_}; }

 private:
  std::array<int64_t, kBounds.size() + 1> counts_{};
  double sum_ = 0.0;
};

// The value that a share q, in [0, 1], of all values does not pass, as well as buckets can tell: on
// a straight line within its bucket; of what is above all bounds, the last of them. 0: there are no
// values.
double Quantile(const HistogramView& histogram, double q);

}  // namespace tandem
