// The worker's life: not serving, serving, draining, broken; peers that vanish.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/services/worker/decode_client.h"
#include "tests/services/worker/live_worker.h"
#include "tests/services/worker/relay.h"

namespace tandem {
namespace {

namespace pb = ::tandem::decode::v1;
using ::testing::HasSubstr;
using Health = grpc::health::v1::HealthCheckResponse;
using test::DecodeClient;
using test::LiveWorker;
using test::Relay;

const std::vector<int32_t> kPrompt = {5, 70, 71, 72, 73, 74, 75};

bool IsIdle(const pb::Load& load) {
  return load.running() == 0 && load.queued() == 0 && load.free_pages() == load.total_pages();
}

LiveWorker::Options NotLoaded() {
  LiveWorker::Options options;
  options.load = false;
  return options;
}

TEST(WorkerLife, B149_NotServingUntilTheModelIsLoadedAndTested) {
  LiveWorker worker(NotLoaded());
  EXPECT_EQ(worker.health(), Health::NOT_SERVING);
  EXPECT_EQ(DecodeClient(worker.address()).Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  ASSERT_TRUE(worker.Load().ok());
  EXPECT_EQ(worker.health(), Health::SERVING);
  EXPECT_EQ(DecodeClient(worker.address()).Generate(1, kPrompt, 2).size(), 2u);
}

TEST(WorkerLife, ADeviceThatComputesWronglyNeverServes) {
  LiveWorker worker(NotLoaded());
  worker.switches().Corrupt();
  const absl::Status loaded = worker.Load();
  EXPECT_TRUE(absl::IsInternal(loaded)) << loaded;
  EXPECT_THAT(loaded.ToString(), HasSubstr("self-test: "));
  EXPECT_EQ(worker.health(), Health::NOT_SERVING);
}

TEST(WorkerLife, AContextBeyondTheModelsIsRefusedWithTheLimit) {
  LiveWorker::Options options = NotLoaded();
  options.engine.context_length = 513;
  LiveWorker worker(options);
  const absl::Status loaded = worker.Load();
  EXPECT_TRUE(absl::IsOutOfRange(loaded)) << loaded;
  EXPECT_THAT(loaded.ToString(), HasSubstr("--context 513: this model's limit is 512"));
}

TEST(WorkerLife, B151_ADrainHandsSessionsBackThenEndsStreamsThenReturns) {
  LiveWorker worker;
  DecodeClient client(worker.address());
  client.AddOpen(1, kPrompt);
  client.AddOpen(2, kPrompt);
  client.Send();
  ASSERT_TRUE(client.ReadCandidates(2).has_value());
  worker.RequestDrain();
  for (uint64_t handle : {2, 1}) {  // the youngest first
    const auto closed = client.ReadClosed(handle);
    ASSERT_TRUE(closed.has_value());
    EXPECT_EQ(closed->reason(), pb::CLOSE_REASON_DRAINING);
  }
  EXPECT_EQ(client.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(worker.WaitForEnd().ok());
}

TEST(WorkerLife, ADrainSaysNotServingBeforeItTouchesASession) {
  LiveWorker worker;
  DecodeClient client(worker.address());
  client.AddOpen(1, kPrompt);
  client.Send();
  ASSERT_TRUE(client.ReadCandidates(1).has_value());
  // The engine stands still in a step, so that the drain cannot go on.
  worker.switches().Hold();
  client.AddExtend(1, 7, 1, {5});
  client.Send();
  ASSERT_TRUE(worker.switches().WaitUntilHeld());
  worker.RequestDrain();
  while (worker.health() == Health::SERVING) {
  }
  EXPECT_EQ(worker.health(), Health::NOT_SERVING);
  while (true) {
    DecodeClient late(worker.address());
    if (late.Finish().error_code() == grpc::StatusCode::UNAVAILABLE) break;
  }
  worker.switches().Release();
  const auto closed = client.ReadClosed(1);
  ASSERT_TRUE(closed.has_value());
  EXPECT_EQ(closed->reason(), pb::CLOSE_REASON_DRAINING);
  EXPECT_TRUE(worker.WaitForEnd().ok());
}

TEST(WorkerLife, B133_B135_ALostDeviceEndsStreamsAndTheWorker) {
  LiveWorker worker;
  DecodeClient client(worker.address());
  DecodeClient idle(worker.address());
  ASSERT_TRUE(idle.ReadFrame().has_value());
  client.AddOpen(1, kPrompt);
  client.Send();
  ASSERT_TRUE(client.ReadCandidates(1).has_value());
  worker.switches().Break();
  client.AddExtend(1, 7, 1, {5});
  client.Send();
  EXPECT_EQ(client.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(idle.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  const absl::Status ended = worker.WaitForEnd();
  EXPECT_TRUE(absl::IsInternal(ended)) << ended;
}

TEST(WorkerLife, ACheckedWorkerNamesTheOperationOfAValueThatIsNotFinite) {
  LiveWorker::Options options;
  options.checked = true;
  options.nan_token = 60;
  LiveWorker worker(options);
  DecodeClient client(worker.address());
  client.AddOpen(1, {5, 60, 71});
  client.AddOpen(2, kPrompt);
  client.Send();
  const auto closed = client.ReadClosed(1);
  ASSERT_TRUE(closed.has_value());
  EXPECT_EQ(closed->reason(), pb::CLOSE_REASON_NON_FINITE);
  EXPECT_EQ(closed->detail(), "embedding, row of position 1: value 0 is not finite");
  EXPECT_EQ(DecodeClient(worker.address()).Generate(3, kPrompt, 2).size(), 2u);
}

TEST(WorkerLife, B137_ALongStepSilencesNoStream) {
  LiveWorker worker;
  DecodeClient client(worker.address());
  worker.switches().Hold();
  client.AddOpen(1, kPrompt);
  client.Send();
  ASSERT_TRUE(worker.switches().WaitUntilHeld());
  client.ReadFrame();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(client.ReadFrame().has_value());
  worker.switches().Release();
  EXPECT_TRUE(client.ReadCandidates(1).has_value());
}

TEST(WorkerLife, ASessionIsToldThatItIsAdmittedBeforeItsFirstStepIsComputed) {
  LiveWorker worker;
  DecodeClient client(worker.address());
  worker.switches().Hold();
  client.AddOpen(1, kPrompt);
  client.Send();
  ASSERT_TRUE(worker.switches().WaitUntilHeld());
  const auto opened = client.ReadEvent([](const pb::Event& event) { return event.has_opened(); });
  worker.switches().Release();
  EXPECT_TRUE(opened.has_value()) << "it did not come while the step stood still";
  EXPECT_TRUE(client.ReadCandidates(1).has_value());
}

TEST(WorkerLife, B141_APeerThatVanishesWithoutAWordIsNoticedByTheServer) {
  LiveWorker::Options options;
  options.keepalive = {1000, 1000, 500};
  LiveWorker worker(options);
  DecodeClient observer(worker.address());
  Relay relay(worker.address());
  DecodeClient client(relay.address());
  client.AddOpen(1, kPrompt);
  client.Send();
  ASSERT_TRUE(client.ReadCandidates(1).has_value());
  ASSERT_TRUE(observer.WaitForLoad([](const pb::Load& load) { return load.running() == 1; }));
  relay.Freeze();
  EXPECT_TRUE(observer.WaitForLoad(IsIdle)) << "its session lives on";
}

TEST(WorkerLife, B139_AWorkerThatVanishesWithoutAWordIsNoticedByTheClient) {
  LiveWorker worker;
  Relay relay(worker.address());
  DecodeClient client(relay.address(), {1000, 1000, 500});
  client.AddOpen(1, kPrompt);
  client.Send();
  ASSERT_TRUE(client.ReadCandidates(1).has_value());
  relay.Freeze();
  EXPECT_EQ(client.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace tandem
