// Every command of tandem shows its API key where the servers ask for one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/fleet.h"
#include "tests/support/tiny_model.h"

namespace tandem::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ApiKey : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    std::ofstream(folder_->File("tiny.gguf"), std::ios::binary) << TinyModel(TinyModelOptions{});
    Write("keys", "first-key\nsecond-key\n");
    fleet_ = new Fleet({folder_->File("tiny.gguf"), {}, {"--api-key-file", folder_->File("keys")}});
  }
  static void TearDownTestSuite() {
    delete fleet_;
    delete folder_;
  }
  void TearDown() override { unsetenv("TANDEM_API_KEY"); }

  static std::string Write(const std::string& name, const std::string& content) {
    std::ofstream(folder_->File(name)) << content;
    return folder_->File(name);
  }
  static RunResult Tandem(std::vector<std::string> arguments,
                          const std::vector<std::string>& more = {}) {
    arguments.insert(arguments.begin(), ProgramPath("tandem"));
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunProgram(arguments);
  }
  // Each command that calls a text tier.
  static std::vector<std::vector<std::string>> Commands() {
    const std::string& server = fleet_->text_address();
    return {{"generate", "--max-tokens", "2", "x", "--server", server},
            {"tokenize", "x", "--server", server},
            {"models", "--server", server},
            {"fleet", "--server", server},
            {"bench", "--requests", "2", "--max-tokens", "2", "--server", server},
            {"bench", "--requests", "2", "--max-tokens", "2", "--http",
             "http://" + fleet_->http_address()},
            {"health", "--server", server}};
  }
  static bool IsOpen(const std::vector<std::string>& command) { return command[0] == "health"; }

  static TemporaryFolder* folder_;
  static Fleet* fleet_;
};
TemporaryFolder* ApiKey::folder_ = nullptr;
Fleet* ApiKey::fleet_ = nullptr;

TEST_F(ApiKey, OfAFileOrOfTheVariableIsShownByEachCommand) {
  const std::string file = Write("mine", "\nsecond-key\r\nnot this one\n");
  for (const std::vector<std::string>& command : Commands()) {
    SCOPED_TRACE(::testing::PrintToString(command));
    setenv("TANDEM_API_KEY", "a-wrong-one", 1);
    RunResult result = Tandem(command, {"--api-key-file", file});
    EXPECT_EQ(result.status, 0) << result.output;
    setenv("TANDEM_API_KEY", "first-key", 1);
    result = Tandem(command);
    EXPECT_EQ(result.status, 0) << result.output;
  }
}

TEST_F(ApiKey, ThatIsMissingOrWrongIsOneLineThatNamesTheFlag) {
  const std::string wrong = Write("wrong", "third-key\n");
  for (const std::vector<std::string>& command : Commands()) {
    if (IsOpen(command)) continue;
    SCOPED_TRACE(::testing::PrintToString(command));
    RunResult result = Tandem(command);
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1) << result.output;
    EXPECT_THAT(result.output, AllOf(HasSubstr("an API key is needed"), HasSubstr("--api-key-file"),
                                     HasSubstr("TANDEM_API_KEY")));
    result = Tandem(command, {"--api-key-file", wrong});
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1) << result.output;
    EXPECT_THAT(result.output, AllOf(HasSubstr("the API key is not one of this server's"),
                                     HasSubstr("--api-key-file"), Not(HasSubstr("third-key"))));
  }
}

TEST_F(ApiKey, AWatchThatIsNotLetInEnds) {
  const RunResult result = Tandem({"fleet", "--watch", "1", "--server", fleet_->text_address()});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, HasSubstr("--api-key-file"));
}

TEST_F(ApiKey, AFileWithoutAKeyIsAWrongFlagAndIsNotShown) {
  const std::vector<std::string> paths = {"/none", Write("empty", "\n"), Write("words", "se cret"),
                                          Write("long", std::string(513, 'k'))};
  for (const std::string& path : paths) {
    const RunResult result =
        Tandem({"models", "--server", fleet_->text_address(), "--api-key-file", path});
    EXPECT_EQ(result.status, 2) << result.output;
    EXPECT_THAT(result.output, AllOf(HasSubstr("--api-key-file " + path), Not(HasSubstr("cret"))));
  }
  setenv("TANDEM_API_KEY", "se cret", 1);
  const RunResult result = Tandem({"models", "--server", fleet_->text_address()});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, AllOf(HasSubstr("TANDEM_API_KEY"), Not(HasSubstr("cret"))));
}

}  // namespace
}  // namespace tandem::test
