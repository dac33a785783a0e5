// Bodies of completions and chats: what each field becomes, and what is refused by which name.
#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <vector>

#include "engine/text/stop_matcher.h"
#include "services/text/openai/completion_fields.h"
#include "services/text/openai/completions.h"
#include "services/text/request.h"

namespace tandem::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr Endpoint kText = Endpoint::kCompletions;
constexpr Endpoint kChat = Endpoint::kChatCompletions;

// A valid body of the endpoint with these members more.
std::string Body(Endpoint endpoint, const std::string& members) {
  const std::string input =
      endpoint == kChat ? R"("messages":[{"role":"user","content":"hi"}])" : R"("prompt":"hi")";
  return "{" + input + (members.empty() ? "" : ",") + members + "}";
}

CompletionCall Parse(Endpoint endpoint, const std::string& body) {
  auto call = ParseCompletionCall(endpoint, body);
  EXPECT_TRUE(call.ok()) << body << ": " << call.status();
  return call.ok() ? *std::move(call) : CompletionCall{.requests = {v1::GenerateRequest()}};
}

void ExpectRefused(Endpoint endpoint, const std::string& body, const std::string& param,
                   const std::vector<std::string>& parts) {
  const absl::Status status = ParseCompletionCall(endpoint, body).status();
  SCOPED_TRACE(body.substr(0, 200));
  ASSERT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_EQ(ParamOf(status), param) << status;
  for (const std::string& part : parts) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
}

TEST(CompletionCall, DefaultsAreOpenAis) {
  const CompletionCall text = Parse(kText, R"({"prompt":"hi"})");
  ASSERT_EQ(text.requests.size(), 1u);
  EXPECT_EQ(text.requests[0].prompt(), "hi");
  EXPECT_EQ(text.requests[0].max_tokens(), 16);
  EXPECT_EQ(text.requests[0].model(), "");
  EXPECT_FALSE(text.requests[0].sampling().has_temperature());
  EXPECT_FALSE(text.requests[0].response().has_logprobs());
  EXPECT_EQ(text.n, 1);
  EXPECT_FALSE(text.stream);
  const CompletionCall chat = Parse(kChat, R"({"messages":[{"role":"user","content":"hi"}]})");
  ASSERT_EQ(chat.requests.size(), 1u);
  EXPECT_FALSE(chat.requests[0].has_max_tokens()) << "up to the context";
  ASSERT_EQ(chat.requests[0].chat().messages_size(), 1);
  EXPECT_EQ(chat.requests[0].chat().messages(0).role(), "user");
  EXPECT_EQ(chat.requests[0].chat().messages(0).content(), "hi");
}

TEST(CompletionCall, APromptIsATextOrIdsOrManyOfOneKind) {
  const CompletionCall texts = Parse(kText, R"({"prompt":["a","b\u0000c","\ud83d\ude00"],"n":2})");
  ASSERT_EQ(texts.requests.size(), 3u);
  EXPECT_EQ(texts.requests[1].prompt(), std::string("b\0c", 3));
  EXPECT_EQ(texts.requests[2].prompt(), "\xF0\x9F\x98\x80");
  EXPECT_EQ(texts.requests[2].sampling().n(), 2);
  EXPECT_TRUE(texts.names.many_prompts);
  const CompletionCall ids = Parse(kText, R"({"prompt":[1, 2.0, 3]})");
  ASSERT_EQ(ids.requests.size(), 1u);
  EXPECT_THAT(ids.requests[0].token_ids().ids(), ElementsAre(1, 2, 3));
  EXPECT_FALSE(ids.names.many_prompts);
  const CompletionCall many = Parse(kText, R"({"prompt":[[1],[2,3]]})");
  ASSERT_EQ(many.requests.size(), 2u);
  EXPECT_THAT(many.requests[1].token_ids().ids(), ElementsAre(2, 3));
}

TEST(CompletionCall, TextPartsOfAMessageAreJoined) {
  const CompletionCall call = Parse(kChat, R"({"messages":[
      {"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],
       "name":null},
      {"role":"assistant","content":"","refusal":null,"tool_calls":null,"annotations":[]}]})");
  EXPECT_EQ(call.requests[0].chat().messages(0).content(), "ab");
  EXPECT_EQ(call.requests[0].chat().messages(1).content(), "");
}

