// models, fleet and bench as a person and a script meet them, on a tiny model written here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <thread>

#include <nlohmann/json.hpp>

#include "tests/e2e/fleet.h"
#include "tests/services/cli/canned_http_server.h"
#include "tests/support/pty.h"
#include "tests/support/tiny_model.h"

namespace tandem::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

RunResult Tandem(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), ProgramPath("tandem"));
  return RunProgram(arguments);
}

int LinesOf(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

TEST(Cli, AWrongFlagIsOneLineAndStatus2) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"models", "--jsno"}, "--jsno"},
      {{"fleet", "--watch", "0"}, "--watch"},
      {{"fleet", "--watch", "often"}, "often"},
      {{"bench", "--concurrency", "0"}, "--concurrency"},
      {{"bench", "--concurrency", "1,x"}, "--concurrency"},
      {{"bench", "--rate", "-1"}, "--rate"},
      {{"bench", "--rate", "1", "--concurrency", "2"}, "--concurrency"},
      {{"bench", "--requests", "0"}, "--requests"},
      {{"bench", "--duration", "0"}, "--duration"},
      {{"bench", "--prompt-tokens", "0"}, "--prompt-tokens"},
      {{"bench", "--prompt-tokens", "4", "--prompt-file", "x"}, "--prompt-file"},
      {{"bench", "--shared-prefix", "4", "--prompt-file", "x"}, "--prompt-file"},
      {{"bench", "--http", "x", "--server", "y:1"}, "--http"},
      {{"bench", "--http", "gopher://x"}, "gopher://x"},
      {{"bench", "--logit-bias", "7"}, "ID:VALUE"},
      {{"chat", "--logit-bias", "7"}, "ID:VALUE"},
      {{}, "a command is needed: generate, chat"},
      {{"nonsense"}, "nonsense"},
      {{"generate", "x", "--seed", "-1"}, "--seed: it must be 0 to 18446744073709551615, not -1"},
      {{"explain", "x", "--seed", "-1"}, "--seed"},
      {{"generate", "x", "--timeout", "0"}, "0.001"},
      {{"models", "--server", "127.0.0.1"}, "--server: it must be host:port, not 127.0.0.1"},
      {{"health", "localhost:"}, "it must be host:port, not localhost:"},
  };
  for (const auto& [arguments, part] : cases) {
    const RunResult result = Tandem(arguments);
    SCOPED_TRACE(::testing::PrintToString(arguments) + "\n" + result.output);
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(LinesOf(result.output), 1);
    EXPECT_THAT(result.output, HasSubstr(part));
  }
}

TEST(Cli, NobodyAtTheAddressIsOneLineAndStatus1) {
  const std::vector<std::vector<std::string>> cases = {
      {"models", "--server", "127.0.0.1:1"}, {"models", "--json", "--server", "127.0.0.1:1"},
      {"fleet", "--server", "127.0.0.1:1"},  {"fleet", "--watch", "1", "--server", "127.0.0.1:1"},
      {"bench", "--server", "127.0.0.1:1"},  {"bench", "--http", "http://127.0.0.1:1"},
      {"chat", "--server", "127.0.0.1:1"}};
  // At the same time, since each tries for seconds.
  std::vector<std::unique_ptr<Process>> processes;
  for (std::vector<std::string> arguments : cases) {
    arguments.insert(arguments.begin(), ProgramPath("tandem"));
    processes.push_back(std::make_unique<Process>(arguments));
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(processes[i]->Wait(60), 1);
    const std::string output = processes[i]->output();
    SCOPED_TRACE(::testing::PrintToString(cases[i]) + "\n" + output);
    EXPECT_EQ(LinesOf(output), 1);
    EXPECT_THAT(output, HasSubstr("127.0.0.1:1"));
  }
}

