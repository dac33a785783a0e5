// Errors in the JSON's words: of every check that stands behind the translation.
#include "services/text/openai/error.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "services/text/openai/completion_fields.h"
#include "services/text/openai/completions.h"
#include "services/text/request.h"
#include "tests/services/text/session_fixture.h"

namespace tandem::text {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr Endpoint kText = Endpoint::kCompletions;
constexpr Endpoint kChat = Endpoint::kChatCompletions;

json ErrorIn(const HttpError& error) { return json::parse(error.body)["error"]; }

TEST(Error, B125_EveryCodeHasItsStatusAndBusyOnesSayWhenToTryAgain) {
  struct Case {
    absl::StatusCode code;
    int status;
    const char* type;
    json error_code;
    bool retry;
  };
  using Code = absl::StatusCode;
  const Case cases[] = {
      {Code::kInvalidArgument, 400, "invalid_request_error", nullptr, false},
      {Code::kOutOfRange, 400, "invalid_request_error", nullptr, false},
      {Code::kUnauthenticated, 401, "invalid_request_error", "invalid_api_key", false},
      {Code::kPermissionDenied, 403, "permission_error", nullptr, false},
      {Code::kNotFound, 404, "invalid_request_error", "not_found", false},
      {Code::kResourceExhausted, 429, "rate_limit_error", "rate_limit_exceeded", true},
      {Code::kCancelled, 499, "server_error", "cancelled", false},
      {Code::kUnimplemented, 501, "invalid_request_error", "not_supported", false},
      {Code::kUnavailable, 503, "server_error", "unavailable", true},
      {Code::kDeadlineExceeded, 504, "server_error", "deadline_exceeded", false},
      {Code::kInternal, 500, "server_error", nullptr, false},
      {Code::kUnknown, 500, "server_error", nullptr, false},
      {Code::kDataLoss, 500, "server_error", nullptr, false},
      {Code::kAborted, 500, "server_error", nullptr, false},
      {Code::kFailedPrecondition, 500, "server_error", nullptr, false},
      {Code::kAlreadyExists, 500, "server_error", nullptr, false},
  };
  for (const Case& c : cases) {
    const HttpError error = ErrorOf(absl::Status(c.code, "what \"was\" wrong"));
    EXPECT_EQ(error.status, c.status);
    EXPECT_EQ(error.retry_after.has_value(), c.retry) << c.status;
    EXPECT_EQ(error.retry_after.value_or(1), 1);
    const json body = ErrorIn(error);
    EXPECT_EQ(body["message"], "what \"was\" wrong");
    EXPECT_EQ(body["type"], c.type);
    EXPECT_EQ(body["code"], c.error_code);
    EXPECT_EQ(body["param"], nullptr);
    EXPECT_EQ(body.size(), 4u);
  }
}

TEST(Error, AModelThatIsNotServedIsNamed) {
  const json error = ErrorIn(ErrorOf(absl::NotFoundError("model m is not served")));
  EXPECT_EQ(error["param"], "model");
  EXPECT_EQ(error["code"], "model_not_found");
}

TEST(Error, B003_AMessageThatIsNotUtf8IsStillJson) {
  EXPECT_EQ(ErrorIn(ErrorOf(absl::InternalError("a\xff")))["message"], "a\xEF\xBF\xBD");
}

// What CheckRequest says to a body that ParseCompletionCall let through.
class CheckedErrorTest : public testing::Test {
 protected:
  struct Case {
    Endpoint endpoint;
    std::string body;
    json param;
    std::vector<std::string> parts;
  };
  void Expect(const Case& c) {
    SCOPED_TRACE(c.body.substr(0, 200));
    const auto call = ParseCompletionCall(c.endpoint, c.body);
    ASSERT_TRUE(call.ok()) << call.status();
    for (size_t i = 0; i < call->requests.size(); ++i) {
      const auto checked = CheckRequest(call->requests[i], model_, [] { return 1; });
      if (checked.ok()) continue;
      const HttpError error = ErrorOf(checked.status(), call->names, static_cast<int32_t>(i));
      EXPECT_EQ(error.status, 400);
      EXPECT_EQ(ErrorIn(error)["param"], c.param) << error.body;
      const std::string message = ErrorIn(error)["message"];
      for (const std::string& part : c.parts) EXPECT_THAT(message, HasSubstr(part));
      for (const char* word : {"sampling.", "stopping.", "response.", "cache.", "chat"}) {
        EXPECT_THAT(message, Not(HasSubstr(word)));
      }
      return;
    }
    ADD_FAILURE() << "nothing was refused";
  }