TEST(CompletionCall, EveryFieldArrives) {
  using Get = std::function<double(const CompletionCall&)>;
  struct Case {
    const char* member;
    double expected;
    Get get;
  };
  const auto sampling = [](auto get) {
    return [get](const CompletionCall& c) -> double { return get(c.requests[0].sampling()); };
  };
  const auto stopping = [](auto get) {
    return [get](const CompletionCall& c) -> double { return get(c.requests[0].stopping()); };
  };
  const auto request = [](auto get) {
    return [get](const CompletionCall& c) -> double { return get(c.requests[0]); };
  };
  using S = v1::Sampling;
  using R = v1::GenerateRequest;
  const Case cases[] = {
      {R"("temperature":0)", 0, sampling([](const S& s) { return s.temperature(); })},
      {R"("temperature":1e-5)", 1e-5f, sampling([](const S& s) { return s.temperature(); })},
      {R"("top_p":0.5)", 0.5, sampling([](const S& s) { return s.top_p(); })},
      {R"("top_k":-1)", 0, sampling([](const S& s) { return s.top_k(); })},
      {R"("top_k":40)", 40, sampling([](const S& s) { return s.top_k(); })},
      {R"("top_k":4e1)", 40, sampling([](const S& s) { return s.top_k(); })},
      {R"("min_p":0.25)", 0.25, sampling([](const S& s) { return s.min_p(); })},
      {R"("presence_penalty":-2)", -2, sampling([](const S& s) { return s.presence_penalty(); })},
      {R"("frequency_penalty":2)", 2, sampling([](const S& s) { return s.frequency_penalty(); })},
      {R"("repetition_penalty":0.01)", 0.01f,
       sampling([](const S& s) { return s.repetition_penalty(); })},
      {R"("logit_bias":{"7":-100,"0":1.5})", -100,
       sampling([](const S& s) { return s.logit_bias().at(7); })},
      {R"("allowed_token_ids":[5,6])", 6, sampling([](const S& s) { return s.allowed_ids(1); })},
      {R"("n":16)", 16, sampling([](const S& s) { return s.n(); })},
      {R"("n":3.0)", 3, [](const CompletionCall& c) { return c.n; }},
      {R"("max_tokens":3)", 3, request([](const R& r) { return r.max_tokens(); })},
      {R"("max_tokens":3.0)", 3, request([](const R& r) { return r.max_tokens(); })},
      {R"("min_tokens":2)", 2, request([](const R& r) { return r.min_tokens(); })},
      {R"("priority":5)", -5, request([](const R& r) { return r.priority(); })},
      {R"("request_id":"abc")", 3, request([](const R& r) { return r.request_id().size(); })},
      {R"("model":"m")", 1, request([](const R& r) { return r.model().size(); })},
      {R"("cache_salt":"abcd")", 4, request([](const R& r) { return r.cache().salt().size(); })},
      {R"("stop":"x")", 1, stopping([](const auto& s) { return s.stop_strings_size(); })},
      {R"("stop":["x","yz"])", 2, stopping([](const auto& s) { return s.stop_strings(1).size(); })},
      {R"("stop":[])", 0, stopping([](const auto& s) { return s.stop_strings_size(); })},
      {R"("stop_token_ids":[9])", 9, stopping([](const auto& s) { return s.stop_token_ids(0); })},
      {R"("ignore_eos":true)", 1, stopping([](const auto& s) { return s.ignore_eos(); })},
      {R"("include_stop_str_in_output":true)", 1,
       stopping([](const auto& s) { return s.include_stop(); })},
      {R"("prompt_logprobs":4)", 4,
       request([](const R& r) { return r.response().prompt_logprobs(); })},
      {R"("return_token_ids":true)", 1,
       request([](const R& r) { return r.response().token_ids(); })},
      {R"("return_tokens_as_token_ids":true)", 1,
       [](const CompletionCall& c) { return c.shape.tokens_as_ids; }},
      {R"("stream":true)", 1, [](const CompletionCall& c) { return c.stream; }},
      {R"("stream":true,"stream_options":{"include_usage":true})", 1,
       [](const CompletionCall& c) { return c.include_usage; }},
      {R"("stream":true,"stream_options":{"include_obfuscation":false})", 0,
       [](const CompletionCall& c) { return c.include_usage; }},
  };
  for (const Case& c : cases) {
    for (const Endpoint endpoint : {kText, kChat}) {
      EXPECT_EQ(c.get(Parse(endpoint, Body(endpoint, c.member))), c.expected) << c.member;
    }
  }
  EXPECT_EQ(Parse(kText, Body(kText, R"("logprobs":0)")).requests[0].response().logprobs(), 0);
  EXPECT_TRUE(Parse(kText, Body(kText, R"("logprobs":0)")).shape.logprobs);
  EXPECT_TRUE(Parse(kText, Body(kText, R"("echo":true)")).requests[0].response().echo());
  EXPECT_EQ(Parse(kText, Body(kText, R"("best_of":2,"n":2)")).n, 2);
  const auto no_special = Parse(kText, Body(kText, R"("add_special_tokens":false)")).requests[0];
  EXPECT_TRUE(no_special.has_add_special() && !no_special.add_special());
  const auto chat = Parse(kChat, Body(kChat, R"("add_generation_prompt":false)")).requests[0];
  EXPECT_TRUE(chat.chat().has_add_generation_prompt() && !chat.chat().add_generation_prompt());
  EXPECT_EQ(chat.chat().messages_size(), 1);
}