TEST(Cli, BenchSpeaksHttpToAnyServerWithCompletions) {
  const std::string events =
      "data: {\"choices\": [{\"text\": \"a\"}]}\n\ndata: {\"choices\": [{\"text\": \"b\"}]}\n\n"
      "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 6, \"completion_tokens\": 7}}\n\n"
      "data: [DONE]\n\n";
  const CannedHttpServer server([&events](const std::string& request) -> std::vector<std::string> {
    const bool models = request.rfind("GET /v1/models ", 0) == 0;
    const std::string body = models ? "{\"data\": [{\"id\": \"some-model\"}]}" : events;
    return {"HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
            body};
  });
  RunResult result = Tandem({"bench", "--http", server.url()});
  EXPECT_EQ(result.status, 2) << result.output;
  EXPECT_THAT(result.output, HasSubstr("--vocab-size is not given"));
  // What the variable names is for other commands.
  setenv("TANDEM_SERVER", "127.0.0.1:1", 1);
  result = Tandem({"bench", "--http", server.url(), "--vocab-size", "1000", "--requests", "5",
                   "--concurrency", "2", "--json", "-"});
  EXPECT_EQ(result.status, 0) << result.output;
  unsetenv("TANDEM_SERVER");
  // Tables on stderr, JSON on stdout; the test has both in one file.
  const size_t brace = result.output.find("\n{\n");
  ASSERT_NE(brace, std::string::npos) << result.output;
  const json out = json::parse(result.output.substr(brace), nullptr, false);
  ASSERT_TRUE(out.is_object()) << result.output;
  EXPECT_EQ(out["protocol"], "http");
  EXPECT_EQ(out["model"]["id"], "some-model");
  EXPECT_EQ(out["runs"][0]["requests"]["ok"], 5);
  EXPECT_EQ(out["runs"][0]["tokens"]["output"], 35);
  EXPECT_EQ(out["runs"][0]["tokens"]["prompt"], 30);
  EXPECT_FALSE(out["runs"][0].contains("counters"));
}

class CliFleet : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    std::ofstream(folder_->File("tiny.gguf"), std::ios::binary) << TinyModel(TinyModelOptions{});
    // Nobody listens at the second address.
    fleet_ = new Fleet({folder_->File("tiny.gguf"), {}, {"--worker", "127.0.0.1:1"}});
  }
  static void TearDownTestSuite() {
    delete fleet_;
    delete folder_;
  }
  static std::vector<std::string> With(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--server", fleet_->text_address()});
    return arguments;
  }
  static std::vector<std::string> Argv(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), ProgramPath("tandem"));
    return With(arguments);
  }
  // The output, which has to be JSON.
  static json JsonOf(std::vector<std::string> arguments) {
    const RunResult result = Tandem(With(std::move(arguments)));
    EXPECT_EQ(result.status, 0) << result.output;
    json out = json::parse(result.output, nullptr, false);
    EXPECT_FALSE(out.is_discarded()) << result.output;
    return out;
  }
  static Fleet* fleet_;
  static TemporaryFolder* folder_;
};
Fleet* CliFleet::fleet_ = nullptr;
TemporaryFolder* CliFleet::folder_ = nullptr;

TEST_F(CliFleet, ModelsAreATableOrJson) {
  const RunResult table = Tandem(With({"models"}));
  EXPECT_EQ(table.status, 0);
  EXPECT_EQ(LinesOf(table.output), 2) << table.output;
  EXPECT_THAT(table.output,
              AllOf(HasSubstr("CONTEXT"), HasSubstr("llama"), HasSubstr("512"), HasSubstr("yes")));
  const json models = JsonOf({"models", "--json"});
  ASSERT_EQ(models.size(), 1u);
  EXPECT_EQ(models[0]["context_length"], 512);
  EXPECT_EQ(models[0]["vocab_size"], TinyVocabSize());
  EXPECT_EQ(models[0]["workers"], 1);
  EXPECT_EQ(models[0]["has_chat_template"], true);
  const std::string weights = models[0]["weights_fingerprint"];
  EXPECT_EQ(weights.size(), 32u);
  EXPECT_THAT(table.output, HasSubstr(weights.substr(0, 8)));
  EXPECT_THAT(table.output, Not(HasSubstr(weights)));
}

