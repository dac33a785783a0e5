// What a bench prints, from numbers that are known.
#include "services/cli/bench_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

BenchRun Example() {
  BenchRun run{.name = "4 at once", .parameters = {{"concurrency", 4}}};
  run.report.ok = 8;
  run.report.failed = 2;
  run.report.errors = {{"UNAVAILABLE: \x1b[31mgone", 2}};
  run.report.elapsed = 2 * kNanosPerSecond;
  run.report.prompt_tokens = 1000;
  run.report.cached_tokens = 64;
  run.report.output_tokens = 3000;
  for (int i = 1; i <= 8; ++i) {
    run.report.first_token.Add(i * kNanosPerSecond / 1000);
    run.report.end_to_end.Add(i * kNanosPerSecond / 10);
  }
  return run;
}

TEST(BenchReport, TheTextHasRatesLatenciesAndErrors) {
  const std::string text = BenchText({Example()});
  EXPECT_THAT(text, HasSubstr("1500.0"));  // output tokens a second
  EXPECT_THAT(text, HasSubstr("2000.0"));  // all tokens a second
  EXPECT_THAT(text, HasSubstr("4.00"));    // requests a second
  EXPECT_THAT(text, HasSubstr("first token"));
  EXPECT_THAT(text, HasSubstr("4 at once: 2 failed: UNAVAILABLE: \xEF\xBF\xBD[31mgone"));
  EXPECT_THAT(text, Not(HasSubstr("in the queue")));
  EXPECT_THAT(text, Not(HasSubstr("sent late")));
}

TEST(BenchReport, ALateClientAndABugOfAWorkerAreSaid) {
  BenchRun run = Example();
  run.report.send_lag.Add(kNanosPerSecond);
  run.report.server = ServerSide{.misses = 3};
  run.report.cancelled = 4;
  const std::string text = BenchText({run});
  EXPECT_THAT(text, HasSubstr("sent late, p99 1.00 s"));
  EXPECT_THAT(text, HasSubstr("3 misses and 0 faults"));
  EXPECT_THAT(text, HasSubstr("4 were cancelled"));
}

TEST(BenchReport, TheJsonHasTheNumbersUnderTheirNames) {
  BenchRun run = Example();
  nlohmann::json json = BenchJson(run);
  EXPECT_EQ(json["concurrency"], 4);
  EXPECT_EQ(json["requests"]["ok"], 8);
  EXPECT_EQ(json["requests"]["failed"], 2);
  EXPECT_EQ(json["errors"].size(), 1u);
  EXPECT_EQ(json["elapsed_seconds"], 2.0);
  EXPECT_EQ(json["rates"]["requests_per_second"], 4.0);
  EXPECT_EQ(json["rates"]["output_tokens_per_second"], 1500.0);
  EXPECT_EQ(json["rates"]["total_tokens_per_second"], 2000.0);
  EXPECT_EQ(json["tokens"], (nlohmann::json{{"prompt", 1000}, {"cached", 64}, {"output", 3000}}));
  const nlohmann::json& latency = json["latencies_seconds"]["end_to_end"];
  EXPECT_EQ(latency["count"], 8);
  EXPECT_NEAR(latency["mean"].get<double>(), 0.45, 1e-9);
  EXPECT_NEAR(latency["p50"].get<double>(), 0.4, 0.4 / 256);
  EXPECT_EQ(latency["p99"], 0.8);
  EXPECT_EQ(latency["max"], 0.8);
  EXPECT_FALSE(json.contains("counters"));
  EXPECT_FALSE(json["latencies_seconds"].contains("queue"));
  run.report.server = ServerSide{.from_lists = 7};
  json = BenchJson(run);
  EXPECT_EQ(json["counters"]["from_lists"], 7);
  EXPECT_TRUE(json["latencies_seconds"].contains("queue"));
}

TEST(BenchReport, NothingAtAllIsZeroRatesAndNoLatencies) {
  const BenchRun run{.name = "1 at once", .parameters = {{"concurrency", 1}}};
  const nlohmann::json json = BenchJson(run);
  EXPECT_EQ(json["rates"]["requests_per_second"], 0.0);
  EXPECT_EQ(json["latencies_seconds"]["first_token"]["count"], 0);
  EXPECT_THAT(BenchText({run}), Not(HasSubstr("P99")));
}

}  // namespace
}  // namespace tandem::cli
