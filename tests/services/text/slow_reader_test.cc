// Clients that do not read what they asked for: their sessions are paused, hold little, and are
// closed at the worker after a while; nobody else notices.
#include <grpc/grpc.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/services/text/service_fixture.h"

namespace tandem::text {
namespace {

using grpc::StatusCode;
using std::chrono::milliseconds;

class SlowReaderTest : public ServiceTest {
 protected:
  // Answers at once, with room for a long output.
  static test::ScriptedWorkerOptions Long() {
    test::ScriptedWorkerOptions options;
    options.decoder.context_length = 100'000;
    return options;
  }
  // Logprobs make messages large, so that a small window fills soon.
  static v1::GenerateRequest BigPrompt(const std::string& prompt, int32_t max_tokens) {
    v1::GenerateRequest request = Prompt(prompt, max_tokens);
    request.mutable_response()->set_logprobs(20);
    return request;
  }
  // A client that buffers 64 KiB of what it does not read, instead of megabytes.
  std::unique_ptr<v1::Generation::Stub> StubWithSmallWindow() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 64 << 10);
    return v1::Generation::NewStub(grpc::CreateCustomChannel(
        server_->address(), grpc::InsecureChannelCredentials(), arguments));
  }
  // Until the worker gets no more extends; says how many it got.
  int64_t WaitUntilPaused() {
    int64_t extends = -1;
    EXPECT_TRUE(Eventually([&] {
      const int64_t now = workers_[0]->totals().extends;
      std::this_thread::sleep_for(milliseconds(200));
      return std::exchange(extends, now) == now && now > 0;
    }));
    return extends;
  }
};

TEST_F(SlowReaderTest, ASlowReaderHoldsUpNobodyAndLosesNothing) {
  AddWorker(Long());
  Serve();
  const v1::GenerateRequest big = BigPrompt("slow", 4000);
  grpc::ClientContext context;
  const auto slow_stub = StubWithSmallWindow();
  const auto reader = slow_stub->Generate(&context, big);
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  EXPECT_LT(WaitUntilPaused(), 2000);
  const Answer other = Ask(Prompt("quick", 50));
  EXPECT_TRUE(other.status.ok());
  EXPECT_EQ(other.token_ids.at(0).size(), 50u);
  EXPECT_TRUE(Eventually([this] { return LiveSessions() == 0; })) << "its place serves others";
  Answer answer;
  do {
    Note(message, &answer);
  } while (reader->Read(&message));
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(answer.token_ids.at(0).size(), 4000u);
  EXPECT_EQ(answer, Ask(Prompt("slow", 4000)));
  EXPECT_GE(answer.finished.at(0).counters().reopened(), 1);
  EXPECT_EQ(answer.finished.at(0).reason(), v1::FINISH_REASON_MAX_TOKENS);
  EXPECT_LT(answer.deltas, 3900) << "what waited was joined";
}

TEST_F(SlowReaderTest, APausedReaderCanStillBeCancelled) {
  test::ScriptedWorker& worker = AddWorker(Long());
  Serve();
  const v1::GenerateRequest big = BigPrompt("slow", 90'000);
  grpc::ClientContext context;
  const auto slow_stub = StubWithSmallWindow();
  const auto reader = slow_stub->Generate(&context, big);
  WaitUntilPaused();
  context.TryCancel();
  v1::GenerateResponse message;
  while (reader->Read(&message)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::CANCELLED);
  EXPECT_TRUE(Eventually([&] { return worker.totals().live == 0 && server_->active() == 0; }));
}

TEST_F(SlowReaderTest, HalfOfTheClientsNeverReadAndTheOthersHaveTheirText) {
  constexpr int kClients = 32;       // of each kind
  constexpr int kTokens = 4000;      // that one who never reads asks for
  constexpr int kMostTokens = 1500;  // that may be decided for it: windows, and the outbox
  AddWorker(Long());
  options_.shards = 2;
  Serve();
  struct Unread {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader;
  };
  std::vector<Unread> unread(kClients);
  const auto slow_stub = StubWithSmallWindow();
  for (int i = 0; i < kClients; ++i) {
    unread[i].reader =
        slow_stub->Generate(&unread[i].context, BigPrompt("never " + std::to_string(i), kTokens));
  }
  const auto reader_prompt = [](int i) { return Prompt("reader " + std::to_string(i), 60); };
  std::vector<Answer> answers(kClients);
  std::vector<std::thread> readers;
  for (int i = 0; i < kClients; ++i) {
    readers.emplace_back([&, i] { answers[i] = Ask(reader_prompt(i)); });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_LT(WaitUntilPaused(), kClients * (kMostTokens + 60));
  EXPECT_TRUE(Eventually([this] { return LiveSessions() == 0; })) << "their places serve others";
  EXPECT_EQ(server_->active(), kClients) << "they may still read";
  for (int i = 0; i < kClients; ++i) {
    EXPECT_TRUE(answers[i].status.ok()) << answers[i].status.error_message();
    EXPECT_EQ(answers[i].token_ids.at(0).size(), 60u);
    EXPECT_EQ(answers[i], Ask(reader_prompt(i))) << i;
    EXPECT_EQ(answers[i].finished.at(0).counters().reopened(), 0);
  }
  for (Unread& each : unread) each.context.TryCancel();
  for (Unread& each : unread) {
    EXPECT_EQ(each.reader->Finish().error_code(), StatusCode::CANCELLED);
  }
  EXPECT_TRUE(Eventually([this] { return server_->active() == 0; }));
}

}  // namespace
}  // namespace tandem::text