TEST_F(CliFleet, WhatStdoutDoesNotTakeIsAnError) {
  const std::string tandem = ProgramPath("tandem");
  for (const std::string command :
       {"models", "fleet", "tokenize x", "generate x --max-tokens 2", "generate x -n 2",
        "bench --requests 1 --max-tokens 1", "bench --requests 1 --max-tokens 1 --json -"}) {
    const RunResult result = RunProgram(
        {"/bin/sh", "-c",
         tandem + " " + command + " --server " + fleet_->text_address() + " >/dev/full"});
    EXPECT_EQ(result.status, 1) << command;
    EXPECT_THAT(result.output, HasSubstr("error: stdout cannot be written")) << command;
  }
  // An answer that nobody reads is not made to its end.
  const RunResult result = RunProgram({"/bin/sh", "-c",
                                       tandem + " generate x --ignore-eos -v --server " +
                                           fleet_->text_address() + " 2>&1 >/dev/full"});
  EXPECT_THAT(result.output, Not(HasSubstr("choice 0"))) << "it has no end of its own";
}

TEST_F(CliFleet, FleetShowsBothWorkersAsATableOrJson) {
  const RunResult table = Tandem(With({"fleet"}));
  EXPECT_EQ(table.status, 0);
  EXPECT_THAT(table.output, AllOf(HasSubstr(fleet_->worker_address()), HasSubstr("serving"),
                                  HasSubstr("connecting"), HasSubstr("127.0.0.1:1: ")));
  json sample = JsonOf({"fleet", "--json"});
  // The first report comes with a heartbeat.
  for (int i = 0; i < 200 && sample["workers"][0]["load"].is_null(); ++i) {
    usleep(20'000);
    sample = JsonOf({"fleet", "--json"});
  }
  ASSERT_EQ(sample["workers"].size(), 2u);
  EXPECT_EQ(sample["workers"][0]["address"], fleet_->worker_address());
  EXPECT_EQ(sample["workers"][0]["state"], "serving");
  EXPECT_GT(sample["workers"][0]["load"]["total_pages"], 0);
  EXPECT_EQ(sample["workers"][1]["state"], "connecting");
  EXPECT_TRUE(sample["workers"][1]["load"].is_null());
}

TEST_F(CliFleet, FleetWatchesUntilCtrlCWithALineOfJsonASample) {
  Process process(Argv({"fleet", "--watch", "0.1", "--json"}));
  while (LinesOf(process.output()) < 3 && process.running()) usleep(1000);
  process.Signal(SIGINT);
  EXPECT_EQ(process.Wait(30), 130);
  std::istringstream lines(process.output());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_TRUE(json::parse(line, nullptr, false).contains("workers")) << line;
  }
  EXPECT_GE(count, 3);
}

TEST_F(CliFleet, FleetIsDrawnInPlaceOnATerminalAndGivesTheCursorBack) {
  Pty pty(Argv({"fleet", "--watch", "0.1"}));
  EXPECT_THAT(pty.WaitFor("serving"), HasSubstr("\x1b[?25l"));
  EXPECT_THAT(pty.WaitFor("serving"), HasSubstr("A\x1b[J")) << "up, and cleared";
  pty.Type("\x03");
  EXPECT_EQ(pty.Wait(), 130);
  EXPECT_THAT(pty.output(), HasSubstr("\x1b[?25h"));
  EXPECT_THAT(pty.output(), HasSubstr("NUMERICS"));
  std::istringstream lines(pty.output());
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 100u + 20u) << "a line, and escape sequences";
  }
}

