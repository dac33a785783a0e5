// A stream joined is the whole answer, whatever the messages are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "services/text/openai/completions.h"
#include "tests/services/text/openai/answer_fixture.h"

namespace tandem::text {
namespace {

using nlohmann::json;

// Messages as a session gives them: each choice's deltas in order, choices interleaved.
class RandomSession {
 public:
  explicit RandomSession(unsigned seed) : random_(seed) {}
  Messages Make(const CompletionCall& call) {
    const int prompts = static_cast<int>(call.requests.size());
    std::vector<Messages> choices;
    Messages all;
    for (int prompt = 0; prompt < prompts; ++prompt) {
      all.emplace_back(prompt, Started(Roll(9) + 1));
      for (int choice = 0; choice < call.n; ++choice) {
        choices.push_back(Choice(call, prompt, choice));
      }
    }
    std::vector<size_t> next(choices.size(), 0);
    for (size_t left = choices.size(); left > 0;) {
      const size_t i = random_() % choices.size();
      if (next[i] == choices[i].size()) continue;
      all.push_back(choices[i][next[i]++]);
      left -= next[i] == choices[i].size();
    }
    return all;
  }

 private:
  int Roll(int sides) { return static_cast<int>(random_() % sides); }
  std::string Piece() {
    static const char* const kPieces[] = {"a",
                                          " the",
                                          "\n",
                                          "\"",
                                          "\\",
                                          "\xE6\x97\xA5",
                                          "\xF0\x9F\x98\x80",
                                          "\xE2\x80\xA8",
                                          "\x02",
                                          "</s>",
                                          "\xEF\xBF\xBD",
                                          "12"};
    return kPieces[Roll(std::size(kPieces))];
  }
  void AddToken(const std::string& bytes, bool chosen, v1::Delta* delta) {
    delta->add_token_ids(Roll(1000));
    v1::PositionLogprobs& position = *delta->add_logprobs();
    if (!chosen) return;
    Fill(position.mutable_chosen(), delta->token_ids().at(delta->token_ids_size() - 1), bytes,
         Roll(9) == 0 ? -INFINITY : -static_cast<float>(Roll(1000)) / 77.0f, Roll(3));
    for (int i = Roll(3); i > 0; --i) Fill(position.add_top(), Roll(1000), Piece(), -0.5f, 0);
  }
  v1::GenerateResponse Deltas(int choice, bool first_of_echo, std::string* held) {
    v1::GenerateResponse message = Text(choice, "");
    std::string text = *held;
    held->clear();
    for (int tokens = Roll(3) + 1; tokens > 0; --tokens) {
      const std::string piece = Piece();
      const size_t cut = piece.size() > 2 && Roll(2) == 0 ? 1 : piece.size();
      AddToken(piece.substr(0, cut), !first_of_echo, message.mutable_delta());
      first_of_echo = false;
      if (cut < piece.size()) AddToken(piece.substr(cut), true, message.mutable_delta());
      text += piece;
    }
    if (Roll(4) == 0) {
      *held = text;
    } else {
      message.mutable_delta()->set_text(text);
    }
    return message;
  }
  Messages Choice(const CompletionCall& call, int prompt, int choice) {
    Messages messages;
    std::string held;
    for (int i = 0, n = call.shape.echo ? Roll(4) : 0; i < n; ++i) {
      messages.emplace_back(prompt, Deltas(choice, i == 0, &held));
      messages.back().second.mutable_delta()->set_echo(true);
    }
    for (int i = Roll(9); i > 0; --i) messages.emplace_back(prompt, Deltas(choice, false, &held));
    if (!held.empty()) messages.emplace_back(prompt, Text(choice, held));
    const auto reason = static_cast<v1::FinishReason>(1 + Roll(6));
    messages.emplace_back(prompt, Finished(choice, reason, 9, Roll(20)));
    messages.back().second.mutable_finished()->set_stop(Piece());
    return messages;
  }

