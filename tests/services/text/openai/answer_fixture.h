// Messages that answer a call, made by hand, and what CompletionAnswer makes of them.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "services/text/openai/completions.h"

namespace tandem::text {

inline CompletionCall Call(Endpoint endpoint, int prompts = 1, int n = 1) {
  CompletionCall call;
  call.endpoint = call.shape.endpoint = call.names.endpoint = endpoint;
  call.requests.resize(prompts);
  call.n = n;
  return call;
}

inline v1::GenerateResponse Started(int prompt_tokens = 5) {
  v1::GenerateResponse message;
  v1::Started& started = *message.mutable_started();
  started.set_request_id("r1");
  started.set_seed(18446744073709551615u);
  started.set_prompt_tokens(prompt_tokens);
  started.set_model("tiny \"m\"");
  started.set_worker_fingerprint("f00d");
  return message;
}

inline v1::GenerateResponse Text(int choice, std::string_view text) {
  v1::GenerateResponse message;
  message.mutable_delta()->set_choice(choice);
  message.mutable_delta()->set_text(std::string(text));
  return message;
}

inline v1::GenerateResponse Finished(int choice, v1::FinishReason reason, int prompt_tokens = 5,
                                     int output_tokens = 3) {
  v1::GenerateResponse message;
  v1::Finished& finished = *message.mutable_finished();
  finished.set_choice(choice);
  finished.set_reason(reason);
  finished.mutable_usage()->set_prompt_tokens(prompt_tokens);
  finished.mutable_usage()->set_cached_tokens(2);
  finished.mutable_usage()->set_output_tokens(output_tokens);
  finished.mutable_timings()->mutable_decode()->set_nanos(1'500'000);
  finished.mutable_counters()->set_from_lists(3);
  return message;
}

inline void Fill(v1::TokenLogprob* token, int32_t id, std::string_view bytes, float logprob,
                 int rank) {
  token->set_id(id);
  token->set_token(std::string(bytes));
  token->set_logprob(logprob);
  token->set_rank(rank);
}

using Messages = std::vector<std::pair<int, v1::GenerateResponse>>;

inline std::string Answer(const CompletionCall& call, const Messages& messages) {
  CompletionAnswer answer(call, "abc", 1700000000);
  std::string out;
  for (const auto& [prompt, message] : messages) answer.Add(prompt, message, &out);
  answer.Finish(&out);
  return out;
}

// Every event of a stream but [DONE], which must be its last.
inline std::vector<nlohmann::json> Events(const std::string& stream) {
  std::vector<nlohmann::json> events;
  size_t at = 0;
  bool done = false;
  while (at < stream.size()) {
    const size_t end = stream.find("\n\n", at);
    EXPECT_NE(end, std::string::npos);
    const std::string event = stream.substr(at, end - at);
    at = end + 2;
    EXPECT_EQ(event.substr(0, 6), "data: ");
    EXPECT_EQ(event.find('\n'), std::string::npos);
    EXPECT_FALSE(done) << "an event behind [DONE]";
    if (event == "data: [DONE]") {
      done = true;
    } else {
      events.push_back(nlohmann::json::parse(event.substr(6)));
    }
  }
  EXPECT_TRUE(done);
  return events;
}

}  // namespace tandem::text