TEST_F(CliFleet, BenchReportsEachLoadOfAClosedLoop) {
  const std::string file = folder_->File("bench.json");
  const RunResult result = Tandem(With(
      {"bench", "--concurrency", "1,3", "--requests", "6", "--warmup", "2", "--prompt-tokens", "20",
       "--shared-prefix", "10", "--max-tokens", "8", "--temperature", "0", "--json", file}));
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("1 at once"), HasSubstr("3 at once"), HasSubstr("first token"),
                    HasSubstr("in the queue"), HasSubstr("end tokens do not end them")));
  std::ifstream in(file);
  const json out = json::parse(in, nullptr, false);
  ASSERT_TRUE(out.is_object());
  EXPECT_EQ(out["protocol"], "grpc");
  EXPECT_EQ(out["server"], fleet_->text_address());
  EXPECT_EQ(out["interrupted"], false);
  EXPECT_FALSE(out["version"].get<std::string>().empty());
  EXPECT_EQ(out["date"].get<std::string>().size(), 20u);
  EXPECT_EQ(out["model"]["weights_fingerprint"].get<std::string>().size(), 32u);
  EXPECT_EQ(out["parameters"]["max_tokens"], 8);
  EXPECT_EQ(out["parameters"]["ignore_eos"], true);
  EXPECT_EQ(out["parameters"]["prompt_tokens"], 20);
  ASSERT_EQ(out["runs"].size(), 2u);
  for (const json& run : out["runs"]) {
    EXPECT_EQ(run["requests"]["ok"], 6);
    EXPECT_EQ(run["tokens"]["prompt"], 120);
    EXPECT_EQ(run["tokens"]["output"], 48) << "every request has its 8 tokens";
    EXPECT_EQ(run["latencies_seconds"]["first_token"]["count"], 6);
    EXPECT_GT(run["latencies_seconds"]["end_to_end"]["p50"], 0.0);
    EXPECT_EQ(run["counters"]["from_lists"].get<int>() + run["counters"]["fetched"].get<int>(), 48);
  }
  EXPECT_EQ(out["runs"][1]["concurrency"], 3);
}

TEST_F(CliFleet, BenchSendsAnOpenLoopAndPromptsOfAFile) {
  std::ofstream(folder_->File("prompts")) << "hello there\n{\"prompt\": [70, 71, 72]}\n";
  Process process(
      Argv({"bench", "--rate", "200", "--requests", "10", "--prompt-file", folder_->File("prompts"),
            "--max-tokens", "4", "--json", folder_->File("open.json")}));
  ASSERT_EQ(process.Wait(60), 0) << process.output();
  std::ifstream in(folder_->File("open.json"));
  const json out = json::parse(in, nullptr, false);
  EXPECT_EQ(out["runs"][0]["rate"], 200.0);
  EXPECT_EQ(out["runs"][0]["requests"]["ok"], 10);
  EXPECT_EQ(out["runs"][0]["tokens"]["output"], 40);
  EXPECT_EQ(out["parameters"]["prompt_file"], folder_->File("prompts"));
}

TEST_F(CliFleet, BenchCountsErrorsByWhatTheySayAndEndsWithStatus1) {
  const RunResult result = Tandem(With({"bench", "--requests", "3", "--max-tokens", "100000"}));
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("3 failed: INVALID_ARGUMENT"), HasSubstr("max_tokens")));
}

TEST_F(CliFleet, CtrlCEndsABenchEarlyWithWhatThereIs) {
  const std::string file = folder_->File("stopped.json");
  Pty pty(Argv({"bench", "--requests", "1000000", "--concurrency", "2", "--max-tokens", "4",
                "--prompt-tokens", "8", "--json", file}));
  pty.WaitFor(" ended, 2 run");
  // Not before there is something.
  while (pty.WaitFor("tok/s").find(", 0 output tokens") != std::string::npos) {
  }
  pty.Type("\x03");
  EXPECT_EQ(pty.Wait(), 130);
  EXPECT_THAT(pty.output(), AllOf(HasSubstr("first token"), HasSubstr("\x1b[?25h")));
  std::ifstream in(file);
  const json out = json::parse(in, nullptr, false);
  EXPECT_EQ(out["interrupted"], true);
  EXPECT_LE(out["runs"][0]["requests"]["cancelled"], 2);
  EXPECT_TRUE(fleet_->WorkerIsFreeSoon());
}

}  // namespace
}  // namespace tandem::test
