// A prompt in, text out, through both programs on the default model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <random>
#include <thread>

#include "tests/e2e/fleet.h"

namespace tandem::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TwoTiers : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (const auto model = DefaultModel()) {
      fleet_ =
          new Fleet({*model, {"--max-sessions", "40", "--context", "4096"}, {"--shards", "2"}});
    }
  }
  static void TearDownTestSuite() {
    delete fleet_;
    fleet_ = nullptr;
  }
  void SetUp() override {
    if (fleet_ == nullptr) GTEST_SKIP() << "TANDEM_TEST_MODEL is not set";
  }
  static v1::GenerateRequest Chat(const std::string& question, int32_t max_tokens) {
    v1::GenerateRequest request;
    v1::Message& message = *request.mutable_chat()->add_messages();
    message.set_role("user");
    message.set_content(question);
    request.set_max_tokens(max_tokens);
    request.mutable_response()->set_token_ids(true);
    request.mutable_sampling()->set_temperature(0.0f);
    return request;
  }
  static Fleet* fleet_;
};
Fleet* TwoTiers::fleet_ = nullptr;

// Mixed prompts, seeds and parameters, made from a fixed seed.
std::vector<v1::GenerateRequest> MixedRequests(int count) {
  std::mt19937 random(7);
  const auto uniform = [&random](float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(random);
  };
  const std::vector<std::string> texts = {"The history of the bicycle begins",
                                          "def fibonacci(n):\n    ",
                                          "从前有一座山，山里有一座庙，",
                                          "Dear Sir or Madam,\n\n",
                                          "1, 1, 2, 3, 5, 8, 13,",
                                          "🙂🙃 means that",
                                          "To make bread you need"};
  std::vector<v1::GenerateRequest> requests;
  for (int i = 0; i < count; ++i) {
    v1::GenerateRequest request;
    std::string prompt = texts[i % texts.size()];
    for (int repeat = random() % 12; repeat > 0; --repeat)
      prompt += " " + texts[random() % texts.size()];
    request.set_prompt(prompt);
    request.set_max_tokens(8 + random() % 17);
    v1::Sampling& sampling = *request.mutable_sampling();
    sampling.set_seed(random());
    sampling.set_temperature(i % 4 == 0 ? 0.0f : uniform(0.3f, 1.6f));
    if (i % 3 == 1) sampling.set_top_k(1 + random() % 200);
    if (i % 3 != 0) sampling.set_top_p(uniform(0.5f, 1.0f));
    if (i % 5 == 2) sampling.set_min_p(uniform(0.0f, 0.1f));
    if (i % 4 == 1) sampling.set_repetition_penalty(uniform(1.0f, 1.3f));
    if (i % 4 == 3) sampling.set_presence_penalty(uniform(0.0f, 1.0f));
    if (i % 6 == 5) sampling.set_frequency_penalty(uniform(0.0f, 1.0f));
    if (i % 6 == 5) sampling.set_frequency_window(1 + random() % 20);
    if (i % 7 == 3) (*sampling.mutable_logit_bias())[random() % 49152] = uniform(-5.0f, 5.0f);
    if (i % 8 == 4) sampling.set_n(2);
    request.mutable_stopping()->set_ignore_eos(i % 2 == 0);
    request.mutable_response()->set_token_ids(true);
    requests.push_back(request);
  }
  return requests;
}

TEST_F(TwoTiers, AnswerTheFirstQuestionWithTheOraclesTokens) {
  const CallResult result = fleet_->Generate(Chat("What is the capital of France?", 32));
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_EQ(result.started.prompt_tokens(), 37);
  ASSERT_EQ(result.texts.size(), 1u);
  EXPECT_EQ(result.texts[0], "The capital of France is Paris.");
  EXPECT_THAT(result.token_ids[0], ElementsAre(504, 3575, 282, 4649, 314, 7042, 30, 2));
  ASSERT_EQ(result.finished.size(), 1u);
  EXPECT_EQ(result.finished[0].reason(), v1::FINISH_REASON_END_OF_TEXT);
  EXPECT_EQ(result.finished[0].usage().output_tokens(), 8);
}