TEST(CompletionCall, LogprobsOfAChatAreOnAndSoMany) {
  const auto of = [](const char* members) {
    return Parse(kChat, Body(kChat, members)).requests[0].response();
  };
  EXPECT_FALSE(of(R"("logprobs":false)").has_logprobs());
  EXPECT_FALSE(of(R"("logprobs":false,"top_logprobs":0)").has_logprobs());
  EXPECT_TRUE(of(R"("logprobs":true)").has_logprobs());
  EXPECT_EQ(of(R"("logprobs":true)").logprobs(), 0);
  EXPECT_EQ(of(R"("logprobs":true,"top_logprobs":20)").logprobs(), 20);
}

TEST(CompletionCall, MaxTokensOfAChatHasTwoNames) {
  const auto parse = [](const char* members) { return Parse(kChat, Body(kChat, members)); };
  EXPECT_EQ(parse(R"("max_completion_tokens":7)").requests[0].max_tokens(), 7);
  EXPECT_TRUE(parse(R"("max_completion_tokens":7)").names.max_completion_tokens);
  EXPECT_EQ(parse(R"("max_completion_tokens":7,"max_tokens":7)").requests[0].max_tokens(), 7);
}

TEST(CompletionCall, ASeedIsAnyIntegerOf64Bits) {
  const std::pair<const char*, uint64_t> cases[] = {
      {"0", 0},
      {"-1", ~uint64_t{0}},
      {"-9223372036854775808", uint64_t{1} << 63},
      {"18446744073709551615", ~uint64_t{0}},
      {"9007199254740993", 9007199254740993u},
      {"5.0", 5},
      {R"("18446744073709551615")", ~uint64_t{0}},
  };
  for (const auto& [text, seed] : cases) {
    const auto call = Parse(kText, Body(kText, "\"seed\":" + std::string(text)));
    ASSERT_TRUE(call.requests[0].sampling().has_seed()) << text;
    EXPECT_EQ(call.requests[0].sampling().seed(), seed) << text;
  }
}

TEST(CompletionCall, AnEchoWithoutOutputAsksForOneTokenThatItLeavesOut) {
  const CompletionCall call = Parse(kText, Body(kText, R"("echo":true,"max_tokens":0)"));
  EXPECT_TRUE(call.prompt_only);
  EXPECT_EQ(call.requests[0].max_tokens(), 1);
}

