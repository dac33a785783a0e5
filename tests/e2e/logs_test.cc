// Logs of both programs, as objects and as text: every line is whole, names the request, and holds
// neither prompts nor output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/e2e/fleet.h"
#include "tests/support/tiny_model.h"

namespace tandem::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kPrompt[] = "a secret that stays here";

class LogsTest : public ::testing::Test {
 protected:
  LogsTest() {
    std::ofstream(folder_.File("tiny.gguf"), std::ios::binary) << TinyModel(TinyModelOptions{});
  }
  void Start(const std::vector<std::string>& flags) {
    fleet_ = std::make_unique<Fleet>(Fleet::Options{folder_.File("tiny.gguf"), flags, flags});
  }
  CallResult Generate(const std::string& request_id, int max_tokens = 8) {
    v1::GenerateRequest request;
    request.set_prompt(kPrompt);
    request.set_request_id(request_id);
    request.set_max_tokens(max_tokens);
    request.mutable_stopping()->set_ignore_eos(true);
    return fleet_->Generate(request);
  }
  // Every line that has come, each an object.
  static std::vector<json> Lines(const Process& process) {
    std::vector<json> out;
    std::string output = process.output();
    output.resize(output.rfind('\n') + 1);  // without one that is being written
    std::istringstream lines(output);
    for (std::string line; std::getline(lines, line);) {
      json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
      EXPECT_TRUE(object.is_object()) << line;
      if (!object.is_object()) continue;
      for (const char* key : {"time", "level", "service", "event", "message"}) {
        EXPECT_TRUE(object.contains(key)) << key << " is missing: " << line;
      }
      out.push_back(std::move(object));
    }
    return out;
  }
  // Waits for a line with this event, of this request where one is named.
  static json WaitFor(const Process& process, const std::string& event,
                      const std::string& request_id = "") {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    do {
      for (const json& line : Lines(process)) {
        if (line["event"] != event) continue;
        if (request_id.empty() || line.value("request_id", "") == request_id) return line;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    } while (std::chrono::steady_clock::now() < end);
    ADD_FAILURE() << "no " << event << " in " << process.output();
    return json::object();
  }

  const TemporaryFolder folder_;
  std::unique_ptr<Fleet> fleet_;
};

TEST_F(LogsTest, B177_ARequestIdCannotForgeALineAndBothTiersNameIt) {
  Start({"--log-format", "json", "--log-requests"});
  const std::string id = "x\r\n{\"level\":\"error\",\"event\":\"forged\"}\xe2\x80\xa8\x1b[2J";
  const CallResult result = Generate(id);
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  const json finished = WaitFor(fleet_->text(), "request_finished", id);
  EXPECT_EQ(finished["service"], "tandem-text");
  EXPECT_EQ(finished["level"], "info");
  EXPECT_EQ(finished["door"], "grpc");
  EXPECT_EQ(finished["status"], "OK");
  EXPECT_EQ(finished["finish"], "max_tokens");
  EXPECT_EQ(finished["output_tokens"], 8);
  EXPECT_EQ(finished["prompt_tokens"], result.started.prompt_tokens());
  const json closed = WaitFor(fleet_->worker(), "session_closed", id);
  EXPECT_EQ(closed["service"], "tandem-worker");
  EXPECT_EQ(closed["reason"], "done");
  for (Process* process : {&fleet_->text(), &fleet_->worker()}) {
    for (const json& line : Lines(*process)) EXPECT_NE(line["event"], "forged");
    EXPECT_THAT(process->output(), Not(HasSubstr("secret")));
    EXPECT_THAT(process->output(), Not(HasSubstr(result.texts.at(0))));
  }
}

TEST_F(LogsTest, WithoutTheFlagAGenerationThatGoesWellLeavesNoLine) {
  Start({"--status-seconds", "0"});
  ASSERT_TRUE(Generate("quiet").status.ok());
  fleet_->text().Signal(SIGTERM);
  EXPECT_EQ(fleet_->text().Wait(30), 0);
  EXPECT_THAT(fleet_->text().output(), Not(HasSubstr("quiet")));
  EXPECT_THAT(fleet_->worker().output(), Not(HasSubstr("quiet")));
}

TEST_F(LogsTest, AStatusLineComesWhileSomethingRuns) {
  Start({"--status-seconds", "1", "--log-format", "json"});
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (std::chrono::steady_clock::now() < end) ASSERT_TRUE(Generate("busy", 100).status.ok());
  for (Process* process : {&fleet_->text(), &fleet_->worker()}) {
    const json status = WaitFor(*process, "status");
    EXPECT_GT(status["tokens_per_second"], 0);
    EXPECT_THAT(status["message"], HasSubstr(" tok/s, "));
  }
}

TEST_F(LogsTest, LinesBelowTheLevelAreNotWritten) {
  Start({"--log-level", "error", "--log-requests", "--status-seconds", "0"});
  ASSERT_TRUE(Generate("quiet").status.ok());
  EXPECT_THAT(fleet_->text().output(), Not(HasSubstr(" info: ")));
  EXPECT_THAT(fleet_->worker().output(), Not(HasSubstr(" info: ")));
}

}  // namespace
}  // namespace tandem::test
