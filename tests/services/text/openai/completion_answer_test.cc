// Answers: the JSON that clients get.
#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "services/text/openai/completions.h"
#include "tests/services/text/openai/answer_fixture.h"
#include "tests/support/allocation_counter.h"

namespace tandem::text {
namespace {

using nlohmann::json;

constexpr char kExtras[] =
    R"({"finish_reason":"REASON","stop":null,"stop_token_id":null,"request_id":"r1","seed":"18446744073709551615",
    "counters":{"from_lists":3,"fetched":0,"misses":0,"faults":0,"rewound":0,"reopened":0,
    "approximate":0},"timings_ms":{"queue":0.0,"prefill":0.0,"decode":1.5}})";

json Extras(const std::string& reason) {
  json extras = json::parse(kExtras);
  extras["finish_reason"] = reason;
  return extras;
}

TEST(CompletionAnswer, B021_ACompletionIsOpenAisAndSaysWhichStopEndedIt) {
  v1::GenerateResponse end = Finished(0, v1::FINISH_REASON_STOP_STRING);
  end.mutable_finished()->set_stop("\n\n");
  const json answer = json::parse(
      Answer(Call(Endpoint::kCompletions),
             {{0, Started()}, {0, Text(0, "a \"b\"")}, {0, Text(0, "\n\xC3\xA9")}, {0, end}}));
  json expected = json::parse(R"({"id":"cmpl-abc","object":"text_completion","created":1700000000,
      "model":"tiny \"m\"","system_fingerprint":"f00d",
      "choices":[{"index":0,"text":"a \"b\"\n\u00e9","logprobs":null,"finish_reason":"stop",
        "stop_reason":"\n\n"}],
      "usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8,
        "prompt_tokens_details":{"cached_tokens":2}}})");
  expected["choices"][0]["tandem"] = Extras("stop_string");
  expected["choices"][0]["tandem"]["stop"] = "\n\n";
  EXPECT_EQ(answer, expected);
}

TEST(CompletionAnswer, AChatIsOpenAis) {
  const json answer = json::parse(
      Answer(Call(Endpoint::kChatCompletions),
             {{0, Started()}, {0, Text(0, "hi")}, {0, Finished(0, v1::FINISH_REASON_MAX_TOKENS)}}));
  json expected = json::parse(R"({"id":"chatcmpl-abc","object":"chat.completion",
      "created":1700000000,"model":"tiny \"m\"","system_fingerprint":"f00d",
      "choices":[{"index":0,"message":{"role":"assistant","content":"hi","refusal":null},
        "logprobs":null,"finish_reason":"length","stop_reason":null}],
      "usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8,
        "prompt_tokens_details":{"cached_tokens":2}}})");
  expected["choices"][0]["tandem"] = Extras("max_tokens");
  EXPECT_EQ(answer, expected);
}

TEST(CompletionAnswer, AChatStreamBeginsWithTheRoleAndEndsWithTheUsage) {
  CompletionCall call = Call(Endpoint::kChatCompletions);
  call.stream = call.include_usage = true;
  v1::GenerateResponse end = Finished(0, v1::FINISH_REASON_STOP_TOKEN);
  end.mutable_finished()->set_stop_token_id(7);
  const std::vector<json> events =
      Events(Answer(call, {{0, Started()}, {0, Text(0, "hi")}, {0, end}}));
  ASSERT_EQ(events.size(), 4u);
  for (const json& event : events) {
    EXPECT_EQ(event["object"], "chat.completion.chunk");
    EXPECT_EQ(event["id"], "chatcmpl-abc");
    ASSERT_TRUE(event.contains("usage"));
  }
  EXPECT_EQ(events[0]["choices"],
            json::parse(R"([{"index":0,"delta":{"role":"assistant","content":""},
                             "logprobs":null,"finish_reason":null,
                             "tandem":{"request_id":"r1","seed":"18446744073709551615"}}])"));
  EXPECT_EQ(events[1]["choices"], json::parse(R"([{"index":0,"delta":{"content":"hi"},
                                                   "logprobs":null,"finish_reason":null}])"));
  EXPECT_EQ(events[1]["usage"], nullptr);
  EXPECT_EQ(events[2]["choices"][0]["delta"], json::object());
  EXPECT_EQ(events[2]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(events[2]["choices"][0]["stop_reason"], 7);
  json extras = Extras("stop_token");
  extras["stop_token_id"] = 7;
  EXPECT_EQ(events[2]["choices"][0]["tandem"], extras);
  EXPECT_EQ(events[3]["choices"], json::array());
  EXPECT_EQ(events[3]["usage"]["total_tokens"], 8);
}

