// What people point at the HTTP door, against both tiers: the `openai` client, on a tiny model
// written here, and a browser on the playground.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "tests/e2e/fleet.h"
#include "tests/support/tiny_model.h"

namespace tandem::test {
namespace {

class HttpClients : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    TinyModelOptions options;
    options.context_length = 4096;
    std::ofstream(folder_->File("tiny.gguf"), std::ios::binary) << TinyModel(options);
    fleet_ = new Fleet({folder_->File("tiny.gguf"), {"--kv-tokens", "65536"}, {}});
  }
  static void TearDownTestSuite() {
    delete fleet_;
    delete folder_;
  }
  static Fleet* fleet_;
  static TemporaryFolder* folder_;
};
Fleet* HttpClients::fleet_ = nullptr;
TemporaryFolder* HttpClients::folder_ = nullptr;

TEST_F(HttpClients, TheOpenAiClientGetsWhatItExpects) {
  const std::optional<std::string> python = TestPython();
  if (!python.has_value()) GTEST_SKIP() << "TANDEM_TEST_PYTHON is not set";
  const RunResult result = RunProgram(
      {*python, "tests/e2e/openai_suite.py", "http://" + fleet_->http_address() + "/v1"}, 240);
  EXPECT_EQ(result.status, 0) << result.output;
  // Whatever it left in the middle is gone.
  EXPECT_TRUE(fleet_->WorkerIsFreeSoon());
}

// TANDEM_SCREENSHOT: where the picture of the page goes (services/text/web/screenshot.png).
TEST(Playground, WorksInABrowserOnTheDefaultModel) {
  const std::optional<std::string> python = TestPython();
  const std::optional<std::string> model = DefaultModel();
  if (!python.has_value()) GTEST_SKIP() << "TANDEM_TEST_PYTHON is not set";
  if (!model.has_value()) GTEST_SKIP() << "TANDEM_TEST_MODEL is not set";
  Fleet fleet({*model, {"--kv-tokens", "16384"}, {}});
  std::vector<std::string> argv = {*python, "tests/web/playground_test.py",
                                   "http://" + fleet.http_address() + "/"};
  if (const char* path = std::getenv("TANDEM_SCREENSHOT")) {
    argv.insert(argv.end(), {"--screenshot", path});
  }
  const RunResult result = RunProgram(argv, 280);
  if (result.status == 77) GTEST_SKIP() << result.output;  // no browser
  EXPECT_EQ(result.status, 0) << result.output;
}

}  // namespace
}  // namespace tandem::test
