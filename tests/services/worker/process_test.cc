// The program: its exit codes, its port file, its signals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "grpc/health/v1/health.grpc.pb.h"
#include "services/common/channel.h"
#include "services/worker/decode_service.h"
#include "tests/services/worker/decode_client.h"
#include "tests/support/process.h"
#include "tests/support/tiny_model.h"

namespace tandem {
namespace {

namespace pb = ::tandem::decode::v1;
using test::DecodeClient;
using test::Process;
using test::RunProgram;
using test::RunResult;
using test::TemporaryFolder;
using ::testing::HasSubstr;

const std::vector<int32_t> kPrompt = {5, 70, 71, 72};

class WorkerProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(test::WriteFile(folder_.File("tiny.gguf"), test::TinyModel({})));
  }

  // Started and serving.
  std::unique_ptr<Process> Start() {
    const std::string port_file = folder_.File("port");
    auto process = std::make_unique<Process>(std::vector<std::string>{
        TANDEM_WORKER_PROGRAM, "--model", folder_.File("tiny.gguf"), "--listen", "127.0.0.1:0",
        "--port-file", port_file, "--device", "cpu", "--threads", "1", "--max-sessions", "4"});
    std::string port;
    while (port.empty() && process->running()) std::ifstream(port_file) >> port;
    address_ = "127.0.0.1:" + port;
    while (process->running() && !(IsServing() && Says(*process, "serving tiny"))) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_TRUE(process->running()) << process->output();
    return process;
  }

  static bool Says(const Process& process, const std::string& part) {
    return process.output().find(part) != std::string::npos;
  }

  bool IsServing() const {
    ChannelOptions options;
    options.target = address_;
    const auto client = grpc::health::v1::Health::NewStub(*MakeChannel(options));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
    grpc::health::v1::HealthCheckResponse response;
    return client->Check(&context, {}, &response).ok() &&
           response.status() == grpc::health::v1::HealthCheckResponse::SERVING;
  }

  const TemporaryFolder folder_;
  std::string address_;
};

TEST_F(WorkerProgram, ServesAndDrainsOnSigtermAndLeavesWithZero) {
  const auto process = Start();
  DecodeClient client(address_);
  client.AddOpen(1, kPrompt);
  client.Send();
  ASSERT_TRUE(client.ReadCandidates(1).has_value());
  process->Signal(SIGTERM);
  const auto closed = client.ReadClosed(1);
  ASSERT_TRUE(closed.has_value());
  EXPECT_EQ(closed->reason(), pb::CLOSE_REASON_DRAINING);
  EXPECT_EQ(client.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(process->Wait(30), 0) << process->output();
  EXPECT_THAT(process->output(), HasSubstr("drained"));
}

TEST_F(WorkerProgram, SaysWhatItServesAndHowMuchFits) {
  const auto process = Start();
  const std::string output = process->output();
  EXPECT_THAT(output, HasSubstr("listening on " + address_));
  EXPECT_THAT(output, HasSubstr("loading tiny: 100 %"));
  EXPECT_THAT(output, HasSubstr("4 sessions"));
  EXPECT_THAT(output, HasSubstr("serving tiny"));
  process->Signal(SIGINT);
  EXPECT_EQ(process->Wait(30), 0) << process->output();
}

TEST_F(WorkerProgram, ASecondSignalDoesNotWait) {
  const auto process = Start();
  // A peer that does not read what is sent to it, for which a drain waits some seconds.
  DecodeClient client(address_);
  ASSERT_TRUE(client.ReadFrame().has_value());
  uint64_t handle = 0;
  for (int i = 0; i < 10; ++i) {
    for (int j = 0; j < 1000; ++j) client.AddOpen(++handle, {1})->set_run_ahead(99);
    ASSERT_TRUE(client.Send());
  }
  process->Signal(SIGTERM);
  while (process->running() && !Says(*process, "draining")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  process->Signal(SIGTERM);
  EXPECT_EQ(process->Wait(3), 128 + SIGTERM) << process->output();
}

TEST_F(WorkerProgram, APortThatIsTakenIsOneLineAndStatusOne) {
  const auto process = Start();
  const RunResult second = RunProgram({TANDEM_WORKER_PROGRAM, "--model", folder_.File("tiny.gguf"),
                                       "--listen", address_, "--device", "reference"});
  EXPECT_EQ(second.status, 1);
  EXPECT_THAT(second.output, HasSubstr("--listen " + address_));
}

TEST_F(WorkerProgram, AContextThatTheModelLacksIsAUsageError) {
  const RunResult result =
      RunProgram({TANDEM_WORKER_PROGRAM, "--model", folder_.File("tiny.gguf"), "--listen",
                  "127.0.0.1:0", "--device", "reference", "--context", "100000"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.output, HasSubstr("--context 100000: this model's limit is 512"));
}

}  // namespace
}  // namespace tandem
