#include "engine/scheduler/chunk_limit.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "engine/base/check.h"

namespace tandem {
namespace {

constexpr double kFade = 7.0 / 8;        // of the sums, per step
constexpr int32_t kMeanSamples = 16;     // a mean moves by at least 1 / 16 of a sample's distance
constexpr double kMostOfMean = 2;        // a sample of D, in running means
constexpr double kMostOfMixed = 1.25;    // the mean of D, in mixed steps
constexpr double kMostOfExpected = 4;    // a sample of what prefill rows add
constexpr double kGuessShare = 1.0 / 4;  // prefill's of a mixed step that teaches D
constexpr int32_t kFirstRows = 8;

int BucketOf(int32_t decode_rows) { return std::bit_width(static_cast<uint32_t>(decode_rows)) - 1; }

}  // namespace

void ChunkLimit::Ratio::Add(double more_nanos, double more_rows) {
  nanos = nanos * kFade + more_nanos;
  rows = rows * kFade + more_rows;
}

ChunkLimit::ChunkLimit(double slowdown, int32_t step_tokens)
    : slowdown_(slowdown), step_tokens_(step_tokens) {
  TANDEM_CHECK(slowdown == 0 || slowdown >= 1) << "slowdown " << slowdown;
  TANDEM_CHECK(step_tokens >= 1) << "step_tokens " << step_tokens;
}

void ChunkLimit::Observe(int32_t decode_rows, int32_t prefill_rows, Nanos nanos) {
  TANDEM_CHECK(decode_rows >= 0 && prefill_rows >= 0)
      << decode_rows << " decode rows, " << prefill_rows << " prefill rows";
  if (nanos <= 0) return;
  const double time = static_cast<double>(nanos);
  if (decode_rows > 0 && prefill_rows > 0) {
    LearnMixed(decode_rows, prefill_rows, time);
  } else if (decode_rows > 0) {
    LearnDecode(decode_rows, time, false);
  } else if (prefill_rows > 0) {
    double sample = time;
    if (prefill_only_.is_known()) {
      prefill_only_.nanos =
          std::min(prefill_only_.nanos, kMostOfMean * time / prefill_rows * prefill_only_.rows);
      sample = std::min(time, kMostOfExpected * prefill_only_.per_row() * prefill_rows);
    }
    prefill_only_.Add(sample, prefill_rows);
  }
}

void ChunkLimit::LearnDecode(int32_t decode_rows, double nanos, bool is_guess) {
  Bucket& bucket = buckets_[BucketOf(decode_rows)];
  if (bucket.is_guess && !is_guess) bucket = {};
  if (bucket.num_samples == 0) {
    nanos = std::min(nanos, kMostOfMean * MostDecodeNanos(decode_rows));
    bucket = {.is_guess = is_guess, .rows = static_cast<double>(decode_rows), .nanos = nanos};
  }
  bucket.num_samples = std::min(bucket.num_samples + 1, kMeanSamples);
  const double share = 1.0 / bucket.num_samples;
  bucket.nanos = std::min(bucket.nanos, kMostOfMean * nanos);
  const double more_nanos = std::min(nanos, kMostOfMean * bucket.nanos) - bucket.nanos;
  const double more_rows = decode_rows - bucket.rows;
  bucket.nanos += share * more_nanos;
  bucket.rows += share * more_rows;
  bucket.variance = (1 - share) * (bucket.variance + share * more_rows * more_rows);
  bucket.covariance = (1 - share) * (bucket.covariance + share * more_rows * more_nanos);
}

void ChunkLimit::LearnMixed(int32_t decode_rows, int32_t prefill_rows, double nanos) {
  explored_rows_ = std::max<double>(prefill_rows, explored_rows_ * kFade);
  const int index = BucketOf(decode_rows);
  Bucket& bucket = buckets_[index];
  const double expected = RowCost().per_row() * prefill_rows;
  // D was overestimated if more rows took less.
  if (bucket.num_samples > 0) bucket.nanos = std::min(bucket.nanos, kMostOfMixed * nanos);
  if (!HasMeasured(index)) {
    if (RowCost().is_known() && expected <= kGuessShare * nanos) {
      LearnDecode(decode_rows, nanos - expected, true);
    }
    return;
  }
  const double alone = DecodeNanos(decode_rows);
  const double allowed = (slowdown_ - 1) * alone;
  const double most = kMostOfExpected * std::max(expected, allowed);
  mixed_.Add(std::clamp(nanos - alone, -most, most), prefill_rows);
}

// Whether D was measured in the bucket, or both below and above it.
bool ChunkLimit::HasMeasured(int bucket) const {
  const auto is_measured = [](const Bucket& b) { return b.num_samples > 0 && !b.is_guess; };
  const auto at = buckets_.begin() + bucket;
  return is_measured(*at) || (std::any_of(buckets_.begin(), at, is_measured) &&
                              std::any_of(at, buckets_.end(), is_measured));
}

// The nearest known buckets below and above the bucket; null where there is none.
ChunkLimit::Neighbours ChunkLimit::NeighboursOf(int bucket) const {
  Neighbours found;
  for (int i = 0; i < kNumBuckets; ++i) {
    if (i == bucket || buckets_[i].num_samples == 0) continue;
    if (i < bucket) {
      found.below = &buckets_[i];
    } else {
      found.above = &buckets_[i];
      break;
    }
  }
  return found;
}

// D; 0: nothing is known.
double ChunkLimit::DecodeNanos(int32_t decode_rows) const {
  const Bucket& own = buckets_[BucketOf(decode_rows)];
  if (own.num_samples > 0) {
    const double slope = own.variance > 0 ? own.covariance / own.variance : 0;
    return own.nanos + std::clamp(slope, 0.0, own.nanos / own.rows) * (decode_rows - own.rows);
  }
  const auto [below, above] = NeighboursOf(BucketOf(decode_rows));
  if (above == nullptr) return below == nullptr ? 0 : below->nanos;
  const double from_rows = below == nullptr ? 0 : below->rows;
  const double from_nanos = below == nullptr ? 0 : below->nanos;
  return from_nanos +
         (above->nanos - from_nanos) * (decode_rows - from_rows) / (above->rows - from_rows);
}

// The most that D can be by other buckets: it neither falls with d nor grows faster than d.
double ChunkLimit::MostDecodeNanos(int32_t decode_rows) const {
  const auto [below, above] = NeighboursOf(BucketOf(decode_rows));
  double most = std::numeric_limits<double>::infinity();
  if (below != nullptr) most = below->nanos * decode_rows / below->rows;
  if (above != nullptr) most = std::min(most, above->nanos);
  return most;
}

int32_t ChunkLimit::MaxPrefillRows(int32_t decode_rows) const {
  TANDEM_CHECK(decode_rows >= 0) << decode_rows << " decode rows";
  if (slowdown_ == 0 || decode_rows == 0) return step_tokens_;
  if (slowdown_ == 1) return 1;
  const double first = std::max(kFirstRows, decode_rows);
  const double alone = DecodeNanos(decode_rows);
  double rows = first;
  if (alone > 0 && RowCost().is_known()) {
    rows = step_tokens_;
    if (mixed_.is_known()) rows = std::min(rows, std::max(first, 2 * explored_rows_));
    const double cost = RowCost().per_row();
    const double allowed = (slowdown_ - 1) * alone;
    if (cost * rows > allowed) rows = allowed / cost;
  }
  return static_cast<int32_t>(std::clamp<double>(rows, 1, step_tokens_));
}

}  // namespace tandem
