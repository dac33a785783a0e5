#include "services/common/metrics.h"

#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "services/common/status_text.h"
#include "services/common/ticker.h"
#include "tests/support/exposition.h"

namespace tandem {
namespace {

using test::Samples;
using testing::DoubleNear;
using testing::HasSubstr;

constexpr std::array<double, 3> kBounds = {0.5, 1, 2};

constexpr MetricSpec kSpecs[] = {
    {"test_things_total", MetricSpec::Type::kCounter, "kind: a, b", "Things"},
    {"test_level", MetricSpec::Type::kGauge, "", "A level"},
    {"test_wait_seconds", MetricSpec::Type::kHistogram, "", "A wait", kBounds},
};

TEST(Histogram, CountsAValueInTheFirstBucketThatDoesNotEndBelowIt) {
  Histogram<kBounds> histogram;
  histogram.Observe(0.0);
  histogram.Observe(0.5);
  histogram.Observe(0.6, 3);
  histogram.Observe(2.5);
  const HistogramView view = histogram.view();
  EXPECT_THAT(view.counts, testing::ElementsAre(2, 3, 0, 1));
  EXPECT_EQ(view.total(), 6);
  EXPECT_THAT(view.sum, DoubleNear(0.5 + 3 * 0.6 + 2.5, 1e-12));
}

TEST(Histogram, OneAddsToAnotherAndSaysWhatCameSinceASnapshot) {
  Histogram<kBounds> histogram, other;
  histogram.Observe(1);
  const Histogram<kBounds> earlier = histogram;
  other.Observe(2, 2);
  histogram.Add(other);
  EXPECT_THAT(histogram.view().counts, testing::ElementsAre(0, 1, 2, 0));
  histogram.Subtract(earlier);
  EXPECT_THAT(histogram.view().counts, testing::ElementsAre(0, 0, 2, 0));
  EXPECT_EQ(histogram.view().sum, 4.0);
}

TEST(Histogram, AQuantileLiesOnAStraightLineWithinItsBucket) {
  Histogram<kBounds> histogram;
  EXPECT_EQ(Quantile(histogram.view(), 0.5), 0.0) << "there is no value";
  histogram.Observe(0.7, 10);
  EXPECT_THAT(Quantile(histogram.view(), 0.5), DoubleNear(0.75, 1e-12));
  histogram.Observe(1.5, 10);
  EXPECT_THAT(Quantile(histogram.view(), 0.5), DoubleNear(1.0, 1e-12));
  EXPECT_THAT(Quantile(histogram.view(), 0.75), DoubleNear(1.5, 1e-12));
  histogram.Observe(100, 1000);
  EXPECT_EQ(Quantile(histogram.view(), 0.5), 2.0) << "beyond the bounds it is the last of them";
}

TEST(Exposition, HasEveryMetricOfTheTableAndItsSamples) {
  Histogram<kBounds> waits;
  waits.Observe(0.6);
  waits.Observe(7);
  Exposition out(kSpecs);
  out.Add("test_wait_seconds", {}, waits.view());
  out.Add("test_things_total", {{"kind", "a"}}, 3);
  const std::string text = out.Text();
  EXPECT_EQ(test::ParseExposition(text), (Samples{{"test_things_total{kind=\"a\"}", 3},
                                                  {"test_wait_seconds_bucket{le=\"0.5\"}", 0},
                                                  {"test_wait_seconds_bucket{le=\"1\"}", 1},
                                                  {"test_wait_seconds_bucket{le=\"2\"}", 1},
                                                  {"test_wait_seconds_bucket{le=\"+Inf\"}", 2},
                                                  {"test_wait_seconds_count", 2},
                                                  {"test_wait_seconds_sum", 7.6}}));
  EXPECT_THAT(text, HasSubstr("# HELP test_level A level\n# TYPE test_level gauge\n"));
  EXPECT_LT(text.find("test_things_total"), text.find("test_wait_seconds"))
      << "as the table has it";
}

TEST(Exposition, B177_ALabelCannotEndItsLine) {
  Exposition out(kSpecs);
  out.Add("test_level", {{"who", "a\"} 1\nforged 2\\"}}, 5);
  const Samples samples = test::ParseExposition(out.Text());
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples.begin()->first, "test_level{who=\"a\\\"} 1\\nforged 2\\\\\"}");
  const std::string complaint = test::CheckWithPromtool(out.Text());
  if (complaint == "skip") GTEST_SKIP() << "promtool is not installed";
  EXPECT_EQ(complaint, "");
}

TEST(ExpositionDeathTest, ANameThatIsNotInTheTableIsAMistake) {
  Exposition out(kSpecs);
  EXPECT_DEATH(out.Add("test_other", {}, 1), "test_other is not in the table");
  EXPECT_DEATH(out.Add("test_wait_seconds", {}, 1), "test_wait_seconds is a histogram");
}

TEST(MetricsTable, HasARowForEachMetric) {
  EXPECT_EQ(MetricsTable(kSpecs),
            "| Metric | Type | Labels | What it is |\n|---|---|---|---|\n"
            "| `test_things_total` | counter | kind: a, b | Things |\n"
            "| `test_level` | gauge |  | A level |\n"
            "| `test_wait_seconds` | histogram |  | A wait |\n");
}

TEST(Promtool, FindsWhatIsWrong) {
  const std::string complaint = test::CheckWithPromtool("# TYPE x counter\nx 1\n");
  if (complaint == "skip") GTEST_SKIP() << "promtool is not installed";
  EXPECT_THAT(complaint, HasSubstr("_total"));
}

TEST(Grouped, PutsACommaBetweenThousands) {
  EXPECT_EQ(Grouped(0.2), "0");
  EXPECT_EQ(Grouped(999.6), "1,000");
  EXPECT_EQ(Grouped(12345678), "12,345,678");
}

TEST(Ticker, TicksUntilItGoesAndEndsAtOnce) {
  std::atomic<int> ticks = 0;
  {
    const Ticker ticker(std::chrono::milliseconds(1), [&] { ++ticks; });
    while (ticks < 3) std::this_thread::yield();
  }
  const int seen = ticks;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(ticks, seen);
  const auto begin = std::chrono::steady_clock::now();
  {
    const Ticker slow(std::chrono::hours(1), [] {});
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(1));
}

}  // namespace
}  // namespace tandem