  std::mt19937 random_;
};

void Join(const json& part, json* whole) {
  for (const auto& member : part.items()) {
    json& to = (*whole)[member.key()];
    if (member.value().is_array() && to.is_array()) {
      to.insert(to.end(), member.value().begin(), member.value().end());
    } else if (!member.value().is_null()) {
      to = member.value();
    }
  }
}

// What a client makes of a stream: of each choice text and lists joined, the rest as it came last.
json Joined(const std::vector<json>& events, bool chat) {
  json whole;
  for (const json& event : events) {
    for (const char* name : {"id", "created", "model", "system_fingerprint"}) {
      whole[name] = event.at(name);
    }
    if (event.contains("usage") && !event["usage"].is_null()) whole["usage"] = event["usage"];
    for (const json& chunk : event["choices"]) {
      const size_t index = chunk["index"];
      while (whole["choices"].size() <= index) {
        whole["choices"].push_back({{"text", ""}, {"logprobs", nullptr}});
      }
      json& choice = whole["choices"][index];
      const std::string text = choice["text"];
      for (const char* name : {"index", "finish_reason", "stop_reason", "tandem"}) {
        if (chunk.contains(name)) choice[name] = chunk[name];
      }
      for (const char* name : {"token_ids", "prompt_token_ids"}) {
        if (chunk.contains(name)) Join({{name, chunk[name]}}, &choice);
      }
      if (!chunk["logprobs"].is_null()) Join(chunk["logprobs"], &choice["logprobs"]);
      choice["text"] =
          text + (chat ? chunk["delta"].value("content", "") : chunk.at("text").get<std::string>());
    }
  }
  return whole;
}

TEST(CompletionAnswer, B001_AStreamJoinedIsTheWholeAnswer) {
  for (unsigned seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    const bool chat = seed % 2 == 1;
    CompletionCall call = Call(chat ? Endpoint::kChatCompletions : Endpoint::kCompletions,
                               chat ? 1 : 1 + seed / 2 % 3, 1 + static_cast<int>(seed / 6 % 3));
    call.shape.logprobs = (seed >> 1 & 1) != 0;
    call.shape.token_ids = (seed >> 2 & 1) != 0;
    call.shape.tokens_as_ids = (seed >> 3 & 1) != 0;
    call.shape.echo = !chat && (seed >> 4 & 1) != 0;
    call.prompt_only = call.shape.echo && (seed >> 5 & 1) != 0;
    const Messages messages = RandomSession(seed).Make(call);
    json whole = json::parse(Answer(call, messages));
    call.stream = call.include_usage = true;
    json joined = Joined(Events(Answer(call, messages)), chat);
    ASSERT_EQ(whole["choices"].size(), joined["choices"].size());
    for (size_t i = 0; i < whole["choices"].size(); ++i) {
      json& expected = whole["choices"][i];
      if (chat) {
        expected["text"] = expected["message"]["content"];
        expected.erase("message");
      }
      json& got = joined["choices"][i];
      // A choice that no token came of has empty lists, which no chunk has.
      if (call.shape.logprobs && got["logprobs"].is_null()) {
        for (const json& list : expected["logprobs"]) ASSERT_TRUE(list.empty());
        expected.erase("logprobs"), got.erase("logprobs");
      }
      for (const char* name : {"token_ids", "prompt_token_ids"}) {
        if (expected.contains(name) && !got.contains(name)) {
          ASSERT_TRUE(expected[name].empty());
          expected.erase(name);
        }
      }
      ASSERT_EQ(got, expected);
      std::string text;
      for (const auto& [prompt, message] : messages) {
        const bool of = message.has_delta() &&
                        prompt * call.n + message.delta().choice() == static_cast<int>(i) &&
                        (message.delta().echo() || !call.prompt_only);
        if (of) text += message.delta().text();
      }
      ASSERT_EQ(expected["text"], text);
      if (call.shape.logprobs && !chat && expected.contains("logprobs")) {
        const json& logprobs = expected["logprobs"];
        for (const char* name : {"token_logprobs", "top_logprobs", "text_offset"}) {
          ASSERT_EQ(logprobs[name].size(), logprobs["tokens"].size()) << name;
        }
        const json& offsets = logprobs["text_offset"];
        // The first token of an echo may be any part of a text that comes later.
        ASSERT_TRUE(call.shape.echo || std::is_sorted(offsets.begin(), offsets.end())) << offsets;
      }
    }
    ASSERT_EQ(joined["usage"], whole["usage"]);
    ASSERT_EQ(joined["id"], whole["id"]);
  }
}

}  // namespace
}  // namespace tandem::text