TEST(CompletionAnswer, TokenDetailsStandBesideTheTokensOfAChunkAndOfAWholeAnswer) {
  CompletionCall call = Call(Endpoint::kChatCompletions);
  call.shape.token_details = true;
  v1::GenerateResponse first = Text(0, "a"), second = Text(0, "b");
  v1::TokenDetail* const detail = first.mutable_delta()->add_token_details();
  detail->set_ahead(true);
  detail->set_worker(1);
  detail->set_microseconds(1234);
  detail->set_probability(0.25f);
  second.mutable_delta()->add_token_details()->set_fetched(true);
  const Messages messages = {
      {0, Started()}, {0, first}, {0, second}, {0, Finished(0, v1::FINISH_REASON_MAX_TOKENS)}};
  const json details = json::parse(
      R"([{"decided":"lists","ahead":true,"worker":1,"us":1234,"probability":0.25},
          {"decided":"fetched","ahead":false,"worker":0,"us":0}])");
  json extras = Extras("max_tokens");
  extras["tokens"] = details;
  EXPECT_EQ(json::parse(Answer(call, messages))["choices"][0]["tandem"], extras);
  call.stream = true;
  const std::vector<json> events = Events(Answer(call, messages));
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[1]["choices"][0]["tandem"], json({{"tokens", {details[0]}}}));
  EXPECT_EQ(events[2]["choices"][0]["tandem"], json({{"tokens", {details[1]}}}));
  EXPECT_EQ(events[3]["choices"][0]["tandem"], Extras("max_tokens"));
}

TEST(CompletionAnswer, WithoutIncludeUsageNoChunkHasIt) {
  CompletionCall call = Call(Endpoint::kCompletions);
  call.stream = true;
  const std::vector<json> events = Events(
      Answer(call, {{0, Started()}, {0, Text(0, "x")}, {0, Finished(0, v1::FINISH_REASON_ERROR)}}));
  ASSERT_EQ(events.size(), 2u);
  for (const json& event : events) EXPECT_FALSE(event.contains("usage"));
  EXPECT_EQ(events[0]["choices"][0],
            json::parse(R"({"index":0,"text":"x","logprobs":null,"finish_reason":null,
                             "tandem":{"request_id":"r1","seed":"18446744073709551615"}})"));
}

TEST(CompletionAnswer, EveryFinishReasonHasOneOfOpenAisOrAbort) {
  const std::map<v1::FinishReason, std::pair<const char*, const char*>> expected = {
      {v1::FINISH_REASON_STOP_STRING, {"stop", "stop_string"}},
      {v1::FINISH_REASON_STOP_TOKEN, {"stop", "stop_token"}},
      {v1::FINISH_REASON_END_OF_TEXT, {"stop", "end_of_text"}},
      {v1::FINISH_REASON_MAX_TOKENS, {"length", "max_tokens"}},
      {v1::FINISH_REASON_CONTEXT_FULL, {"length", "context_full"}},
      {v1::FINISH_REASON_DEADLINE, {"length", "deadline"}},
      {v1::FINISH_REASON_CANCELLED, {"abort", "cancelled"}},
      {v1::FINISH_REASON_ERROR, {"abort", "error"}}};
  for (int value = 1; value < v1::FinishReason_ARRAYSIZE; ++value) {
    const auto reason = static_cast<v1::FinishReason>(value);
    const json choice = json::parse(Answer(
        Call(Endpoint::kCompletions), {{0, Started()}, {0, Finished(0, reason)}}))["choices"][0];
    EXPECT_EQ(choice["finish_reason"], expected.at(reason).first);
    EXPECT_EQ(choice["tandem"]["finish_reason"], expected.at(reason).second);
  }
}