  test::ScriptedDecoder decoder_{test::ScriptedDecoderOptions()};
  std::shared_ptr<const ServedModel> model_ =
      ModelOf(decoder_.Hello(), decoder_.options().tokenizer);
};

TEST_F(CheckedErrorTest, B047_B129_ARequestThatTheModelRefusesIsRefusedInTheJsonsNames) {
  const std::string long_text(600, 'x');
  std::string stops = "1";
  for (int i = 2; i < 16; ++i) stops += "," + std::to_string(i);
  const Case cases[] = {
      {kText, R"({"prompt":""})", "prompt", {"prompt has no tokens"}},
      {kText, R"({"prompt":["a",""]})", "prompt[1]", {"prompt[1] has no tokens"}},
      {kText, R"({"prompt":")" + long_text + "\"}", "prompt", {"511", "512"}},
      {kText, R"({"prompt":[1,100000]})", "prompt", {"prompt has id 100000", "264"}},
      {kText, R"({"prompt":[[1],[100000]]})", "prompt[1]", {"prompt[1] has id 100000"}},
      {kText,
       R"({"prompt":"a","max_tokens":100000})",
       "max_tokens",
       {"max_tokens is 100000", "511", "512"}},
      {kText, R"({"prompt":"a","min_tokens":17})", "min_tokens", {"17", "16"}},
      {kText,
       R"({"prompt":"a","logit_bias":{"191222":1}})",
       "logit_bias",
       {"logit_bias has id 191222", "271"}},
      {kText,
       R"({"prompt":"a","allowed_token_ids":[272]})",
       "allowed_token_ids",
       {"allowed_token_ids has id 272", "271"}},
      {kText,
       R"({"prompt":"a","allowed_token_ids":[3,3]})",
       "allowed_token_ids",
       {"allowed_token_ids has id 3 twice"}},
      {kText,
       R"({"prompt":"a","stop_token_ids":[265]})",
       "stop_token_ids",
       {"stop_token_ids has id 265", "264"}},
      {kText, R"({"prompt":")" + long_text + long_text + R"(","echo":true})", "prompt", {"511"}},
      {kChat,
       R"({"messages":[{"role":"user","content":")" + long_text + "\"}]}",
       "messages",
       {"messages has more than 511"}},
      {kChat,
       R"({"messages":[{"role":"user","content":"a"}],"max_completion_tokens":100000})",
       "max_completion_tokens",
       {"max_completion_tokens is 100000"}},
      {kChat,
       R"({"messages":[{"role":"user","content":"a"}],"max_tokens":100000})",
       "max_tokens",
       {"max_tokens is 100000"}},
  };
  for (const Case& c : cases) Expect(c);
}

