// The programs as a person meets them: flags, messages, exit statuses, signals, on a tiny model
// written here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "tests/e2e/fleet.h"
#include "tests/support/tiny_model.h"

namespace tandem::test {
namespace {

using ::testing::HasSubstr;

struct BadFlag {
  std::string program;
  std::vector<std::string> arguments;
  std::vector<std::string> message;  // parts that the output must hold
};

TEST(Programs, SayWhichFlagIsWrongAndLeaveWithStatus2) {
  const std::vector<BadFlag> cases = {
      {"tandem-worker", {"--model", "x.gguf", "--threads", "-3"}, {"--threads", "-3"}},
      {"tandem-worker", {"--model", "x.gguf", "--no-such-flag"}, {"--no-such-flag"}},
      {"tandem-worker", {}, {"--model"}},
      {"tandem-worker", {"--model", "x.gguf", "--device", "abacus"}, {"--device", "abacus"}},
      {"tandem-worker", {"--model", "x.gguf", "--listen", "nowhere"}, {"--listen", "nowhere"}},
      {"tandem-text", {}, {"--worker"}},
      {"tandem-text", {"--worker", "127.0.0.1:1", "--shards", "0"}, {"--shards", "0"}},
      {"tandem-text", {"--worker", "127.0.0.1:1", "--drafts", "-1"}, {"--drafts", "-1"}},
      {"tandem-text",
       {"--worker", "127.0.0.1:1", "--replay-tries", "101"},
       {"--replay-tries", "101"}},
      {"tandem-text",
       {"--worker", "127.0.0.1:1", "--replay-wait-seconds", "-1"},
       {"--replay-wait-seconds", "-1"}},
      {"tandem-text",
       {"--worker", "127.0.0.1:1", "--log-format", "xml"},
       {"--log-format", "xml", "json"}},
      {"tandem-text",
       {"--worker", "127.0.0.1:1", "--status-seconds", "-1"},
       {"--status-seconds", "-1", "86400"}},
      {"tandem-worker", {"--model", "x.gguf", "--log-level", "loud"}, {"--log-level", "loud"}},
      {"tandem-text",
       {"--worker", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--http-listen", "nowhere"},
       {"--http-listen", "nowhere"}},
      {"tandem-text",
       {"--worker", "127.0.0.1:1", "--http-max-connections", "0"},
       {"--http-max-connections", "0"}},
      {"tandem-text",
       {"--worker", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0",
        "--http-tls-ca", "ca.pem"},
       {"--http-tls-cert", "--http-tls-key"}},
      {"tandem-text",
       {"--worker", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--http-cors-origin", "page"},
       {"--http-cors-origin", "page"}},
      {"tandem-text",
       {"--worker", "127.0.0.1:1", "--api-key-file", "/no/such/file"},
       {"--api-key-file", "/no/such/file"}},
      {"tandem", {}, {"a command is needed", "generate"}},
      {"tandem", {"generate"}, {"prompt"}},
      {"tandem", {"generate", "x", "--logit-bias", "7"}, {"--logit-bias", "7", "ID:VALUE"}},
  };
  for (const BadFlag& bad : cases) {
    std::vector<std::string> argv = {ProgramPath(bad.program)};
    argv.insert(argv.end(), bad.arguments.begin(), bad.arguments.end());
    const RunResult result = RunProgram(argv);
    SCOPED_TRACE(::testing::PrintToString(argv) + "\n" + result.output);
    EXPECT_EQ(result.status, 2);
    for (const std::string& part : bad.message) EXPECT_THAT(result.output, HasSubstr(part));
  }
}

TEST(Programs, SayWhichModelFileIsMissingOrBroken) {
  const TemporaryFolder folder;
  const std::string missing = folder.File("missing.gguf");
  RunResult result =
      RunProgram({ProgramPath("tandem-worker"), "--model", missing, "--listen", "127.0.0.1:0"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, HasSubstr(missing));
  result = RunProgram({ProgramPath("tandem"), "tokenize", "--vocabulary", missing, "x"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, HasSubstr(missing));
}

TEST(Programs, NobodyAtTheAddressIsAnErrorWithTheAddress) {
  const RunResult result =
      RunProgram({ProgramPath("tandem"), "generate", "--server", "127.0.0.1:1", "x"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, HasSubstr("127.0.0.1:1"));
}

class TinyFleet : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    std::ofstream(folder_->File("tiny.gguf"), std::ios::binary) << TinyModel(TinyModelOptions{});
    fleet_ = new Fleet({folder_->File("tiny.gguf"), {}, {}});
  }
  static void TearDownTestSuite() {
    delete fleet_;
    delete folder_;
  }
  static Fleet* fleet_;
  static TemporaryFolder* folder_;
};
Fleet* TinyFleet::fleet_ = nullptr;
TemporaryFolder* TinyFleet::folder_ = nullptr;

TEST_F(TinyFleet, GenerateStreamsTheTextAndPrintsSeedTimesAndRateOnRequest) {
  const std::vector<std::string> argv = {ProgramPath("tandem"),
                                         "generate",
                                         "--server",
                                         fleet_->text_address(),
                                         "--seed",
                                         "42",
                                         "--max-tokens",
                                         "12",
                                         "--ignore-eos",
                                         "hello"};
  const RunResult quiet = RunProgram(argv);
  ASSERT_EQ(quiet.status, 0) << quiet.output;
  std::vector<std::string> verbose_argv = argv;
  verbose_argv.push_back("-v");
  const RunResult verbose = RunProgram(verbose_argv);
  ASSERT_EQ(verbose.status, 0) << verbose.output;
  EXPECT_EQ(verbose.output.substr(0, quiet.output.size()), quiet.output)
      << "the seed fixes the text";
  EXPECT_THAT(verbose.output, HasSubstr("seed 42"));
  EXPECT_THAT(verbose.output, HasSubstr("tokens/s"));
  EXPECT_THAT(verbose.output, HasSubstr("12 tokens"));
}

TEST_F(TinyFleet, GenerateEchoesThePromptAndPrintsItsLogprobs) {
  const RunResult result =
      RunProgram({ProgramPath("tandem"), "generate", "--server", fleet_->text_address(), "--echo",
                  "--prompt-logprobs", "2", "--max-tokens", "1", "--ignore-eos", "abc"});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("abc"));
  EXPECT_THAT(result.output, HasSubstr("1: "));
  EXPECT_THAT(result.output, HasSubstr(" rank "));
  EXPECT_THAT(result.output, HasSubstr("; most likely "));
}

TEST_F(TinyFleet, GenerateSaysWhatTheServerRefused) {
  const RunResult result = RunProgram({ProgramPath("tandem"), "generate", "--server",
                                       fleet_->text_address(), "--temperature", "-1", "hello"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, HasSubstr("temperature"));
  EXPECT_THAT(result.output, HasSubstr("-1"));
}

TEST_F(TinyFleet, GenerateSaysWithWhomItSharesCachedTokens) {
  const auto run = [](std::vector<std::string> flags) {
    std::vector<std::string> argv = {
        ProgramPath("tandem"), "generate", "--server", fleet_->text_address(),
        "--max-tokens",        "2",        "-v",       "hello"};
    argv.insert(argv.end(), flags.begin(), flags.end());
    return RunProgram(argv);
  };
  const RunResult result = run({"--cache-salt", std::string(64, 's'), "--no-cache"});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("prompt tokens (0 cached)"));
  const RunResult refused = run({"--cache-salt", std::string(65, 's')});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.output, HasSubstr("cache.salt has 65 bytes: at most 64"));
}

TEST_F(TinyFleet, HealthAnswersForBothTiersAndByService) {
  for (const std::string& address : {fleet_->text_address(), fleet_->worker_address()}) {
    const RunResult result = RunProgram({ProgramPath("tandem"), "health", address});
    EXPECT_EQ(result.status, 0) << result.output;
    EXPECT_THAT(result.output, HasSubstr("SERVING"));
  }
  EXPECT_EQ(
      RunProgram({ProgramPath("tandem"), "health", fleet_->text_address(), "--service", "no.such"})
          .status,
      1);
}

TEST_F(TinyFleet, TokenizeThroughTheServerEqualsTokenizeFromTheFile) {
  const std::string text = "Hello, wörld 123 <|im_end|>";
  const RunResult there = RunProgram(
      {ProgramPath("tandem"), "tokenize", "--server", fleet_->text_address(), "--json", text});
  const RunResult here = RunProgram({ProgramPath("tandem"), "tokenize", "--vocabulary",
                                     folder_->File("tiny.gguf"), "--json", text});
  EXPECT_EQ(there.status, 0) << there.output;
  EXPECT_EQ(there.output, here.output);
  EXPECT_THAT(here.output, HasSubstr("\"id\""));
}

TEST_F(TinyFleet, CtrlCStopsGenerateWithStatus130AndFreesTheWorker) {
  Process process({ProgramPath("tandem"), "generate", "--server", fleet_->text_address(),
                   "--max-tokens", "200000", "--ignore-eos", "hello"});
  RunResult refused;
  // A limit beyond the context is refused by name, not cut: the largest that fits is used instead.
  EXPECT_EQ(process.Wait(30), 1);
  EXPECT_THAT(process.output(), HasSubstr("max_tokens"));
  Process running({ProgramPath("tandem"), "generate", "--server", fleet_->text_address(),
                   "--ignore-eos", "hello"});
  for (int i = 0; i < 1000 && running.output().empty() && running.running(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  running.Signal(SIGINT);
  const int status = running.Wait(30);
  EXPECT_TRUE(status == 130 || status == 0) << status << running.output();
  EXPECT_TRUE(fleet_->WorkerIsFreeSoon());
}

TEST_F(TinyFleet, SigtermDrainsAndEndsBothTiersWithStatus0) {
  const TemporaryFolder folder;
  Fleet fleet({folder_->File("tiny.gguf"), {}, {}});
  fleet.text().Signal(SIGTERM);
  EXPECT_EQ(fleet.text().Wait(30), 0) << fleet.text().output();
  fleet.worker().Signal(SIGTERM);
  EXPECT_EQ(fleet.worker().Wait(30), 0) << fleet.worker().output();
}

}  // namespace
}  // namespace tandem::test