TEST(CompletionCall, TheIdOfAnEchosFirstTokenIsAskedForWhereItIsItsName) {
  const char* members = R"("echo":true,"logprobs":1,"return_tokens_as_token_ids":true)";
  const CompletionCall call = Parse(kText, Body(kText, members));
  EXPECT_TRUE(call.requests[0].response().token_ids());
  EXPECT_FALSE(call.shape.token_ids);
}

TEST(CompletionCall, NullIsAbsentForEveryOptionalField) {
  for (const Endpoint endpoint : {kText, kChat}) {
    const uint8_t where = endpoint == kChat ? kOfChat : kOfCompletions;
    std::string members;
    for (const Field<CompletionDraft>& field : CompletionFields()) {
      if (field.required || (field.where & where) == 0) continue;
      members += (members.empty() ? "\"" : ",\"") + std::string(field.name) + "\":null";
    }
    const CompletionCall nulls = Parse(endpoint, Body(endpoint, members));
    const CompletionCall absent = Parse(endpoint, Body(endpoint, ""));
    EXPECT_EQ(nulls.requests[0].SerializeAsString(), absent.requests[0].SerializeAsString());
    EXPECT_EQ(nulls.stream, absent.stream);
  }
}

TEST(CompletionCall, WhatChangesNothingIsAccepted) {
  const char* chat[] = {R"("user":"u")",
                        R"("metadata":{"a":"b"})",
                        R"("store":false)",
                        R"("service_tier":"auto")",
                        R"("service_tier":"default")",
                        R"("safety_identifier":"s")",
                        R"("prompt_cache_key":"k")",
                        R"("parallel_tool_calls":true)",
                        R"("tools":[])",
                        R"("tool_choice":"none")",
                        R"("functions":[])",
                        R"("function_call":"none")",
                        R"("response_format":{"type":"text"})",
                        R"("modalities":["text"])",
                        R"("continue_final_message":false)"};
  for (const char* member : chat) Parse(kChat, Body(kChat, member));
  const char* both[] = {R"("skip_special_tokens":true)", R"("spaces_between_special_tokens":true)",
                        R"("detokenize":true)",          R"("use_beam_search":false)",
                        R"("length_penalty":1)",         R"("length_penalty":1.0)",
                        R"("early_stopping":false)",     R"("user":"u")"};
  for (const char* member : both) {
    Parse(kChat, Body(kChat, member));
    Parse(kText, Body(kText, member));
  }
  Parse(kText, Body(kText, R"("suffix":"")"));
}

struct Bad {
  const char* member;
  const char* param;
  std::vector<std::string> parts;
};

