// Bodies that are a little wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <string>
#include <string_view>

#include "services/text/openai/completions.h"

namespace tandem::text {
namespace {

constexpr Endpoint kText = Endpoint::kCompletions;
constexpr Endpoint kChat = Endpoint::kChatCompletions;

// A valid body of the endpoint with these members more.
std::string Body(Endpoint endpoint, const std::string& members) {
  const std::string input =
      endpoint == kChat ? R"("messages":[{"role":"user","content":"hi"}])" : R"("prompt":"hi")";
  return "{" + input + (members.empty() ? "" : ",") + members + "}";
}

// Replaces, removes, doubles or moves a piece.
std::string Mutated(std::string body, std::mt19937& random) {
  static constexpr std::string_view kPieces[] = {
      "null", "true",       "-1",    "0",        "1e400",       "3.0",     "18446744073709551616",
      "\"\"", "[]",         "{}",    "[[",       "{\"a\":",     "\\ud800", "\\u0000",
      "\xff", "\xF0\x9F",   ",",     ":",        "\"",          "]",       "}",
      "NaN",  "\"prompt\"", "\"n\"", "\"stop\"", "\"\\u2028\"", "1",       "\"text\""};
  for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits) {
    const size_t at = random() % (body.size() + 1);
    const size_t size = std::min<size_t>(random() % 12, body.size() - at);
    switch (random() % 4) {
      case 0:
        body.replace(at, size, kPieces[random() % std::size(kPieces)]);
        break;
      case 1:
        body.erase(at, size);
        break;
      case 2:
        body.insert(at, body.substr(random() % (body.size() + 1), size));
        break;
      default:
        if (at < body.size()) body[at] = static_cast<char>(random());
    }
  }
  return body;
}

TEST(CompletionCall, MutatedBodiesAreReadOrRefusedByWhatIsWrong) {
  const std::string bodies[] = {
      Body(kText, R"("n":2,"seed":7,"temperature":0.5,"logit_bias":{"5":-1},"stop":["a","\n"])"),
      Body(kText, R"("echo":true,"logprobs":5,"max_tokens":0,"stream":true)"),
      R"({"prompt":[[1,2,3],[4]],"top_k":-1,"allowed_token_ids":[1,2],"model":"m"})",
      Body(kChat, R"("logprobs":true,"top_logprobs":2,"response_format":{"type":"text"})"),
      R"({"messages":[{"role":"system","content":[{"type":"text","text":"\ud83d\ude00"}]},
          {"role":"user","content":"x"}],"max_completion_tokens":5,"tools":[]})",
  };
  std::mt19937 random(20);
  int accepted = 0;
  int named = 0;
  constexpr int kMutations = 20'000;
  for (int i = 0; i < kMutations; ++i) {
    const std::string body = Mutated(bodies[i % std::size(bodies)], random);
    const auto call = ParseCompletionCall(i % std::size(bodies) < 3 ? kText : kChat, body);
    accepted += call.ok();
    if (call.ok()) {
      ASSERT_FALSE(call->requests.empty()) << body;
      continue;
    }
    ASSERT_TRUE(absl::IsInvalidArgument(call.status())) << body << ": " << call.status();
    const std::string message(call.status().message());
    ASSERT_TRUE(!ParamOf(call.status()).empty() || message.rfind("the body", 0) == 0) << message;
    named += !ParamOf(call.status()).empty();
  }
  EXPECT_GT(accepted, kMutations / 100);
  EXPECT_GT(named, kMutations / 100);
}

}  // namespace
}  // namespace tandem::text
