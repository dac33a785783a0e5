// The clients in services/examples against both tiers, and the service config that they use.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <nlohmann/json.hpp>

#include "services/common/health_service.h"
#include "services/common/server.h"
#include "tests/e2e/fleet.h"
#include "tests/support/tiny_model.h"

namespace tandem::test {
namespace {

using ::testing::HasSubstr;

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

constexpr char kServiceConfig[] = "proto/tandem/v1/service_config.json";

class Examples : public ::testing::Test {
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
Fleet* Examples::fleet_ = nullptr;
TemporaryFolder* Examples::folder_ = nullptr;

// The two that print alike: an answer, and which field was wrong.
void ExpectAnswers(std::vector<std::string> argv, const std::string& server) {
  argv.insert(argv.end(), {server, "hello \"you\"\n"});
  const RunResult answer = RunProgram(argv);
  EXPECT_EQ(answer.status, 0) << answer.output;
  EXPECT_THAT(answer.output, HasSubstr("seed "));
  EXPECT_THAT(answer.output, HasSubstr("FINISH_REASON_"));
  EXPECT_THAT(answer.output, HasSubstr(" tokens"));
  argv.push_back("-3");
  const RunResult refused = RunProgram(argv);
  EXPECT_EQ(refused.status, 1) << refused.output;
  EXPECT_THAT(refused.output, HasSubstr("error 3: sampling.temperature is -3"));
  EXPECT_THAT(refused.output, HasSubstr("field: sampling.temperature"));
}

TEST_F(Examples, TheOneInCppStreamsAnAnswerAndNamesABadField) {
  ExpectAnswers({ProgramPath("example-generate")}, fleet_->text_address());
}

TEST_F(Examples, TheOneInPythonStreamsAnAnswerAndNamesABadField) {
  const std::optional<std::string> python = TestPython();
  if (!python.has_value()) GTEST_SKIP() << "TANDEM_TEST_PYTHON is not set";
  const RunResult made = RunProgram(
      {*python, "-m", "grpc_tools.protoc", "-I", "proto", "--python_out=" + folder_->File("."),
       "--grpc_python_out=" + folder_->File("."), "proto/tandem/v1/generation.proto"});
  ASSERT_EQ(made.status, 0) << made.output;
  ExpectAnswers({"/usr/bin/env", "PYTHONPATH=" + folder_->File("."), *python,
                 "services/examples/generate.py"},
                fleet_->text_address());
}

TEST_F(Examples, TheOneInShellSaysWhatIsServedAndGetsAnAnswer) {
  const std::optional<std::string> python = TestPython();
  if (!python.has_value()) GTEST_SKIP() << "TANDEM_TEST_PYTHON is not set";
  const std::string folder = std::filesystem::path(*python).parent_path();
  const RunResult result = RunProgram({"/usr/bin/env", "PATH=" + folder + ":" + getenv("PATH"),
                                       "services/examples/generate.sh", fleet_->text_address(),
                                       "say \"hi\" \\ and\nmore"});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("\"SERVING\""));
  EXPECT_THAT(result.output, HasSubstr("\"architecture\": \"llama\""));
  EXPECT_THAT(result.output, HasSubstr("\"output_tokens\""));
}

TEST(ServiceConfig, IsTheOneThatTheCppExampleHas) {
  const std::string source = Read("services/examples/generate.cc");
  const size_t begin = source.find("R\"(") + 3;
  const std::string text = source.substr(begin, source.find(")\"", begin) - begin);
  EXPECT_EQ(nlohmann::json::parse(text), nlohmann::json::parse(Read(kServiceConfig)));
}

// Fails as often as it is told to, then answers.
class Flaky final : public v1::Generation::CallbackService {
 public:
  explicit Flaky(int failures) : failures_(failures) {}
  int calls() const { return calls_; }

  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest*,
                                       v1::ListModelsResponse*) override {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(++calls_ <= failures_
                        ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "no worker yet")
                        : grpc::Status::OK);
    return reactor;
  }

 private:
  const int failures_;
  std::atomic<int> calls_{0};
};

struct Called {
  grpc::Status status;
  int calls = 0;
};
Called CallWithServiceConfig(int failures, bool serving) {
  Flaky flaky(failures);
  HealthService health({"tandem.v1.Generation"});
  health.Set("tandem.v1.Generation", serving);
  grpc::Service* const services[] = {&flaky, &health};
  auto server = RpcServer::Start({.listen = "127.0.0.1:0"}, services);
  EXPECT_TRUE(server.ok()) << server.status();
  grpc::ChannelArguments arguments;
  arguments.SetServiceConfigJSON(Read(kServiceConfig));
  const auto stub = v1::Generation::NewStub(grpc::CreateCustomChannel(
      (*server)->address(), grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  v1::ListModelsResponse response;
  Called called;
  called.status = stub->ListModels(&context, {}, &response);
  called.calls = flaky.calls();
  return called;
}

TEST(ServiceConfig, ACallThatFoundNoWorkerIsTriedAgain) {
  const Called called = CallWithServiceConfig(2, true);
  EXPECT_TRUE(called.status.ok()) << called.status.error_message();
  EXPECT_EQ(called.calls, 3);
}

TEST(ServiceConfig, AServerThatDoesNotServeGetsNoCalls) {
  const Called called = CallWithServiceConfig(0, false);
  EXPECT_EQ(called.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(called.calls, 0);
}

}  // namespace
}  // namespace tandem::test
