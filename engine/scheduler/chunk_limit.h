// How many prefill rows may stand beside decode rows, so that a step takes at most `slowdown` times
// what its decode rows alone would take. Only speed depends on it, never results.
//
// Model: a step of d decode rows and p prefill rows takes D(d) + c p. Both are learned:
// - D, per bucket of d (powers of two): running means of d and of the time of decode-only steps,
//   and the slope of the regression line within the bucket. Buckets without such steps are
//   interpolated between the means of known ones; above all D is that of the highest, below all it
//   shrinks with d, both of which rather allow too little. They also learn from mixed steps that
//   are by the model at least three quarters decode, as time - c p.
// - c, from mixed steps: the sum of (time - D) over the sum of p, both fading, so that it follows
//   prefill that gets dearer as its context grows, and is that of the chunks now in use where cost
//   is not linear in p. Until there are mixed steps it is time / p of prefill-only steps, an upper
//   estimate.
// The limit is (slowdown - 1) D / c, but at most twice the largest p of the latest mixed steps,
// since c says little about larger ones; in this way it can grow where rows cost next to nothing.
// Before D or c is known it is the number of decode rows, at least 8.
//
// Noise: a time may be far too long (a process that was not scheduled) but hardly too short. So a
// sample counts as at most twice the running mean of D (the first of a bucket: twice what other
// buckets make possible), or four times what was expected or is allowed for the prefill rows. A
// mean falls at once to twice a sample, and to 1.25 times a mixed step.
#pragma once

#include <array>
#include <cstdint>

#include "engine/base/clock.h"

namespace tandem {

class ChunkLimit final {
 public:
  // slowdown >= 1, or 0: no limit. REQUIRES this and step_tokens >= 1.
  ChunkLimit(double slowdown, int32_t step_tokens);

  // A step that was collected. Ignored where nanos <= 0 or it had no rows. REQUIRES rows >= 0.
  void Observe(int32_t decode_rows, int32_t prefill_rows, Nanos nanos);
  // In [1, step_tokens]. REQUIRES decode_rows >= 0; for 0 it is step_tokens.
  int32_t MaxPrefillRows(int32_t decode_rows) const;
  // D, in nanoseconds; 0: nothing is known. REQUIRES decode_rows >= 1.
  double DecodeNanos(int32_t decode_rows) const;

 private:
  static constexpr int kNumBuckets = 32;
  struct Bucket {  // decode rows in [2^i, 2^(i + 1))
    int32_t num_samples = 0;
    bool is_guess = false;  // learned from mixed steps
    double rows = 0;        // means
    double nanos = 0;
    double variance = 0;    // of rows
    double covariance = 0;  // of rows and nanos
  };
  struct Neighbours {
    const Bucket* below = nullptr;
    const Bucket* above = nullptr;
  };
  struct Ratio {  // of fading sums
    double nanos = 0;
    double rows = 0;
    void Add(double more_nanos, double more_rows);
    bool is_known() const { return rows > 0; }
    double per_row() const { return nanos > 0 ? nanos / rows : 0; }
  };

  void LearnDecode(int32_t decode_rows, double nanos, bool is_guess);
  void LearnMixed(int32_t decode_rows, int32_t prefill_rows, double nanos);
  bool HasMeasured(int bucket) const;
  Neighbours NeighboursOf(int bucket) const;
  double MostDecodeNanos(int32_t decode_rows) const;
  const Ratio& RowCost() const { return mixed_.is_known() ? mixed_ : prefill_only_; }

  double slowdown_;
  int32_t step_tokens_;
  std::array<Bucket, kNumBuckets> buckets_;
  Ratio mixed_;
  Ratio prefill_only_;
  double explored_rows_ = 0;  // the largest p of mixed steps, fading
};

}  // namespace tandem
