// tandem.v1.Fleet: what a text tier says of its workers.
#include <gmock/gmock.h>

#include <future>
#include <string>

#include "tandem/v1/fleet.grpc.pb.h"
#include "tests/services/text/service_fixture.h"

namespace tandem::text {
namespace {

using test::ScriptedWorker;
using testing::HasSubstr;

class FleetServiceTest : public ServiceTest {
 protected:
  v1::ListWorkersResponse List() {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    v1::ListWorkersResponse response;
    const grpc::Status status = v1::Fleet::NewStub(channel_)->ListWorkers(&context, {}, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  bool WaitForState(int worker, v1::WorkerState state) {
    return Eventually([&] { return List().workers(worker).state() == state; });
  }
};

TEST_F(FleetServiceTest, NamesEveryWorkerInOrderAlsoThoseThatNeverAnswered) {
  AddWorker();
  AddWorker().Kill();
  Serve();
  ASSERT_TRUE(Eventually([this] { return !List().workers(1).last_error().empty(); }));
  ASSERT_TRUE(Eventually([this] { return List().workers(0).has_load(); }));
  const v1::ListWorkersResponse response = List();
  ASSERT_EQ(response.workers_size(), 2);
  const v1::Worker& one = response.workers(0);
  EXPECT_EQ(one.address(), workers_[0]->address());
  EXPECT_EQ(one.state(), v1::WORKER_STATE_SERVING);
  EXPECT_EQ(one.last_error(), "");
  EXPECT_FALSE(one.model().empty());
  EXPECT_FALSE(one.weights_fingerprint().empty());
  EXPECT_FALSE(one.numerics_fingerprint().empty());
  EXPECT_EQ(one.sessions(), 0);
  EXPECT_GE(one.load().age().nanos(), 0);
  const v1::Worker& two = response.workers(1);
  EXPECT_EQ(two.address(), workers_[1]->address());
  EXPECT_EQ(two.state(), v1::WORKER_STATE_CONNECTING);
  EXPECT_EQ(two.model(), "");
  EXPECT_FALSE(two.has_load());
}

TEST_F(FleetServiceTest, CountsTheChoicesThatThisTextTierHasThere) {
  test::ScriptedWorkerOptions options;
  options.step_time = std::chrono::milliseconds(5);
  options.decoder.context_length = 100'000;
  AddWorker(options);
  Serve();
  grpc::ClientContext context;
  v1::GenerateRequest request = Prompt("go", 90'000);
  request.mutable_sampling()->set_n(3);
  const auto reader = stub_->Generate(&context, request);
  EXPECT_TRUE(Eventually([this] { return List().workers(0).sessions() == 3; }));
  context.TryCancel();
  reader->Finish();
  EXPECT_TRUE(Eventually([this] { return List().workers(0).sessions() == 0; }));
}

TEST_F(FleetServiceTest, ShowsAWorkerThatIsSilentThenLostWithTheReasonAndThenBack) {
  options_.worker_silence = std::chrono::milliseconds(1000);
  ScriptedWorker& worker = AddWorker();
  Serve();
  worker.SetSilent(true);
  EXPECT_TRUE(WaitForState(0, v1::WORKER_STATE_SUSPECT));
  ASSERT_TRUE(Eventually([this] {
    const v1::Worker last = List().workers(0);
    return last.state() == v1::WORKER_STATE_CONNECTING && !last.last_error().empty();
  }));
  worker.Kill();
  worker.SetSilent(false);
  worker.Start();
  EXPECT_TRUE(WaitForState(0, v1::WORKER_STATE_SERVING));
  EXPECT_NE(List().workers(0).last_error(), "") << "why the one before was lost";
}

TEST_F(FleetServiceTest, ShowsAWorkerThatDrains) {
  test::ScriptedWorkerOptions options;
  options.step_time = std::chrono::milliseconds(5);
  options.decoder.context_length = 100'000;
  ScriptedWorker& worker = AddWorker(options);
  options_.replay.tries = 0;
  Serve();
  auto answer = std::async(std::launch::async, [this] { return Ask(Prompt("go", 90'000)); });
  ASSERT_TRUE(Eventually([&] { return worker.totals().live == 1; }));
  worker.Drain();
  EXPECT_TRUE(WaitForState(0, v1::WORKER_STATE_DRAINING));
  answer.get();
}

TEST_F(FleetServiceTest, RefusesAFieldThatItDoesNotKnow) {
  AddWorker();
  Serve();
  v1::ListWorkersRequest request;
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(9, 1);
  grpc::ClientContext context;
  v1::ListWorkersResponse response;
  const grpc::Status status =
      v1::Fleet::NewStub(channel_)->ListWorkers(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("9"));
}

}  // namespace
}  // namespace tandem::text