TEST(CompletionAnswer, ManyPromptsHaveTheirChoicesInOrderAndCountOnce) {
  Messages messages;
  for (const int prompt : {1, 0}) {
    messages.emplace_back(prompt, Started(10 + prompt));
    for (const int choice : {1, 0}) {
      messages.emplace_back(prompt, Text(choice, std::to_string(prompt) + std::to_string(choice)));
      messages.emplace_back(
          prompt, Finished(choice, v1::FINISH_REASON_MAX_TOKENS, 10 + prompt, 1 + choice));
    }
  }
  const json answer = json::parse(Answer(Call(Endpoint::kCompletions, 2, 2), messages));
  ASSERT_EQ(answer["choices"].size(), 4u);
  const char* const texts[] = {"00", "01", "10", "11"};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(answer["choices"][i]["index"], i);
    EXPECT_EQ(answer["choices"][i]["text"], texts[i]);
  }
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 21);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 6);
  EXPECT_EQ(answer["usage"]["total_tokens"], 27);
  EXPECT_EQ(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 4);
}

// Two tokens that make one character, and one whose logprob is no number.
v1::GenerateResponse HalfCharacters() {
  v1::GenerateResponse message = Text(0, "\xC3\xA9!");
  const auto add = [&](int id, std::string_view bytes, float logprob) {
    v1::PositionLogprobs& position = *message.mutable_delta()->add_logprobs();
    Fill(position.mutable_chosen(), id, bytes, logprob, 1);
    Fill(position.add_top(), 3, "x", -0.25f, 0);
    Fill(position.add_top(), id, bytes, logprob, 1);
    message.mutable_delta()->add_token_ids(id);
  };
  add(1, "\xC3", -0.5f);
  add(2, "\xA9", -1.5f);
  add(4, "!", -INFINITY);
  return message;
}

TEST(CompletionAnswer, B045_LegacyLogprobsHaveBytesForHalfCharactersAndAFloor) {
  CompletionCall call = Call(Endpoint::kCompletions);
  call.shape.logprobs = call.shape.token_ids = true;
  const json choice =
      json::parse(Answer(call, {{0, Started()},
                                {0, HalfCharacters()},
                                {0, Finished(0, v1::FINISH_REASON_MAX_TOKENS)}}))["choices"][0];
  EXPECT_EQ(choice["logprobs"], json::parse(R"({"tokens":["bytes:\\xc3","bytes:\\xa9","!"],
      "token_logprobs":[-0.5,-1.5,-9999.0],
      "top_logprobs":[{"x":-0.25,"bytes:\\xc3":-0.5},{"x":-0.25,"bytes:\\xa9":-1.5},
                      {"x":-0.25,"!":-9999.0}],
      "text_offset":[0,0,1]})"));
  EXPECT_EQ(choice["token_ids"], json({1, 2, 4}));
}