// Messages as the checks word them, with every name that they begin with.
TEST(Error, EveryNameThatACheckBeginsWithIsTranslated) {
  struct Case {
    const char* message;
    const char* text;  // param, empty: null
    const char* chat;
    const char* says;  // of the message of a chat
  };
  const Case cases[] = {
      {"request_id has 129 bytes: at most 128", "request_id", "request_id", "request_id has"},
      {"priority is 101: it must be -100 to 100", "priority", "priority", "priority is"},
      {"stopping.stop_strings has 17 strings: at most 16", "stop", "stop", "stop has 17"},
      {"stopping.stop_strings[3] has 0 bytes: it must have 1 to 256", "stop[3]", "stop[3]",
       "stop[3] has 0"},
      {"stopping.stop_token_ids has id 9: ids are 0 to 8", "stop_token_ids", "stop_token_ids",
       "stop_token_ids has"},
      {"response.logprobs is 21: it must be 0 to 20", "logprobs", "top_logprobs",
       "top_logprobs is"},
      {"response.prompt_logprobs is set: the workers of model m give no logprobs of a prompt",
       "prompt_logprobs", "prompt_logprobs", "prompt_logprobs is set"},
      {"response.echo with logprobs is set: the workers of model m give no logprobs", "echo", "",
       ""},
      {"response.echo has 5 bytes of text in all choices: at most 4", "echo", "", ""},
      {"cache.salt has 65 bytes: at most 64", "cache_salt", "cache_salt", "cache_salt has"},
      {"min_tokens is 5: it must be 0 to 4", "min_tokens", "min_tokens", "min_tokens is"},
      {"max_tokens is 0: it must be 1 to 4", "max_tokens", "max_tokens", "max_tokens is"},
      {"sampling.n is 17: it must be 1 to 16", "n", "n", "n is 17"},
      {"sampling.allowed_ids has 20000 ids: at most 16384", "allowed_token_ids",
       "allowed_token_ids", "allowed_token_ids has"},
      {"sampling.temperature is 101: it must be 0, or 1e-05 to 100", "temperature", "temperature",
       "temperature is 101"},
      {"sampling.top_k is -2: it must be at least 0, or -1 for off", "top_k", "top_k", "top_k is"},
      {"sampling.top_p is 2: it must be 0 to 1", "top_p", "top_p", "top_p is 2"},
      {"sampling.min_p is 2: it must be 0 to 1", "min_p", "min_p", "min_p is 2"},
      {"sampling.repetition_penalty is 0: it must be 0.01 to 100", "repetition_penalty",
       "repetition_penalty", "repetition_penalty is"},
      {"sampling.presence_penalty is 101: it must be", "presence_penalty", "presence_penalty",
       "presence_penalty is"},
      {"sampling.frequency_penalty is 101: it must be", "frequency_penalty", "frequency_penalty",
       "frequency_penalty is"},
      {"sampling.min_tokens is 9: it must be 0 to 8", "min_tokens", "min_tokens", "min_tokens is"},
      {"sampling.logit_bias of id 4 is 20000: it must be -10000 to 10000", "logit_bias",
       "logit_bias", "logit_bias of id 4"},
      {"sampling.end_ids has 33 ids: at most 32", "stop_token_ids", "stop_token_ids",
       "stop_token_ids has 33"},
      {"sampling.num_raw_top is 21: it must be 0 to 20", "logprobs", "top_logprobs",
       "top_logprobs is"},
      {"input is not set: one of prompt, chat and token_ids", "prompt", "messages", "messages is"},
      {"add_special is set with token_ids: it goes with prompt only", "add_special_tokens", "", ""},
      {"prompt has no tokens: at least one", "prompt", "", ""},
      {"token_ids has id 9: ids are 0 to 8", "prompt", "", ""},
      {"token_ids.ids: x", "prompt", "", ""},
      {"chat: the template says no", "", "messages", "messages: the template"},
      {"chat has more than 511 tokens", "", "messages", "messages has"},
      {"chat.messages is empty: at least one", "", "messages", "messages is"},
      {"chat.messages[2].role is empty", "", "messages[2].role", "messages[2].role is"},
      {"chat.messages[2].content is not UTF-8: byte 3 of 4", "", "messages[2].content",
       "messages[2].content is"},
      {"model is not UTF-8: byte 0 of 1", "model", "model", "model is"},
      {"no token is allowed at position 4: sampling.allowed_ids leave none", "", "",
       "allowed_token_ids leave none"},
      {"something else is wrong", "", "", "something else is wrong"},
      {"", "", "", ""},
      {"..[", "", "", "..["},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.message);
    const absl::Status status = absl::InvalidArgumentError(c.message);
    const json text = ErrorIn(ErrorOf(status, {.endpoint = kText}));
    const json chat = ErrorIn(ErrorOf(status, {.endpoint = kChat}));
    EXPECT_EQ(text["param"], *c.text == 0 ? json(nullptr) : json(c.text));
    EXPECT_EQ(chat["param"], *c.chat == 0 ? json(nullptr) : json(c.chat));
    EXPECT_THAT(chat["message"].get<std::string>(), HasSubstr(c.says));
    EXPECT_EQ(ErrorIn(ErrorOf(status))["param"], text["param"]);
  }
}

