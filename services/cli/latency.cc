#include "services/cli/latency.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/base/check.h"

namespace tandem::cli {
namespace {

constexpr int kBits = 7;  // of a value that its bucket keeps, beside the leading one
constexpr int64_t kSteps = int64_t{1} << kBits;
// Values of 63 bits: two rows of width 1, then one row for each further bit.
constexpr int64_t kBuckets = (63 - kBits + 1) * kSteps;

int64_t BucketOf(uint64_t value) {
  const int shift = std::max(0, static_cast<int>(std::bit_width(value)) - kBits - 1);
  return shift * kSteps + static_cast<int64_t>(value >> shift);
}

// The middle of a bucket.
Nanos ValueOf(int64_t bucket) {
  const int64_t shift = std::max<int64_t>(0, bucket / kSteps - 1);
  const int64_t first = (bucket - shift * kSteps) << shift;
  return first + ((int64_t{1} << shift) - 1) / 2;
}

}  // namespace

LatencyHistogram::LatencyHistogram() : counts_(kBuckets) {}

void LatencyHistogram::Add(Nanos latency) {
  latency = std::max<Nanos>(0, latency);
  ++counts_[static_cast<size_t>(BucketOf(static_cast<uint64_t>(latency)))];
  ++count_;
  sum_ += static_cast<double>(latency);
  min_ = std::min(min_, latency);
  max_ = std::max(max_, latency);
}

void LatencyHistogram::Merge(const LatencyHistogram& other) {
  for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
  sum_ += other.sum_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
}

Nanos LatencyHistogram::Quantile(double q) const {
  TANDEM_CHECK(q >= 0.0 && q <= 1.0) << q;
  if (count_ == 0) return 0;
  // The share that rounding puts a hair above a whole rank is that rank.
  const double exact = q * static_cast<double>(count_);
  const int64_t rank = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(exact * (1 - 1e-12))));
  if (rank == count_) return max_;
  int64_t seen = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    seen += counts_[i];
    if (seen >= rank) return std::clamp(ValueOf(static_cast<int64_t>(i)), min_, max_);
  }
  return max_;
}

}  // namespace tandem::cli
