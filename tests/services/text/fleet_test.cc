// Workers that come, go, fall silent, lie, and a text tier that drains.
#include <gmock/gmock.h>

#include <algorithm>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "engine/sampling/decision.h"
#include "engine/text/tokenizer_data.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "services/common/decode_codec.h"
#include "tests/services/text/service_fixture.h"

namespace tandem::text {
namespace {

using grpc::StatusCode;
using grpc::health::v1::HealthCheckResponse;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::ScriptedWorker;
using test::ScriptedWorkerOptions;
using testing::HasSubstr;

class FleetTest : public ServiceTest {
 protected:
  static ScriptedWorkerOptions Paced() {
    ScriptedWorkerOptions options;
    options.step_time = milliseconds(5);
    options.decoder.context_length = 100'000;
    return options;
  }
  HealthCheckResponse::ServingStatus Health() {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(TextServer::kServiceName);
    HealthCheckResponse response;
    const auto stub = grpc::health::v1::Health::NewStub(channel_);
    const grpc::Status status = stub->Check(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.status();
  }
  // So many workers take new sessions.
  bool WaitForWorkers(int32_t workers) {
    return Eventually([&] {
      grpc::ClientContext context;
      v1::ListModelsResponse response;
      return stub_->ListModels(&context, {}, &response).ok() && response.models_size() == 1 &&
             response.models(0).workers() == workers;
    });
  }
  // A generation that runs until something happens to it.
  std::future<Answer> AskForLong() {
    auto answer = std::async(std::launch::async, [this] { return Ask(Prompt("go", 90'000)); });
    EXPECT_TRUE(Eventually([this] { return workers_[0]->totals().extends > 2; }));
    return answer;
  }
  void ExpectLost(const Answer& answer) {
    EXPECT_EQ(answer.status.error_code(), StatusCode::UNAVAILABLE);
    ASSERT_EQ(answer.finished.count(0), 1u);
    EXPECT_EQ(answer.finished.at(0).reason(), v1::FINISH_REASON_ERROR);
    EXPECT_THAT(answer.finished.at(0).error(), HasSubstr("lost"));
  }
  // The tokens of Prompt("go", count): what every generation of it has, whatever happens to it.
  std::vector<int32_t> TokensOfGo(int32_t count) {
    const test::RowFunction rows = test::HashRows(test::kRowSize);
    std::vector<int32_t> tokens = {'g', 'o'};
    SamplingParameters greedy;
    greedy.temperature = 0.0f;
    const std::vector<uint32_t> defined = DefinedBits(test::SmallTokenizer(), test::kRowSize);
    Decider decider(greedy, 0, 2, tokens, test::kRowSize, defined);
    for (int32_t i = 0; i < count; ++i) {
      decider.Append(decider.DecideFromRow(rows(decider.tokens())).token);
    }
    return {decider.tokens().begin() + 2, decider.tokens().end()};
  }
  std::vector<std::future<Answer>> AskForSome(int count, int32_t tokens) {
    std::vector<std::future<Answer>> running;
    for (int i = 0; i < count; ++i) {
      running.push_back(
          std::async(std::launch::async, [this, tokens] { return Ask(Prompt("go", tokens)); }));
    }
    return running;
  }
  void ExpectWhole(std::vector<std::future<Answer>>& running, int32_t tokens, int at_least) {
    const std::vector<int32_t> expected = TokensOfGo(tokens);
    int reopened = 0;
    for (std::future<Answer>& answer : running) {
      const Answer got = answer.get();
      EXPECT_TRUE(got.status.ok()) << got.status.error_message();
      EXPECT_EQ(got.started.size(), 1u);
      ASSERT_EQ(got.finished.count(0), 1u);
      EXPECT_EQ(got.token_ids.at(0), expected);
      reopened += got.finished.at(0).counters().reopened();
      EXPECT_EQ(got.finished.at(0).counters().approximate(), 0);
    }
    EXPECT_GE(reopened, at_least);
  }
};

TEST_F(FleetTest, B149_ServesOnlyWhileAWorkerIsConnected) {
  ScriptedWorker& worker = AddWorker();
  worker.Kill();
  StartServer();
  EXPECT_EQ(Health(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(Ask(Prompt("x", 1)).status.error_code(), StatusCode::UNAVAILABLE);
  worker.Start();
  EXPECT_TRUE(Eventually([&] { return Health() == HealthCheckResponse::SERVING; }));
  EXPECT_TRUE(Ask(Prompt("x", 1)).status.ok());
  worker.Kill();
  EXPECT_TRUE(Eventually([&] { return Health() == HealthCheckResponse::NOT_SERVING; }));
}

TEST_F(FleetTest, WithoutReplayAKilledWorkerIsAnErrorWithinFiveSecondsAndServesAgainWhenItIsBack) {
  options_.replay.tries = 0;
  ScriptedWorker& worker = AddWorker(Paced());
  Serve();
  std::future<Answer> running = AskForLong();
  worker.Kill();
  ASSERT_EQ(running.wait_for(seconds(5)), std::future_status::ready);
  ExpectLost(running.get());
  worker.Start();
  EXPECT_TRUE(Eventually([&] { return Ask(Prompt("x", 3)).status.ok(); }));
  EXPECT_EQ(worker.totals().tokenizers, 1) << "the tokenizer was kept";
  EXPECT_TRUE(Eventually([&] { return server_->active() == 0; }));
}

TEST_F(FleetTest, AGenerationGoesOnOnTheSameWorkerWhenThatIsBack) {
  ScriptedWorker& worker = AddWorker(Paced());
  Serve();
  auto running = AskForSome(3, 200);
  ASSERT_TRUE(Eventually([&] { return worker.totals().live == 3; }));
  worker.Kill();
  std::this_thread::sleep_for(milliseconds(50));
  worker.Start();
  ExpectWhole(running, 200, 1);
}

TEST_F(FleetTest, ADroppedStreamIsNoticedByNobody) {
  ScriptedWorker& worker = AddWorker(Paced());
  Serve();
  auto running = AskForSome(3, 200);
  ASSERT_TRUE(Eventually([&] { return worker.totals().live == 3; }));
  worker.DropStreams();
  ExpectWhole(running, 200, 1);
}

TEST_F(FleetTest, AllTriesUsedUpIsAnErrorThatSaysSo) {
  options_.replay = {.tries = 1, .wait = 20 * kNanosPerSecond};
  ScriptedWorker& worker = AddWorker(Paced());
  Serve();
  std::future<Answer> running = AskForLong();
  for (int64_t streams = 1; streams <= 2; ++streams) {
    ASSERT_TRUE(Eventually([&] { return worker.totals().streams == streams; }));
    ASSERT_TRUE(Eventually([&] { return worker.totals().live == 1; }));
    worker.DropStreams();
  }
  const Answer answer = running.get();
  ExpectLost(answer);
  EXPECT_THAT(answer.finished.at(0).error(), HasSubstr("1 of 1 tries"));
}

TEST_F(FleetTest, WithoutAWorkerTheWaitIsBoundedAndTheErrorSaysWhy) {
  options_.replay.wait = kNanosPerSecond / 2;
  ScriptedWorker& worker = AddWorker(Paced());
  Serve();
  std::future<Answer> running = AskForLong();
  worker.Kill();
  ASSERT_EQ(running.wait_for(seconds(5)), std::future_status::ready);
  const Answer answer = running.get();
  ExpectLost(answer);
  EXPECT_THAT(answer.finished.at(0).error(), HasSubstr("no worker serves"));
}

// The process stands still, its connections do not close.
TEST_F(FleetTest, ASilentWorkerGetsNoNewSessionsAndThenLosesThoseThatItHas) {
  options_.worker_silence = milliseconds(500);
  AddWorker(Paced());
  AddWorker(Paced());
  Serve();
  ASSERT_TRUE(WaitForWorkers(2));
  auto running = AskForSome(6, 200);
  ASSERT_TRUE(Eventually(
      [&] { return workers_[0]->totals().extends > 2 && workers_[1]->totals().extends > 2; }));
  workers_[0]->SetSilent(true);
  ExpectWhole(running, 200, 1);
  workers_[0]->SetSilent(false);
}

TEST_F(FleetTest, ASilentWorkerIsSuspectAndServesAgainWhenItIsHeard) {
  ScriptedWorker& worker = AddWorker(Paced());
  Serve();
  worker.SetSilent(true);
  EXPECT_TRUE(Eventually([&] { return !server_->serving(); }));
  EXPECT_EQ(Health(), HealthCheckResponse::NOT_SERVING);
  worker.SetSilent(false);
  EXPECT_TRUE(Eventually([&] { return Ask(Prompt("x", 3)).status.ok(); }));
}

// It beats, but its step counter stands still.
TEST_F(FleetTest, B137_AStalledWorkerLosesItsSessions) {
  options_.worker_stall = milliseconds(700);
  ScriptedWorkerOptions stuck = Paced();
  stuck.step_time = std::chrono::hours(1);
  AddWorker(stuck);
  Serve();
  auto running = AskForSome(2, 40);
  ASSERT_TRUE(Eventually([&] { return workers_[0]->totals().live == 2; }));
  workers_[0]->SetOptions(Paced());  // the next stream is a well one
  ExpectWhole(running, 40, 2);
  EXPECT_GE(workers_[0]->totals().streams, 2);
}

TEST_F(FleetTest, B137_AWorkerThatOnlyBeatsIsNotSuspect) {
  ScriptedWorkerOptions options;
  options.heartbeat = milliseconds(400);
  ScriptedWorker& worker = AddWorker(options);
  options_.worker_silence = milliseconds(1500);
  Serve();
  std::this_thread::sleep_for(milliseconds(3200));
  EXPECT_EQ(worker.totals().streams, 1);
  EXPECT_TRUE(Ask(Prompt("x", 3)).status.ok());
}

TEST_F(FleetTest, TheOtherWorkerTakesOverWhenOneIsLost) {
  AddWorker(Paced());
  AddWorker(Paced());
  Serve();
  ASSERT_TRUE(WaitForWorkers(2));
  auto running = AskForSome(6, 150);
  ASSERT_TRUE(Eventually(
      [&] { return workers_[0]->totals().extends > 2 && workers_[1]->totals().extends > 2; }));
  workers_[0]->Kill();
  ExpectWhole(running, 150, 1);
  EXPECT_TRUE(Ask(Prompt("x", 3)).status.ok());
}

TEST_F(FleetTest, EachTokenNamesItsWorkerByThePlaceOfItsFlag) {
  AddWorker(Paced());
  AddWorker(Paced());
  Serve();
  ASSERT_TRUE(WaitForWorkers(2));
  v1::GenerateRequest request = Prompt("go", 150);
  request.mutable_response()->set_token_details(true);
  std::vector<int32_t> named;
  int32_t first = -1;
  const Answer answer = Ask(request, [&](grpc::ClientContext&, const auto& message) {
    for (const auto& detail : message.delta().token_details()) named.push_back(detail.worker());
    if (first >= 0 || named.size() < 5) return;
    first = workers_[0]->totals().live > 0 ? 0 : 1;
    workers_[static_cast<size_t>(first)]->Kill();
  });
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(named.size(), 150u);
  EXPECT_EQ(named.front(), first);
  EXPECT_EQ(named.back(), 1 - first);
  const auto change = std::find(named.begin(), named.end(), 1 - first);
  EXPECT_EQ(std::count(change, named.end(), first), 0) << "it changed once";
}

TEST_F(FleetTest, ADrainingWorkerHandsItsSessionsOverAndGetsNoOthers) {
  AddWorker(Paced());
  AddWorker(Paced());
  Serve();
  ASSERT_TRUE(WaitForWorkers(2));
  auto running = AskForSome(6, 150);
  ASSERT_TRUE(Eventually(
      [&] { return workers_[0]->totals().extends > 2 && workers_[1]->totals().extends > 2; }));
  workers_[0]->Drain();
  ASSERT_TRUE(Eventually([&] { return workers_[0]->totals().live == 0; }));
  const int64_t opens = workers_[0]->totals().opens;
  ExpectWhole(running, 150, 1);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(Ask(Prompt("x", 3)).status.ok());
  EXPECT_EQ(workers_[0]->totals().opens, opens);
}

TEST_F(FleetTest, AReplicaThatGoesAwayLeavesWhatAnotherCanGoOnWith) {
  AddWorker(Paced());
  Serve();
  v1::GenerateRequest request = Prompt("go", 40);
  request.mutable_sampling()->set_seed(1);
  std::vector<int32_t> tokens;
  std::string text;
  // The client is cut off in the middle.
  Ask(request, [&](grpc::ClientContext& context, const v1::GenerateResponse& message) {
    if (tokens.size() >= 10) return context.TryCancel();
    text += message.delta().text();
    for (const int32_t id : message.delta().token_ids()) tokens.push_back(id);
  });
  ASSERT_GE(tokens.size(), 10u);
  const Answer whole = Ask(request);
  request.mutable_resume_tokens()->Add(tokens.begin(), tokens.end());
  const Answer rest = Ask(request);
  ASSERT_TRUE(rest.status.ok()) << rest.status.error_message();
  tokens.insert(tokens.end(), rest.token_ids.at(0).begin(), rest.token_ids.at(0).end());
  EXPECT_EQ(tokens, whole.token_ids.at(0));
  EXPECT_EQ(text + rest.text.at(0), whole.text.at(0));
  EXPECT_EQ(rest.finished.at(0).usage().output_tokens(), 40);
}

TEST_F(FleetTest, WorkersThatLieAreNotServed) {
  struct Case {
    const char* what;
    std::function<void(ScriptedWorkerOptions&)> change;
  };
  const Case cases[] = {
      {"another protocol",
       [](auto& o) { o.tamper_hello = [](auto* h) { h->set_protocol_major(9); }; }},
      {"a vocabulary smaller than the tokenizer",
       [](auto& o) {
         o.tamper_hello = [](auto* h) {
           h->set_vocab_size(10);
           h->clear_end_ids();
         };
       }},
      {"another tokenizer than it names",
       [](auto& o) {
         o.tamper_hello = [](auto* h) { h->set_tokenizer_fingerprint(std::string(32, 'f')); };
       }},
      {"a tokenizer with a flipped byte",
       [](auto& o) { o.tamper_tokenizer = [](std::string* bytes) { bytes->at(100) ^= 1; }; }},
      {"a tokenizer that ends early",
       [](auto& o) { o.tamper_tokenizer = [](std::string* bytes) { bytes->resize(2000); }; }},
      {"a tokenizer longer than it says",
       [](auto& o) { o.tamper_tokenizer = [](std::string* bytes) { bytes->resize(20'000); }; }},
  };
  for (const Case& c : cases) {
    ScriptedWorkerOptions options;
    c.change(options);
    ScriptedWorker worker(options);
    worker.Start();
    options_.workers = {worker.address()};
    StartServer();
    ASSERT_TRUE(Eventually([&] { return worker.totals().streams >= 2; })) << c.what;
    EXPECT_FALSE(server_->serving()) << c.what;
    // Once it tells the truth it is served.
    worker.SetOptions({});
    EXPECT_TRUE(Eventually([&] { return server_->serving(); })) << c.what;
    stub_.reset();
    channel_.reset();
    server_.reset();
  }
}

TEST_F(FleetTest, EventsThatNoPeerOfThisVersionSendsEndTheStream) {
  ScriptedWorker& worker = AddWorker(Paced());
  Serve();
  decode::v1::Event never_given;
  never_given.mutable_closed()->set_handle(1'000'000);
  decode::v1::Event second_hello;
  second_hello.mutable_hello()->set_model("x");
  int64_t streams = 1;
  for (const decode::v1::Event& event : {decode::v1::Event(), never_given, second_hello}) {
    worker.Inject(event);
    ++streams;
    ASSERT_TRUE(Eventually([&] { return worker.totals().streams >= streams; }));
    ASSERT_TRUE(Eventually([&] { return Ask(Prompt("x", 3)).status.ok(); }));
    streams = worker.totals().streams;
  }
}

TEST_F(FleetTest, B151_DrainingLetsWhatRunsEndAndRefusesNewRequests) {
  AddWorker(Paced());
  Serve();
  auto running = std::async(std::launch::async, [this] { return Ask(Prompt("go", 100)); });
  ASSERT_TRUE(Eventually([this] { return workers_[0]->totals().extends > 2; }));
  auto drained = std::async(std::launch::async, [this] { server_->Drain(seconds(30)); });
  ASSERT_TRUE(Eventually([&] { return Health() == HealthCheckResponse::NOT_SERVING; }));
  EXPECT_EQ(Ask(Prompt("x", 1)).status.error_code(), StatusCode::UNAVAILABLE);
  const Answer answer = running.get();
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.token_ids.at(0).size(), 100u);
  drained.get();
}

TEST_F(FleetTest, DrainingCancelsWhatRunsTooLong) {
  AddWorker(Paced());
  Serve();
  std::future<Answer> running = AskForLong();
  server_->Drain(milliseconds(100));
  const Answer answer = running.get();
  EXPECT_EQ(answer.status.error_code(), StatusCode::UNAVAILABLE);
  ASSERT_EQ(answer.finished.count(0), 1u);
  EXPECT_EQ(answer.finished.at(0).reason(), v1::FINISH_REASON_CANCELLED);
  EXPECT_TRUE(Eventually([&] { return LiveSessions() == 0; }));
}

TEST_F(FleetTest, AServerThatGoesAwayEndsWhatRuns) {
  AddWorker(Paced());
  Serve();
  std::future<Answer> running = AskForLong();
  server_.reset();
  EXPECT_FALSE(running.get().status.ok());
}

}  // namespace
}  // namespace tandem::text