TEST(CompletionAnswer, ChatLogprobsHaveTheBytesBesideTheText) {
  CompletionCall call = Call(Endpoint::kChatCompletions);
  call.shape.logprobs = true;
  const json content = json::parse(Answer(
      call, {{0, Started()},
             {0, HalfCharacters()},
             {0, Finished(0, v1::FINISH_REASON_MAX_TOKENS)}}))["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 3u);
  EXPECT_EQ(content[0], json::parse(R"({"token":"\ufffd","logprob":-0.5,"bytes":[195],
      "top_logprobs":[{"token":"x","logprob":-0.25,"bytes":[120]},
                      {"token":"\ufffd","logprob":-0.5,"bytes":[195]}]})"));
  EXPECT_EQ(content[2]["logprob"], -9999.0);
}

TEST(CompletionAnswer, TokensMayBeNamedByTheirIds) {
  for (const Endpoint endpoint : {Endpoint::kCompletions, Endpoint::kChatCompletions}) {
    CompletionCall call = Call(endpoint);
    call.shape.logprobs = call.shape.tokens_as_ids = true;
    const json logprobs = json::parse(
        Answer(call, {{0, Started()},
                      {0, HalfCharacters()},
                      {0, Finished(0, v1::FINISH_REASON_MAX_TOKENS)}}))["choices"][0]["logprobs"];
    if (endpoint == Endpoint::kCompletions) {
      EXPECT_EQ(logprobs["tokens"], json({"token_id:1", "token_id:2", "token_id:4"}));
      EXPECT_EQ(logprobs["top_logprobs"][0],
                json::parse(R"({"token_id:3":-0.25,"token_id:1":-0.5})"));
    } else {
      EXPECT_EQ(logprobs["content"][1]["token"], "token_id:2");
    }
  }
}

TEST(CompletionAnswer, TokensThatAreSpeltAlikeAreOneKeyWithTheMoreLikelyValue) {
  CompletionCall call = Call(Endpoint::kCompletions);
  call.shape.logprobs = true;
  v1::GenerateResponse message = Text(0, "a");
  v1::PositionLogprobs& position = *message.mutable_delta()->add_logprobs();
  Fill(position.mutable_chosen(), 9, "a", -3.0f, 7);
  Fill(position.add_top(), 1, "a", -0.5f, 0);
  const std::string answer =
      Answer(call, {{0, Started()}, {0, message}, {0, Finished(0, v1::FINISH_REASON_MAX_TOKENS)}});
  EXPECT_NE(answer.find(R"("top_logprobs":[{"a":-0.5}])"), std::string::npos) << answer;
}

// An echo of a special token and "ab", then "c" with max_tokens.
Messages Echoing() {
  v1::GenerateResponse first = Text(0, "");
  first.mutable_delta()->set_echo(true);
  first.mutable_delta()->add_token_ids(1);
  first.mutable_delta()->add_logprobs();
  v1::GenerateResponse rest = Text(0, "ab");
  rest.mutable_delta()->set_echo(true);
  for (const char* bytes : {"a", "b"}) {
    rest.mutable_delta()->add_token_ids(bytes[0]);
    Fill(rest.mutable_delta()->add_logprobs()->mutable_chosen(), bytes[0], bytes, -1.0f, 3);
  }
  v1::GenerateResponse output = Text(0, "c");
  output.mutable_delta()->add_token_ids('c');
  Fill(output.mutable_delta()->add_logprobs()->mutable_chosen(), 'c', "c", -2.0f, 0);
  v1::GenerateResponse end = Finished(0, v1::FINISH_REASON_STOP_TOKEN, 3, 1);
  end.mutable_finished()->set_stop_token_id('c');
  return {{0, Started(3)}, {0, first}, {0, rest}, {0, output}, {0, end}};
}

TEST(CompletionAnswer, AnEchoIsInTextLogprobsAndOffsets) {
  CompletionCall call = Call(Endpoint::kCompletions);
  call.shape.logprobs = call.shape.echo = call.shape.token_ids = true;
  const json choice = json::parse(Answer(call, Echoing()))["choices"][0];
  EXPECT_EQ(choice["text"], "abc");
  EXPECT_EQ(choice["logprobs"],
            json::parse(R"({"tokens":["","a","b","c"],"token_logprobs":[null,-1.0,-1.0,-2.0],
      "top_logprobs":[null,{"a":-1.0},{"b":-1.0},{"c":-2.0}],"text_offset":[0,0,1,2]})"));
  EXPECT_EQ(choice["prompt_token_ids"], json({1, 'a', 'b'}));
  EXPECT_EQ(choice["token_ids"], json({'c'}));
}

TEST(CompletionAnswer, APromptAloneHasNothingOfTheOutput) {
  CompletionCall call = Call(Endpoint::kCompletions);
  call.shape.logprobs = call.shape.echo = call.prompt_only = true;
  for (const bool stream : {false, true}) {
    call.stream = stream;
    const std::string out = Answer(call, Echoing());
    if (stream) {
      std::string text;
      for (const json& event : Events(out)) {
        text += event["choices"][0]["text"].get<std::string>();
      }
      EXPECT_EQ(text, "ab");
      continue;
    }
    const json answer = json::parse(out);
    EXPECT_EQ(answer["choices"][0]["text"], "ab");
    EXPECT_EQ(answer["choices"][0]["logprobs"]["tokens"].size(), 3u);
    EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
    EXPECT_EQ(answer["choices"][0]["stop_reason"], nullptr);
    EXPECT_EQ(answer["choices"][0]["tandem"]["stop_token_id"], nullptr);
    EXPECT_EQ(answer["usage"]["completion_tokens"], 0);
    EXPECT_EQ(answer["usage"]["total_tokens"], 3);
  }
}

TEST(CompletionAnswer, PromptLogprobsAreAListByPositionOnce) {
  v1::GenerateResponse logprobs;
  logprobs.mutable_prompt_logprobs()->set_first_position(1);
  v1::PositionLogprobs& position = *logprobs.mutable_prompt_logprobs()->add_positions();
  Fill(position.mutable_chosen(), 5, " a", -0.5f, 4);
  Fill(position.add_top(), 6, "b", -0.25f, 0);
  Fill(position.add_top(), 5, " a", -0.5f, 4);
  const json expected = json::parse(R"([null,{
      "5":{"logprob":-0.5,"rank":5,"decoded_token":" a"},
      "6":{"logprob":-0.25,"rank":1,"decoded_token":"b"}}])");
  const Messages messages = {{0, Started()},
                             {0, logprobs},
                             {0, Finished(0, v1::FINISH_REASON_MAX_TOKENS)},
                             {0, Finished(1, v1::FINISH_REASON_MAX_TOKENS)}};
  CompletionCall call = Call(Endpoint::kCompletions, 1, 2);
  call.prompt_logprobs = true;
  const json text = json::parse(Answer(call, messages));
  EXPECT_EQ(text["choices"][0]["prompt_logprobs"], expected);
  EXPECT_FALSE(text["choices"][1].contains("prompt_logprobs"));
  call = Call(Endpoint::kChatCompletions, 1, 2);
  call.prompt_logprobs = true;
  EXPECT_EQ(json::parse(Answer(call, messages))["prompt_logprobs"], expected);
}

