// Completions over HTTP: streams, whole answers, several prompts, errors before and after the
// headers, cancel, deadlines.
#include <gmock/gmock.h>

#include "tests/services/text/http/http_fixture.h"

namespace tandem::text {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

TEST_F(HttpTest, B001_AStreamAWholeAnswerAndGrpcGiveTheSameText) {
  AddWorker();
  Serve();
  const Answer expected = Ask(Prompt("hello", 40));
  const RawResponse whole = Post("/v1/completions", Body("hello", 40));
  EXPECT_EQ(whole.status, 200);
  EXPECT_EQ(whole.Header("content-type"), "application/json");
  const Json json = ParseJson(whole.body);
  EXPECT_EQ(json["choices"][0]["text"], expected.text.at(0));
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(json["usage"]["completion_tokens"], 40);
  const RawResponse streamed = Post("/v1/completions", Body("hello", 40, true));
  EXPECT_EQ(streamed.status, 200);
  EXPECT_EQ(streamed.Header("content-type"), "text/event-stream");
  EXPECT_EQ(streamed.Header("cache-control"), "no-cache");
  EXPECT_EQ(streamed.Header("x-accel-buffering"), "no");
  const Events events = ParseEvents(streamed.body);
  EXPECT_EQ(events.text.at(0), expected.text.at(0));
  EXPECT_EQ(events.reasons.at(0), "length");
  EXPECT_TRUE(events.done);
  EXPECT_TRUE(EverythingIsFree());
}

TEST_F(HttpTest, AChatIsAnswered) {
  AddWorker();
  Serve();
  Json body = {{"messages", {{{"role", "user"}, {"content", "hello"}}}}, {"max_tokens", 5}};
  const Json json = ParseJson(Post("/v1/chat/completions", body).body);
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["choices"][0]["message"]["role"], "assistant");
}

TEST_F(HttpTest, EachOfManyPromptsHasWhatItHasAlone) {
  AddWorker();
  AddWorker();
  options_.shards = 2;
  Serve();
  Json prompts = Json::array();
  std::map<int, std::string> expected;
  for (int p = 0; p < 12; ++p) {
    const std::string prompt = "prompt number " + std::to_string(p);
    prompts.push_back(prompt);
    const Answer alone = Ask(Prompt(prompt, 30));
    expected[2 * p] = expected[2 * p + 1] = alone.text.at(0);  // greedy: both choices are alike
  }
  Json body = Body(prompts, 30, true);
  body["n"] = 2;
  const Events events = ParseEvents(Post("/v1/completions", body).body);
  EXPECT_EQ(events.text, expected);
  EXPECT_EQ(events.reasons.size(), 24u);
  EXPECT_TRUE(events.done);
  body["stream"] = false;
  const Json whole = ParseJson(Post("/v1/completions", body).body);
  ASSERT_EQ(whole["choices"].size(), 24u);
  for (int c = 0; c < 24; ++c) EXPECT_EQ(whole["choices"][c]["text"], expected[c]);
  EXPECT_TRUE(EverythingIsFree());
}

TEST_F(HttpTest, WhatFailsBeforeTheFirstTokenHasItsStatusAlsoAsAStream) {
  AddWorker();
  Serve();
  for (const bool stream : {false, true}) {
    Json body = Body("x", 5, stream);
    body["model"] = "other";
    EXPECT_EQ(Post("/v1/completions", body).status, 404);
    body = Body("x", 5, stream);
    body["temperature"] = -2;
    const RawResponse bad = Post("/v1/completions", body);
    EXPECT_EQ(bad.status, 400);
    EXPECT_EQ(ParseJson(bad.body)["error"]["param"], "temperature");
    // One prompt of three is too long for the context: none is begun.
    body = Body({"a", std::string(600, 'x'), "b"}, 5, stream);
    const RawResponse one = Post("/v1/completions", body);
    EXPECT_EQ(one.status, 400);
    EXPECT_THAT(one.body, HasSubstr("prompt[1]"));
    EXPECT_EQ(test::Fetch(http(), "POST", "/v1/completions", "{\"prompt\":").status, 400);
  }
  EXPECT_EQ(workers_[0]->totals().opens, 0);
  EXPECT_TRUE(EverythingIsFree());
}