TEST(CompletionCall, B035_B127_BadFieldsOfBothAreRefusedByNameValueAndLimit) {
  const Bad cases[] = {
      {R"("foo":1)", "foo", {"foo is no field of /v1/"}},
      {R"("model":5)", "model", {"5", "string"}},
      {R"("temperature":"hot")", "temperature", {"\"hot\"", "number"}},
      {R"("temperature":-0.5)", "temperature", {"-0.5", "100"}},
      {R"("temperature":100.5)", "temperature", {"100.5", "100"}},
      {R"("temperature":1e-46)", "temperature", {"1e-46", "1e-05"}},
      {R"("temperature":1e400)", "temperature", {"too large"}},
      {R"("top_p":1.5)", "top_p", {"1.5", "0 to 1"}},
      {R"("top_p":true)", "top_p", {"true", "number"}},
      {R"("top_k":-2)", "top_k", {"-2", "-1 to 2147483647"}},
      {R"("top_k":2147483648)", "top_k", {"2147483648", "2147483647"}},
      {R"("top_k":1.5)", "top_k", {"1.5", "integer"}},
      {R"("top_k":1e300)", "top_k", {"1e+300", "2147483647"}},
      {R"("top_k":18446744073709551617)", "top_k", {"2147483647"}},
      {R"("min_p":-0.1)", "min_p", {"-0.1"}},
      {R"("presence_penalty":101)", "presence_penalty", {"101", "100"}},
      {R"("frequency_penalty":-101)", "frequency_penalty", {"-101", "-100"}},
      {R"("repetition_penalty":0)", "repetition_penalty", {"0", "0.01"}},
      {R"("n":0)", "n", {"0", "1 to 16"}},
      {R"("n":512)", "n", {"512", "16"}},
      {R"("n":"2")", "n", {"\"2\"", "integer"}},
      {R"("max_tokens":-1)", "max_tokens", {"-1"}},
      {R"("max_tokens":0)", "max_tokens", {"0", "1"}},
      {R"("max_tokens":4294967297)", "max_tokens", {"4294967297", "2147483647"}},
      {R"("min_tokens":-1)", "min_tokens", {"-1"}},
      {R"("seed":1.5)", "seed", {"1.5", "64 bits"}},
      {R"("seed":18446744073709551616)", "seed", {"64 bits"}},
      {R"("seed":1e19)", "seed", {"64 bits"}},
      {R"("seed":"1x")", "seed", {"1x", "digits"}},
      {R"("seed":true)", "seed", {"true", "integer"}},
      {R"("logit_bias":[])", "logit_bias", {"object"}},
      {R"("logit_bias":{"-1":1})", "logit_bias.-1", {"no token id"}},
      {R"("logit_bias":{"07":1})", "logit_bias.07", {"no token id"}},
      {R"("logit_bias":{"x":1})", "logit_bias.x", {"no token id"}},
      {R"("logit_bias":{"4294967297":1})", "logit_bias.4294967297", {"2147483647"}},
      {R"("logit_bias":{"7":10001})", "logit_bias.7", {"10001", "10000"}},
      {R"("logit_bias":{"7":"1"})", "logit_bias.7", {"number"}},
      {R"("allowed_token_ids":[])", "allowed_token_ids", {"0 ids", "1 to 16384"}},
      {R"("allowed_token_ids":[1,-3])", "allowed_token_ids[1]", {"-3"}},
      {R"("stop":5)", "stop", {"5", "string"}},
      {R"("stop":"")", "stop", {"0 bytes", "256"}},
      {R"("stop":["a",""])", "stop[1]", {"0 bytes", "256"}},
      {R"("stop":["a",null])", "stop[1]", {"null", "string"}},
      {R"("stop_token_ids":"1")", "stop_token_ids", {"array"}},
      {R"("ignore_eos":1)", "ignore_eos", {"1", "true or false"}},
      {R"("stream":"yes")", "stream", {"yes", "true or false"}},
      {R"("stream_options":{"include_usage":true})", "stream_options", {"needs stream"}},
      {R"("stream":true,"stream_options":{"x":1})", "stream_options.x", {"no field"}},
      {R"("stream":true,"stream_options":{"include_usage":1})",
       "stream_options.include_usage",
       {"true or false"}},
      {R"("stream":true,"stream_options":{"include_obfuscation":true})",
       "stream_options.include_obfuscation",
       {"not supported"}},
      {R"("stream":true,"prompt_logprobs":1)", "prompt_logprobs", {"stream"}},
      {R"("prompt_logprobs":21)", "prompt_logprobs", {"21", "20"}},
      {R"("prompt_logprobs":true)", "prompt_logprobs", {"integer"}},
      {R"("priority":101)", "priority", {"101", "100"}},
      {R"("user":7)", "user", {"string"}},
      {R"("skip_special_tokens":false)", "skip_special_tokens", {"false", "true"}},
      {R"("use_beam_search":true)", "use_beam_search", {"not supported"}},
      {R"("length_penalty":0.5)", "length_penalty", {"0.5", "not supported"}},
      {R"("truncate_prompt_tokens":5)", "truncate_prompt_tokens", {"not supported"}},
      {R"("guided_json":{})", "guided_json", {"not supported"}},
      {R"("structured_outputs":{"json":1})", "structured_outputs", {"an object"}},
      {R"("n":1,"n":2)", "n", {"twice"}},
      {R"("logit_bias":{"1":1,"1":2})", "logit_bias.1", {"twice"}},
  };
  for (const Bad& c : cases) {
    for (const Endpoint endpoint : {kText, kChat}) {
      ExpectRefused(endpoint, Body(endpoint, c.member), c.param, c.parts);
    }
  }
  const auto list = [](int count, const std::string& one) {
    std::string all = one;
    for (int i = 1; i < count; ++i) all += "," + one;
    return "[" + all + "]";
  };
  std::string biases;
  for (int i = 0; i <= 1024; ++i) biases += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":1";
  const std::string long_stop = "\"stop\":\"" + std::string(257, 'x') + "\"";
  for (const Endpoint endpoint : {kText, kChat}) {
    ExpectRefused(endpoint, Body(endpoint, "\"logit_bias\":{" + biases + "}"), "logit_bias",
                  {"1025", "1024"});
    ExpectRefused(endpoint, Body(endpoint, "\"stop\":" + list(17, "\"a\"")), "stop", {"17", "16"});
    ExpectRefused(endpoint, Body(endpoint, long_stop), "stop", {"257", "256"});
    ExpectRefused(endpoint, Body(endpoint, "\"stop_token_ids\":" + list(17, "1")), "stop_token_ids",
                  {"17", "16"});
    ExpectRefused(endpoint, Body(endpoint, "\"allowed_token_ids\":" + list(16385, "1")),
                  "allowed_token_ids", {"16385", "16384"});
    ExpectRefused(endpoint, Body(endpoint, "\"request_id\":\"" + std::string(129, 'r') + "\""),
                  "request_id", {"129", "128"});
    ExpectRefused(endpoint, Body(endpoint, "\"cache_salt\":\"" + std::string(65, 's') + "\""),
                  "cache_salt", {"65", "64"});
  }
}

