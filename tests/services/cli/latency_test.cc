// Quantiles with known answers, and how far off a histogram may be.
#include "services/cli/latency.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tandem::cli {
namespace {

TEST(LatencyHistogram, OfNothingIsZero) {
  const LatencyHistogram none;
  EXPECT_EQ(none.count(), 0);
  EXPECT_EQ(none.min(), 0);
  EXPECT_EQ(none.max(), 0);
  EXPECT_EQ(none.mean(), 0.0);
  EXPECT_EQ(none.Quantile(0.5), 0);
}

TEST(LatencyHistogram, SmallLatenciesAreExactByNearestRank) {
  LatencyHistogram latency;
  for (Nanos i = 1; i <= 100; ++i) latency.Add(i);
  EXPECT_EQ(latency.count(), 100);
  EXPECT_EQ(latency.mean(), 50.5);
  EXPECT_EQ(latency.Quantile(0.0), 1);
  EXPECT_EQ(latency.Quantile(0.01), 1);
  EXPECT_EQ(latency.Quantile(0.5), 50);
  EXPECT_EQ(latency.Quantile(0.9), 90);
  EXPECT_EQ(latency.Quantile(0.99), 99);
  EXPECT_EQ(latency.Quantile(0.991), 100);
  EXPECT_EQ(latency.Quantile(1.0), 100);
}

TEST(LatencyHistogram, OneLatencyIsEveryQuantileExactly) {
  LatencyHistogram latency;
  latency.Add(123'456'789'012);
  for (const double q : {0.0, 0.5, 0.99, 1.0}) EXPECT_EQ(latency.Quantile(q), 123'456'789'012);
  EXPECT_EQ(latency.min(), 123'456'789'012);
  EXPECT_EQ(latency.max(), 123'456'789'012);
}

TEST(LatencyHistogram, NegativeCountsAsZeroAndTheLargestFits) {
  LatencyHistogram latency;
  latency.Add(-5);
  latency.Add(INT64_MAX);
  EXPECT_EQ(latency.min(), 0);
  EXPECT_EQ(latency.Quantile(0.5), 0);
  EXPECT_EQ(latency.Quantile(1.0), INT64_MAX);
}

TEST(LatencyHistogram, IsOffByAtMostOneIn256AtEveryMagnitude) {
  std::mt19937_64 random(7);
  for (int magnitude = 4; magnitude < 62; ++magnitude) {
    LatencyHistogram latency;
    std::vector<Nanos> all;
    for (int i = 0; i < 1000; ++i) {
      all.push_back(static_cast<Nanos>(random() >> (63 - magnitude)));
      latency.Add(all.back());
    }
    std::sort(all.begin(), all.end());
    for (const int rank : {1, 10, 500, 900, 990, 999}) {
      const double exact = static_cast<double>(all[static_cast<size_t>(rank - 1)]);
      EXPECT_NEAR(static_cast<double>(latency.Quantile(rank / 1000.0)), exact, exact / 256)
          << "rank " << rank << " of 2^" << magnitude;
    }
  }
}

TEST(LatencyHistogram, MergedIsWhatOneWouldBe) {
  LatencyHistogram even, odd, all;
  for (Nanos i = 0; i < 5000; ++i) {
    (i % 2 == 0 ? even : odd).Add(i * i);
    all.Add(i * i);
  }
  even.Merge(odd);
  even.Merge(LatencyHistogram());
  EXPECT_EQ(even.count(), all.count());
  EXPECT_EQ(even.mean(), all.mean());
  EXPECT_EQ(even.min(), all.min());
  EXPECT_EQ(even.max(), all.max());
  for (const double q : {0.1, 0.5, 0.9, 0.99}) EXPECT_EQ(even.Quantile(q), all.Quantile(q));
}

}  // namespace
}  // namespace tandem::cli