TEST(Error, NamesFollowWhatWasSent) {
  const absl::Status stop = absl::InvalidArgumentError("stopping.stop_strings[0] has 0 bytes");
  EXPECT_EQ(ErrorIn(ErrorOf(stop, {.one_stop = true}))["param"], "stop");
  const absl::Status prompt = absl::InvalidArgumentError("token_ids has no tokens");
  EXPECT_EQ(ErrorIn(ErrorOf(prompt, {.many_prompts = true}, 7))["param"], "prompt[7]");
  EXPECT_EQ(ErrorIn(ErrorOf(prompt, {.many_prompts = true}, -1))["param"], "prompt");
  EXPECT_EQ(ErrorIn(ErrorOf(prompt, {}, 0))["param"], "prompt");
}

TEST(Error, AParamThatIsSetStays) {
  const absl::Status status = FieldError("logit_bias.7", " is 1: sampling.top_p");
  EXPECT_EQ(ErrorIn(ErrorOf(status, {.endpoint = kChat}, 3))["param"], "logit_bias.7");
  EXPECT_EQ(ErrorIn(ErrorOf(status))["message"], "logit_bias.7 is 1: sampling.top_p");
}

TEST(Error, TokenCallsHaveTheirOwnNames) {
  EXPECT_EQ(ErrorIn(ErrorOf(absl::InvalidArgumentError("text has 5 bytes: at most 4")))["param"],
            "prompt");
  EXPECT_EQ(ErrorIn(ErrorOf(absl::InvalidArgumentError("ids has id 9")))["param"], "tokens");
}

void AddPaths(const Descriptor* message, const std::string& prefix,
              std::vector<std::string>* paths) {
  for (int i = 0; i < message->field_count(); ++i) {
    const FieldDescriptor* field = message->field(i);
    const std::string path = prefix + field->name();
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field->is_map()) {
      AddPaths(field->message_type(), path + ".", paths);
    } else {
      paths->push_back(path);
    }
  }
}

TEST(Error, EveryFieldOfARequestHasANameInJsonOrNoneThatSetsIt) {
  const std::set<std::string> not_in_json = {"sampling.repetition_window",
                                             "sampling.presence_window",
                                             "sampling.frequency_window",
                                             "sampling.banned_ids",
                                             "response.report_ids",
                                             "response.prefill_progress",
                                             "response.stream_interval",
                                             "cache.bypass",
                                             "resume_tokens",
                                             "resume_choice"};
  std::vector<std::string> paths;
  AddPaths(v1::GenerateRequest::descriptor(), "", &paths);
  EXPECT_GT(paths.size(), 30u);
  std::set<std::string> known;
  for (const Field<CompletionDraft>& field : CompletionFields()) {
    known.insert(std::string(field.name));
  }
  for (const std::string& path : paths) {
    std::string names;
    for (const Endpoint endpoint : {kText, kChat}) {
      const std::string name = JsonName(path, {.endpoint = endpoint}, -1);
      names += name;
      if (name.empty()) continue;
      EXPECT_EQ(known.count(name.substr(0, name.find('.'))), 1u) << path << ": " << name;
    }
    EXPECT_EQ(names.empty(), not_in_json.count(path) != 0) << path;
  }
}

}  // namespace
}  // namespace tandem::text
