// A whole text tier in this process with its HTTP API open, scripted workers behind it, and clients
// of both kinds in front.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/services/text/service_fixture.h"
#include "tests/support/raw_client.h"

namespace tandem::text {

class HttpTest : public ServiceTest {
 protected:
  using Json = nlohmann::json;
  using RawClient = test::RawClient;
  using RawResponse = test::RawResponse;

  // What the scripted worker gives a session in one step, without drafts.
  static constexpr int64_t kTokensOfStep = 1 + kRunAhead;

  HttpTest() { options_.http.listen = "127.0.0.1:0"; }

  int http() const { return server_->http_port(); }
  RawResponse Post(const std::string& path, const Json& body, const std::string& headers = "") {
    return test::Fetch(http(), "POST", path, body.dump(), headers);
  }
  RawResponse Get(const std::string& path, const std::string& headers = "") {
    return test::Fetch(http(), "GET", path, "", headers);
  }
  static Json ParseJson(const std::string& text) { return Json::parse(text, nullptr, false); }

  // As ServiceTest::Prompt.
  static Json Body(const Json& prompt, int max_tokens, bool stream = false) {
    return {{"prompt", prompt},
            {"max_tokens", max_tokens},
            {"temperature", 0},
            {"ignore_eos", true},
            {"stream", stream}};
  }
  static std::string StreamText(const std::string& prompt, int max_tokens) {
    return test::RequestText("POST", "/v1/completions", Body(prompt, max_tokens, true).dump());
  }

  struct Events {
    std::map<int, std::string> text;     // by choice
    std::map<int, std::string> reasons;  // finish_reason, by choice
    std::vector<Json> errors;
    int count = 0;      // of events, without [DONE]
    bool done = false;  // [DONE] came, last
  };
  static Events ParseEvents(const std::string& body) {
    Events out;
    size_t at = 0;
    for (size_t end = body.find("\n\n"); end != std::string::npos; end = body.find("\n\n", at)) {
      const std::string event = body.substr(at, end - at);
      at = end + 2;
      EXPECT_FALSE(out.done) << "something comes behind [DONE]";
      EXPECT_EQ(event.substr(0, 6), "data: ");
      if (event == "data: [DONE]") {
        out.done = true;
        continue;
      }
      ++out.count;
      const Json json = ParseJson(event.substr(6));
      EXPECT_FALSE(json.is_discarded()) << event;
      if (json.is_discarded()) continue;
      if (json.contains("error")) out.errors.push_back(json["error"]);
      if (!json.contains("choices")) continue;
      for (const Json& choice : json["choices"]) {
        const int index = choice["index"];
        out.text[index] += choice.value("text", "");
        if (choice["finish_reason"].is_string()) out.reasons[index] = choice["finish_reason"];
      }
    }
    EXPECT_EQ(at, body.size()) << "the last event is not whole";
    return out;
  }

  bool EverythingIsFree() {
    return Eventually([this] { return LiveSessions() == 0 && server_->active() == 0; });
  }
  int64_t Extends() const {
    int64_t extends = 0;
    for (const auto& worker : workers_) extends += worker->totals().extends;
    return extends;
  }

  static test::ScriptedWorkerOptions Paced(std::chrono::milliseconds step_time,
                                           int32_t context_length = 100'000) {
    test::ScriptedWorkerOptions options;
    options.step_time = step_time;
    options.decoder.context_length = context_length;
    return options;
  }
};

}  // namespace tandem::text