TEST_F(TwoTiers, GiveThirtyTwoRequestsTogetherTheTokensThatEachGivesAlone) {
  const std::vector<v1::GenerateRequest> requests = MixedRequests(32);
  std::vector<CallResult> alone;
  for (const v1::GenerateRequest& request : requests) alone.push_back(fleet_->Generate(request));
  std::vector<CallResult> together(requests.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < requests.size(); ++i) {
    threads.emplace_back([&, i] { together[i] = fleet_->Generate(requests[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(requests[i].ShortDebugString());
    ASSERT_TRUE(alone[i].status.ok()) << alone[i].status.error_message();
    ASSERT_TRUE(together[i].status.ok()) << together[i].status.error_message();
    EXPECT_EQ(alone[i].token_ids, together[i].token_ids);
    EXPECT_EQ(alone[i].texts, together[i].texts);
    for (const v1::Finished& finished : together[i].finished) {
      EXPECT_EQ(finished.counters().misses(), 0)
          << "the worker drew another token than the text tier decided";
      EXPECT_EQ(finished.counters().faults(), 0);
      EXPECT_GT(finished.usage().output_tokens(), 0);
    }
  }
}

// 24 requests at once with some 300 tokens in common, and a few of their own.
TEST_F(TwoTiers, GiveTheSameTokensWithAndWithoutThePrefixCache) {
  std::string common;
  for (int i = 0; i < 30; ++i) common += "Rule " + std::to_string(i) + ": be brief and exact. ";
  std::vector<v1::GenerateRequest> requests;
  for (int i = 0; i < 24; ++i) {
    v1::GenerateRequest request;
    request.set_prompt(common + "Question " + std::to_string(i) + " is about");
    request.set_max_tokens(8);
    request.mutable_sampling()->set_seed(i);
    request.mutable_sampling()->set_temperature(i % 2 == 0 ? 0.0f : 0.9f);
    request.mutable_stopping()->set_ignore_eos(true);
    request.mutable_response()->set_token_ids(true);
    requests.push_back(std::move(request));
  }
  struct Wave {
    std::vector<CallResult> results;
    int64_t prompt_tokens = 0;
    int64_t cached_tokens = 0;     // as the clients were told
    int64_t prefilled_tokens = 0;  // as the worker counts
  };
  const auto run = [&](bool bypass) {
    Wave wave;
    wave.results.resize(requests.size());
    const int64_t before = fleet_->WorkerLoad().value().prefilled_tokens();
    std::vector<std::thread> threads;
    for (size_t i = 0; i < requests.size(); ++i) {
      threads.emplace_back([&, i] {
        v1::GenerateRequest request = requests[i];
        request.mutable_cache()->set_bypass(bypass);
        wave.results[i] = fleet_->Generate(request);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const CallResult& result : wave.results) {
      EXPECT_TRUE(result.status.ok()) << result.status.error_message();
      wave.prompt_tokens += result.started.prompt_tokens();
      for (const v1::Finished& finished : result.finished) {
        wave.cached_tokens += finished.usage().cached_tokens();
      }
    }
    EXPECT_TRUE(fleet_->WorkerIsFreeSoon());
    wave.prefilled_tokens = fleet_->WorkerLoad().value().prefilled_tokens() - before;
    return wave;
  };
  const Wave without = run(true);
  const Wave first = run(false);
  const Wave second = run(false);
  const int64_t shared = without.results[0].started.prompt_tokens() / 64 * 64;
  ASSERT_GE(shared, 256);
  EXPECT_EQ(without.cached_tokens, 0);
  EXPECT_EQ(without.prefilled_tokens, without.prompt_tokens);
  EXPECT_EQ(first.prefilled_tokens + first.cached_tokens, first.prompt_tokens);
  EXPECT_LT(first.prefilled_tokens, without.prefilled_tokens / 2)
      << "what one computes, those that wait behind it find";
  EXPECT_EQ(second.prefilled_tokens + second.cached_tokens, second.prompt_tokens);
  EXPECT_GE(second.cached_tokens, 24 * 256);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(first.results[i].token_ids, without.results[i].token_ids) << "request " << i;
    EXPECT_EQ(second.results[i].token_ids, without.results[i].token_ids) << "request " << i;
  }
}

TEST_F(TwoTiers, StopAtAStopStringAndFreeTheWorker) {
  v1::GenerateRequest request = Chat("Count from one to twenty in words.", 200);
  request.mutable_stopping()->add_stop_strings("ten");
  request.mutable_stopping()->add_stop_strings(", f");
  const CallResult result = fleet_->Generate(request);
  ASSERT_TRUE(result.status.ok());
  ASSERT_EQ(result.finished.size(), 1u);
  EXPECT_EQ(result.finished[0].reason(), v1::FINISH_REASON_STOP_STRING);
  EXPECT_THAT(result.texts[0], ::testing::Not(HasSubstr(result.finished[0].stop())));
  EXPECT_TRUE(fleet_->WorkerIsFreeSoon());
}

TEST_F(TwoTiers, B117_CancellingACallFreesItsSessionOnTheWorker) {
  v1::GenerateRequest request = Chat("Tell me a very long story.", 2000);
  request.mutable_stopping()->set_ignore_eos(true);
  {
    grpc::ClientContext context;
    const auto reader = fleet_->stub().Generate(&context, request);
    v1::GenerateResponse response;
    while (reader->Read(&response) && !response.has_delta()) {
    }
    EXPECT_EQ(fleet_->WorkerSessions(), 1);
    context.TryCancel();
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(fleet_->WorkerIsFreeSoon());
}

TEST_F(TwoTiers, EndWithDeadlineWhereTheTimeRunsOut) {
  v1::GenerateRequest request = Chat("Tell me a very long story.", 3000);
  request.mutable_stopping()->set_ignore_eos(true);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(700));
  const auto reader = fleet_->stub().Generate(&context, request);
  v1::GenerateResponse response;
  bool any = false;
  while (reader->Read(&response)) any = any || response.has_delta();
  EXPECT_TRUE(any);
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok() || status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED)
      << status.error_message();
  EXPECT_TRUE(fleet_->WorkerIsFreeSoon());
}

// Last in this file's order: it takes the worker away.
TEST_F(TwoTiers, GoOnWithAStreamWhoseOnlyWorkerDiedWhenItIsBack) {
  v1::GenerateRequest request = Chat("Tell me a very long story.", 48);
  request.mutable_stopping()->set_ignore_eos(true);
  const CallResult undisturbed = fleet_->Generate(request);
  ASSERT_TRUE(undisturbed.status.ok()) << undisturbed.status.error_message();
  grpc::ClientContext context;
  const auto reader = fleet_->stub().Generate(&context, request);
  v1::GenerateResponse response;
  v1::Finished finished;
  std::string text;
  while (reader->Read(&response)) {
    const bool first = text.empty() && !response.delta().text().empty();
    text += response.delta().text();
    if (response.has_finished()) finished = response.finished();
    if (!first) continue;
    fleet_->KillWorker();
    fleet_->RestartWorker();
  }
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(text, undisturbed.texts.at(0));
  EXPECT_EQ(finished.counters().reopened(), 1);
  EXPECT_EQ(finished.counters().approximate(), 0);
}

TEST_F(TwoTiers, TellTheClientOfADeadWorkerWithinFiveSecondsWhereNothingIsOpenedAgain) {
  Fleet fleet({*DefaultModel(), {"--context", "4096"}, {"--replay-tries", "0"}});
  v1::GenerateRequest request = Chat("Tell me a very long story.", 3000);
  request.mutable_stopping()->set_ignore_eos(true);
  grpc::ClientContext context;
  const auto reader = fleet.stub().Generate(&context, request);
  v1::GenerateResponse response;
  while (reader->Read(&response) && !response.has_delta()) {
  }
  fleet.KillWorker();
  const auto killed = std::chrono::steady_clock::now();
  v1::Finished finished;
  while (reader->Read(&response)) {
    if (response.has_finished()) finished = response.finished();
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds(5));
  EXPECT_EQ(finished.reason(), v1::FINISH_REASON_ERROR);
  fleet.RestartWorker();
  const CallResult again = fleet.Generate(Chat("What is the capital of France?", 32));
  ASSERT_TRUE(again.status.ok()) << again.status.error_message();
  EXPECT_EQ(again.texts[0], "The capital of France is Paris.");
}

}  // namespace
}  // namespace tandem::test