TEST_F(HttpTest, WhatTheWorkerRefusesHasItsStatus) {
  test::ScriptedWorkerOptions options;
  options.decoder.refuse = "no pages";
  AddWorker(options);
  Serve();
  for (const bool stream : {false, true}) {
    const RawResponse refused = Post("/v1/completions", Body({"a", "b"}, 5, stream));
    EXPECT_GE(refused.status, 400);
    EXPECT_EQ(refused.Header("content-type"), "application/json");
    EXPECT_TRUE(ParseJson(refused.body).contains("error")) << refused.body;
  }
  EXPECT_TRUE(EverythingIsFree());
}

TEST_F(HttpTest, WithoutAWorkerItIsUnavailableWithAHint) {
  options_.workers = {"127.0.0.1:1"};
  StartServer();
  const RawResponse refused = Post("/v1/completions", Body("x", 5));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.Header("retry-after"), "1");
}

TEST_F(HttpTest, AnErrorBehindTheHeadersEndsTheStreamAndCancelsTheOthers) {
  test::ScriptedWorker& worker = AddWorker(Paced(milliseconds(5)));
  options_.replay.tries = 0;
  Serve();
  RawClient client(http());
  client.Send(
      test::RequestText("POST", "/v1/completions", Body({"a", "b", "c"}, 90'000, true).dump()));
  client.ReadUntil("\n\n");
  worker.DropStreams();
  const std::string rest = client.ReadUntil("\r\n0\r\n\r\n");
  EXPECT_THAT(rest, AllOf(HasSubstr("\"error\":{"), HasSubstr("worker")));
  EXPECT_EQ(rest.find("\"error\":{"), rest.rfind("\"error\":{")) << "one is enough";
  EXPECT_TRUE(EverythingIsFree());
}

TEST_F(HttpTest, B117_AClientThatLeavesAStreamFreesItsSessionsWithinTwoSteps) {
  test::ScriptedWorker& worker = AddWorker(Paced(milliseconds(400)));
  options_.drafts = 0;
  Serve();
  RawClient client(http());
  client.Send(
      test::RequestText("POST", "/v1/completions", Body({"a", "b", "c"}, 90'000, true).dump()));
  client.ReadUntil("\n\n");
  const int64_t extends = Extends();
  client.Close();
  ASSERT_TRUE(EverythingIsFree());
  EXPECT_LE(Extends() - extends, 3 * 2 * kTokensOfStep);
  EXPECT_EQ(worker.totals().closes, 3);
}

TEST_F(HttpTest, B117_AClientThatLeavesAWholeAnswerFreesItsSessions) {
  test::ScriptedWorker& worker = AddWorker(Paced(milliseconds(5)));
  Serve();
  for (const bool reset : {false, true}) {
    RawClient client(http());
    client.Send(test::RequestText("POST", "/v1/completions", Body({"a", "b"}, 90'000).dump()));
    ASSERT_TRUE(Eventually([&] { return worker.totals().live == 2; }));
    reset ? client.Reset() : client.Close();
    ASSERT_TRUE(EverythingIsFree());
  }
  EXPECT_EQ(worker.totals().closes, 4);
  EXPECT_LT(worker.totals().extends, 10'000) << "they did not run to the end";
}

// Clients come and go at all points of others' answers: nobody has a byte of anyone else's.
TEST_F(HttpTest, B115_ClientsThatLeaveChangeNoOthersAnswer) {
  constexpr int kClients = 24;
  constexpr int kRounds = 4;
  AddWorker();
  options_.shards = 2;
  Serve();
  const auto prompt = [](int i) { return "canary " + std::to_string(i * 37); };
  std::vector<std::string> expected;
  for (int i = 0; i < kClients; ++i) expected.push_back(Ask(Prompt(prompt(i), 40)).text.at(0));
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&, i] {
      for (int round = 0; round < kRounds; ++round) {
        RawClient client(http());
        const bool stream = (i + round) % 3 != 0;
        client.Send(
            test::RequestText("POST", "/v1/completions", Body(prompt(i), 40, stream).dump()));
        if (i % 2 == 0) {
          for (int event = 0; stream && event < i / 2 + round; ++event) {
            if (client.ReadUntil("\n\n").find("[DONE]") != std::string::npos) break;
          }
          (i + round) % 4 == 0 ? client.Reset() : client.Close();
          continue;
        }
        const std::string body = client.Read().body;
        EXPECT_EQ(stream ? ParseEvents(body).text[0]
                         : ParseJson(body)["choices"][0]["text"].get<std::string>(),
                  expected[i]);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(EverythingIsFree());
}

TEST_F(HttpTest, AClientThatLeavesBeforeTheFirstTokenFreesItsSession) {
  test::ScriptedWorker& worker = AddWorker(Paced(std::chrono::seconds(3600)));
  Serve();
  RawClient client(http());
  client.Send(StreamText("go", 5));
  ASSERT_TRUE(Eventually([&] { return worker.totals().live == 1; }));
  client.Close();
  EXPECT_TRUE(EverythingIsFree());
}

TEST_F(HttpTest, AFinishedConnectionServesTheNextCompletion) {
  AddWorker();
  Serve();
  const std::string expected = Ask(Prompt("hello", 10)).text.at(0);
  RawClient client(http());
  for (int i = 0; i < 3; ++i) {
    client.Send(StreamText("hello", 10));
    EXPECT_EQ(ParseEvents(client.Read().body).text.at(0), expected);
  }
}

TEST_F(HttpTest, B147_ADeadlineBeforeTheFirstByteIsATimeout) {
  AddWorker(Paced(std::chrono::seconds(3600)));
  Serve();
  for (const bool stream : {false, true}) {
    const RawResponse late =
        Post("/v1/completions", Body("x", 5, stream), "X-Request-Timeout: 0.2\r\n");
    EXPECT_EQ(late.status, 504);
    EXPECT_TRUE(ParseJson(late.body).contains("error"));
  }
  EXPECT_TRUE(EverythingIsFree());
}

TEST_F(HttpTest, ADeadlineBehindTheFirstByteIsAFinishReason) {
  AddWorker(Paced(milliseconds(10)));
  Serve();
  const RawResponse response =
      Post("/v1/completions", Body("x", 90'000, true), "X-Request-Timeout: 1.0\r\n");
  ASSERT_EQ(response.status, 200);
  EXPECT_THAT(response.body, HasSubstr("\"finish_reason\":\"deadline\""));
  const Events events = ParseEvents(response.body);
  EXPECT_EQ(events.reasons.at(0), "length");
  EXPECT_TRUE(events.done);
  EXPECT_TRUE(EverythingIsFree());
}

TEST_F(HttpTest, B125_MoreThanTheLimitIsRefusedAtOnce) {
  test::ScriptedWorker& worker = AddWorker(Paced(milliseconds(5)));
  options_.max_requests = 3;
  Serve();
  // Four prompts are four requests.
  const RawResponse four = Post("/v1/completions", Body({"a", "b", "c", "d"}, 5));
  EXPECT_EQ(four.status, 429);
  EXPECT_EQ(four.Header("retry-after"), "1");
  RawClient client(http());
  client.Send(
      test::RequestText("POST", "/v1/completions", Body({"a", "b", "c"}, 90'000, true).dump()));
  ASSERT_TRUE(Eventually([&] { return worker.totals().live == 3; }));
  const RawResponse refused = Post("/v1/completions", Body("x", 5));
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(refused.body, HasSubstr("at most 3"));
  EXPECT_EQ(Ask(Prompt("x", 5)).status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  client.Close();
  ASSERT_TRUE(EverythingIsFree());
  EXPECT_EQ(Post("/v1/completions", Body("x", 5)).status, 200);
}

TEST_F(HttpTest, ADrainLetsStreamsEndAndRefusesMore) {
  AddWorker(Paced(milliseconds(10)));
  Serve();
  RawClient client(http());
  client.Send(StreamText("go", 60));
  client.ReadUntil("\n\n");
  std::thread drain([this] { server_->Drain(std::chrono::seconds(60)); });
  EXPECT_TRUE(Eventually([this] { return Get("/health").status == 503; }));
  EXPECT_EQ(Post("/v1/completions", Body("x", 5)).status, 503);
  EXPECT_THAT(client.ReadUntil("\r\n0\r\n\r\n"), HasSubstr("data: [DONE]"));
  client.Close();
  drain.join();
  EXPECT_FALSE(RawClient(http()).connected());
}

TEST_F(HttpTest, ADrainCutsWhatDoesNotEndWithAnErrorEvent) {
  AddWorker(Paced(milliseconds(10)));
  Serve();
  RawClient client(http());
  client.Send(StreamText("go", 90'000));
  client.ReadUntil("\n\n");
  std::thread drain([this] { server_->Drain(milliseconds(50)); });
  EXPECT_THAT(client.ReadUntil("\r\n0\r\n\r\n"), HasSubstr("the server is shutting down"));
  client.Close();
  drain.join();
}

}  // namespace
}  // namespace tandem::text
