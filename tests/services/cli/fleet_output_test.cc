// Workers as a table and as JSON.
#include "services/cli/fleet_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tandem::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

v1::ListWorkersResponse Example() {
  v1::ListWorkersResponse response;
  v1::Worker& one = *response.add_workers();
  one.set_address("a:1");
  one.set_state(v1::WORKER_STATE_DRAINING);
  one.set_last_error("was lost once");
  one.set_model("m");
  one.set_device("GPU");
  one.set_numerics_fingerprint("0123456789abcdef");
  one.set_sessions(3);
  v1::WorkerLoad& load = *one.mutable_load();
  load.mutable_age()->set_nanos(250'000'000);
  load.mutable_step_time()->set_nanos(12'300'000);
  load.set_running(5);
  load.set_free_pages(1000);
  load.set_total_pages(2048);
  load.set_prefilled_tokens(300);
  load.set_reused_tokens(100);
  load.set_drafted_tokens(10);
  load.set_taken_drafts(4);
  v1::Worker& two = *response.add_workers();
  two.set_address("b:2");
  two.set_state(v1::WORKER_STATE_CONNECTING);
  two.set_last_error("refused\x1b");
  return response;
}

TEST(FleetOutput, TheTableHasALineAWorkerAndWhyOneIsNotConnected) {
  const std::string table = FleetTable(Example(), 0);
  for (const char* part : {"draining", "12.3 ms", "1,000/2,048", "25%", "4/10", "250 ms", "GPU",
                           "01234567", "connecting", "b:2: refused\xEF\xBF\xBD\n"}) {
    EXPECT_THAT(table, HasSubstr(part));
  }
  EXPECT_THAT(table, Not(HasSubstr("0123456789"))) << "shortened";
  EXPECT_THAT(table, Not(HasSubstr("was lost once"))) << "it is connected now";
}

TEST(FleetOutput, TheJsonIsOneLineWithTheProtosNames) {
  const std::string line = FleetJson(Example(), 1'700'000'000);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto json = nlohmann::json::parse(line, nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["time"], "2023-11-14T22:13:20Z");
  ASSERT_EQ(json["workers"].size(), 2u);
  const nlohmann::json& one = json["workers"][0];
  EXPECT_EQ(one["address"], "a:1");
  EXPECT_EQ(one["state"], "draining");
  EXPECT_EQ(one["last_error"], "was lost once");
  EXPECT_EQ(one["numerics_fingerprint"], "0123456789abcdef");
  EXPECT_EQ(one["sessions"], 3);
  EXPECT_EQ(one["load"]["age_seconds"], 0.25);
  EXPECT_EQ(one["load"]["free_pages"], 1000);
  EXPECT_EQ(one["load"]["reused_tokens"], 100);
  EXPECT_TRUE(json["workers"][1]["load"].is_null());
}

TEST(FleetOutput, ATextTierThatDoesNotAnswerIsSaid) {
  const absl::Status status = absl::UnavailableError("gone\x1b");
  EXPECT_EQ(FleetTable(status, 80), "no answer: gone\xEF\xBF\xBD\n");
  const auto json = nlohmann::json::parse(FleetJson(status, 0), nullptr, false);
  EXPECT_EQ(json["error"], "gone\x1b");
  EXPECT_FALSE(json.contains("workers"));
}

}  // namespace
}  // namespace tandem::cli