TEST(CompletionCall, BadFieldsOfOneEndpointAreRefusedByName) {
  const Bad text[] = {
      {R"("messages":[])", "messages", {"no field of /v1/completions"}},
      {R"("logprobs":21)", "logprobs", {"21", "20"}},
      {R"("logprobs":true)", "logprobs", {"integer"}},
      {R"("best_of":2)", "best_of", {"2", "n, which is 1"}},
      {R"("suffix":"x")", "suffix", {"not supported"}},
      {R"("echo":true,"max_tokens":0,"min_tokens":1)", "min_tokens", {"max_tokens is 0"}},
      {R"("add_special_tokens":"no")", "add_special_tokens", {"true or false"}},
  };
  for (const Bad& c : text) ExpectRefused(kText, Body(kText, c.member), c.param, c.parts);
  const Bad chat[] = {
      {R"("prompt":"x")", "prompt", {"no field of /v1/chat/completions"}},
      {R"("echo":true)", "echo", {"no field"}},
      {R"("logprobs":1)", "logprobs", {"true or false"}},
      {R"("top_logprobs":3)", "top_logprobs", {"3", "needs logprobs"}},
      {R"("logprobs":true,"top_logprobs":21)", "top_logprobs", {"21", "20"}},
      {R"("max_tokens":3,"max_completion_tokens":4)", "max_completion_tokens", {"4", "3"}},
      {R"("response_format":{"type":"json_object"})", "response_format", {"not supported"}},
      {R"("tools":[{"type":"function"}])", "tools", {"not supported"}},
      {R"("tool_choice":"required")", "tool_choice", {"required"}},
      {R"("functions":[{}])", "functions", {"not supported"}},
      {R"("store":true)", "store", {"not supported"}},
      {R"("service_tier":"flex")", "service_tier", {"flex"}},
      {R"("metadata":[])", "metadata", {"object"}},
      {R"("modalities":["text","audio"])", "modalities", {"not supported"}},
      {R"("reasoning_effort":"high")", "reasoning_effort", {"high"}},
      {R"("continue_final_message":true)", "continue_final_message", {"not supported"}},
  };
  for (const Bad& c : chat) ExpectRefused(kChat, Body(kChat, c.member), c.param, c.parts);
}