TEST(CompletionAnswer, AStreamThatFailsSaysSoAndNothingMore) {
  CompletionCall call = Call(Endpoint::kCompletions);
  call.stream = true;
  CompletionAnswer answer(call, "abc", 1);
  std::string out;
  answer.Add(0, Started(), &out);
  answer.Add(0, Text(0, "x"), &out);
  out.clear();
  answer.Fail(absl::UnavailableError("the worker\nwas lost"), &out);
  ASSERT_EQ(out.substr(out.size() - 2), "\n\n");
  ASSERT_EQ(out.substr(0, 6), "data: ");
  EXPECT_EQ(json::parse(out.substr(6)),
            json::parse(R"({"error":{"message":"the worker\nwas lost","type":"server_error",
                            "param":null,"code":"unavailable"}})"));
}

TEST(CompletionAnswer, AWholeAnswerThatGrowsTooLargeSaysSo) {
  CompletionAnswer whole(Call(Endpoint::kCompletions), "abc", 1);
  CompletionCall call = Call(Endpoint::kCompletions);
  call.stream = true;
  CompletionAnswer stream(call, "abc", 1);
  std::string out;
  whole.Add(0, Started(), &out);
  stream.Add(0, Started(), &out);
  const v1::GenerateResponse text = Text(0, std::string(1 << 20, 'x'));
  for (int64_t bytes = 0; bytes < CompletionAnswer::kMaxBytes; bytes += 1 << 20) {
    EXPECT_FALSE(whole.too_large());
    whole.Add(0, text, &out);
    out.clear();
    stream.Add(0, text, &out);
  }
  whole.Add(0, Text(0, "x"), &out);
  EXPECT_TRUE(whole.too_large());
  EXPECT_FALSE(stream.too_large());
}

TEST(CompletionAnswer, ADeltaOfAStreamAllocatesNothing) {
  for (const Endpoint endpoint : {Endpoint::kCompletions, Endpoint::kChatCompletions}) {
    CompletionCall call = Call(endpoint);
    call.stream = true;
    call.shape.token_ids = true;
    CompletionAnswer answer(call, "abc", 1);
    std::string out;
    out.reserve(1 << 20);
    answer.Add(0, Started(), &out);
    v1::GenerateResponse message = Text(0, " a text that is longer than a short string\n");
    message.mutable_delta()->add_token_ids(123456);
    answer.Add(0, message, &out);
    const int64_t before = test::AllocatedBytes();
    for (int i = 0; i < 100; ++i) answer.Add(0, message, &out);
    EXPECT_EQ(test::AllocatedBytes(), before);
  }
}

}  // namespace
}  // namespace tandem::text