TEST(CompletionCall, BadPromptsAreRefusedByPlace) {
  const Bad cases[] = {
      {R"({})", "prompt", {"missing"}},
      {R"({"prompt":null})", "prompt", {"null"}},
      {R"({"prompt":5})", "prompt", {"5"}},
      {R"({"prompt":[]})", "prompt", {"empty"}},
      {R"({"prompt":[null]})", "prompt[0]", {"null"}},
      {R"({"prompt":["a",5]})", "prompt[1]", {"5", "string"}},
      {R"({"prompt":[1,"a"]})", "prompt[1]", {"\"a\"", "integer"}},
      {R"({"prompt":[1,-2]})", "prompt[1]", {"-2"}},
      {R"({"prompt":[1,2.5]})", "prompt[1]", {"2.5"}},
      {R"({"prompt":[1,2147483648]})", "prompt[1]", {"2147483648"}},
      {R"({"prompt":[[1],2]})", "prompt[1]", {"2", "array"}},
      {R"({"prompt":[[1],[]]})", "prompt[1]", {"0 ids"}},
      {R"({"prompt":[[1],[2,"x"]]})", "prompt[1][1]", {"\"x\""}},
      {R"({"prompt":[1],"add_special_tokens":true})", "add_special_tokens", {"text"}},
  };
  for (const Bad& c : cases) ExpectRefused(kText, c.member, c.param, c.parts);
  std::string many = R"({"prompt":["a")";
  for (int i = 1; i < 65; ++i) many += ",\"a\"";
  ExpectRefused(kText, many + "]}", "prompt", {"65", "64"});
}

TEST(CompletionCall, BadMessagesAreRefusedByPlace) {
  const Bad cases[] = {
      {R"({})", "messages", {"missing"}},
      {R"({"messages":"hi"})", "messages", {"array"}},
      {R"({"messages":[]})", "messages", {"empty"}},
      {R"({"messages":["hi"]})", "messages[0]", {"object"}},
      {R"({"messages":[{"content":"x"}]})", "messages[0].role", {"missing"}},
      {R"({"messages":[{"role":"","content":"x"}]})", "messages[0].role", {"empty"}},
      {R"({"messages":[{"role":1,"content":"x"}]})", "messages[0].role", {"1", "string"}},
      {R"({"messages":[{"role":"user"}]})", "messages[0].content", {"missing"}},
      {R"({"messages":[{"role":"user","content":null}]})", "messages[0].content", {"null"}},
      {R"({"messages":[{"role":"user","content":"x","name":"n"}]})",
       "messages[0].name",
       {"not supported"}},
      {R"({"messages":[{"role":"user","content":"x","foo":1}]})", "messages[0].foo", {"no field"}},
      {R"({"messages":[{"role":"assistant","content":"x","tool_calls":[{}]}]})",
       "messages[0].tool_calls",
       {"not supported"}},
      {R"({"messages":[{"role":"tool","content":"x","tool_call_id":"1"}]})",
       "messages[0].tool_call_id",
       {"not supported"}},
      {R"({"messages":[{"role":"u","content":[{"type":"image_url","image_url":{}}]}]})",
       "messages[0].content[0].type",
       {"image_url", "not supported"}},
      {R"({"messages":[{"role":"u","content":[{"type":"input_audio"}]}]})",
       "messages[0].content[0].type",
       {"input_audio"}},
      {R"({"messages":[{"role":"u","content":[{"text":"x"}]}]})",
       "messages[0].content[0].type",
       {"missing"}},
      {R"({"messages":[{"role":"u","content":[{"type":"text"}]}]})",
       "messages[0].content[0].text",
       {"missing"}},
      {R"({"messages":[{"role":"u","content":["x"]}]})", "messages[0].content[0]", {"part"}},
  };
  for (const Bad& c : cases) ExpectRefused(kChat, c.member, c.param, c.parts);
}

// A limit that a body is held against before its request is made must be the request's own.
static_assert(kMaxN == kMaxChoices);
static_assert(kMaxTopLogprobs == kMaxLogprobs);
static_assert(kMaxStops == StopMatcher::kMaxStops && kMaxStops == kMaxStopTokens);
static_assert(kMaxStopBytes == StopMatcher::kMaxStopBytes);
static_assert(kMaxChatMessages == kMaxMessages);
static_assert(kMaxBiases == kMaxBias);
static_assert(kMaxListed == kMaxListedIds);

}  // namespace
}  // namespace tandem::text
