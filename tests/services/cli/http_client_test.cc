// Completions over HTTP against a server that answers as each test says.
#include "services/cli/http_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>

#include "services/cli/http_target.h"
#include "tests/services/cli/canned_http_server.h"

namespace tandem::cli {
namespace {

using test::CannedHttpServer;
using testing::HasSubstr;

std::string Chunk(const std::string& bytes) {
  char size[16];
  std::snprintf(size, sizeof(size), "%zx\r\n", bytes.size());
  return size + bytes + "\r\n";
}
std::string Event(const std::string& data) { return Chunk("data: " + data + "\n\n"); }
const char kStreamHead[] =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const char kStreamEnd[] = "0\r\n\r\n";
std::string Plain(const std::string& status, const std::string& body) {
  return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         body;
}
std::vector<std::string> Completion() {
  return {kStreamHead,
          Event(R"({"choices": [{"index": 0, "text": ""}]})"),
          Event(R"({"choices": [{"index": 0, "text": "Hel"}]})"),
          Event(R"({"choices": [{"index": 0, "text": "lo", "finish_reason": "length"}]})"),
          Event(R"({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5, )"
                R"("prompt_tokens_details": {"cached_tokens": 4}}})"),
          Event("[DONE]"),
          kStreamEnd};
}

class HttpTest : public testing::Test {
 protected:
  void Serve(CannedHttpServer::Answers answers, double timeout_seconds = 30) {
    server_ = std::make_unique<CannedHttpServer>(std::move(answers));
    auto client = HttpClient::Make({.url = *ParseHttpUrl(server_->url() + "/base/"),
                                    .api_key = "secret",
                                    .timeout_seconds = timeout_seconds});
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    auto prompts = PromptSource::Random({.tokens = 3, .vocab_size = 100}, 1);
    prompts_ = std::make_unique<PromptSource>(*std::move(prompts));
    v1::GenerateRequest request;
    request.set_model("m");
    request.set_max_tokens(5);
    request.mutable_stopping()->set_ignore_eos(true);
    target_ = std::make_unique<HttpTarget>(client_.get(), *CompletionBody(request), prompts_.get(),
                                           &meter_);
  }
  std::future<LoadResult> Send(int64_t number = 0) {
    auto promise = std::make_shared<std::promise<LoadResult>>();
    target_->Send(number, [promise](LoadResult result) { promise->set_value(std::move(result)); });
    return promise->get_future();
  }

  std::unique_ptr<CannedHttpServer> server_;
  std::unique_ptr<HttpClient> client_;
  std::unique_ptr<PromptSource> prompts_;
  LoadMeter meter_;
  std::unique_ptr<HttpTarget> target_;
};

TEST_F(HttpTest, AStreamedCompletionIsReadToItsUsageAndTheConnectionIsUsedAgain) {
  std::mutex mutex;
  std::string request;
  Serve([&](const std::string& bytes) {
    std::lock_guard lock(mutex);
    request = bytes;
    return Completion();
  });
  for (int i = 0; i < 3; ++i) {
    const LoadResult result = Send(i).get();
    EXPECT_EQ(result.error, "");
    EXPECT_EQ(result.output_tokens, 5) << "the usage counts";
    EXPECT_EQ(result.prompt_tokens, 9);
    EXPECT_EQ(result.cached_tokens, 4);
    EXPECT_EQ(result.gaps.size(), 1u) << "two pieces with text";
    EXPECT_GT(result.first, 0);
    EXPECT_GE(result.last, result.first);
    EXPECT_GE(result.done, result.last);
    EXPECT_FALSE(result.server.has_value());
  }
  EXPECT_EQ(server_->connections(), 1);
  EXPECT_EQ(meter_.output_tokens, 15);
  std::lock_guard lock(mutex);
  EXPECT_THAT(request, HasSubstr("POST /base/v1/completions HTTP/1.1\r\n"));
  EXPECT_THAT(request, HasSubstr("Authorization: Bearer secret\r\n"));
  const auto body = nlohmann::json::parse(request.substr(request.find("\r\n\r\n")), nullptr, false);
  ASSERT_TRUE(body.is_object());
  EXPECT_EQ(body["prompt"], prompts_->Get(2).ids);
  EXPECT_EQ(body["max_tokens"], 5);
  EXPECT_EQ(body["stream"], true);
  EXPECT_EQ(body["ignore_eos"], true);
  EXPECT_EQ(body["stream_options"]["include_usage"], true);
  EXPECT_FALSE(body.contains("temperature"));
}

TEST_F(HttpTest, AnErrorAnswerIsItsMessage) {
  Serve([](const std::string&) -> std::vector<std::string> {
    return {Plain("429 Too Many", R"({"error": {"message": "slow\ndown", "type": "x"}})")};
  });
  EXPECT_EQ(Send().get().error, "HTTP 429: slow down");
}

TEST_F(HttpTest, AnErrorEventAndAStreamThatEndsEarlyAreErrors) {
  Serve([](const std::string&) -> std::vector<std::string> {
    return {kStreamHead, Event(R"({"choices": [{"text": "x"}]})"),
            Event(R"({"error": {"message": "worker lost"}})"), kStreamEnd};
  });
  const LoadResult failed = Send().get();
  EXPECT_EQ(failed.error, "error event: worker lost");
  EXPECT_EQ(failed.output_tokens, 1) << "without a usage a piece counts as a token";

  Serve([](const std::string&) -> std::vector<std::string> {
    return {kStreamHead, Event(R"({"choices": [{"text": "x"}]})"), kStreamEnd};
  });
  EXPECT_EQ(Send().get().error, "the stream ended before [DONE]");

  Serve([](const std::string&) -> std::vector<std::string> {
    return {kStreamHead, Event("no json"), Event("[DONE]"), kStreamEnd};
  });
  EXPECT_EQ(Send().get().error, "an event is no JSON object");

  Serve([](const std::string&) -> std::vector<std::string> { return {kStreamHead, ""}; });
  EXPECT_THAT(Send().get().error, HasSubstr("UNAVAILABLE"));
}

TEST_F(HttpTest, AKeptConnectionThatTheServerHasClosedIsReplaced) {
  std::atomic<int> requests{0};
  Serve([&requests](const std::string&) -> std::vector<std::string> {
    std::vector<std::string> answer = Completion();
    // The second request on a connection finds it closed.
    if (++requests % 2 == 0) answer = {""};
    return answer;
  });
  EXPECT_EQ(Send(0).get().error, "");
  EXPECT_EQ(Send(1).get().error, "");
  EXPECT_EQ(server_->connections(), 2);
}

TEST_F(HttpTest, CancelAllEndsWhatIsInFlight) {
  std::promise<void> arrived;
  Serve([&arrived](const std::string&) -> std::vector<std::string> {
    arrived.set_value();
    return {kStreamHead};
  });
  auto result = Send();
  arrived.get_future().wait();
  target_->CancelAll();
  EXPECT_TRUE(result.get().cancelled);
}

TEST_F(HttpTest, CancelAllEndsWhatHasNoConnectionYet) {
  std::atomic<int> requests{0};
  Serve(
      [&requests](const std::string&) -> std::vector<std::string> {
        ++requests;
        return {kStreamHead};
      },
      0);
  auto result = Send();
  target_->CancelAll();  // while the host is looked up
  EXPECT_TRUE(result.get().cancelled);
  EXPECT_EQ(requests, 0);
}

TEST_F(HttpTest, ATimeoutIsDeadlineExceeded) {
  Serve([](const std::string&) -> std::vector<std::string> { return {kStreamHead}; }, 0.05);
  const LoadResult result = Send().get();
  EXPECT_THAT(result.error, HasSubstr("DEADLINE_EXCEEDED"));
  EXPECT_FALSE(result.cancelled);
}

TEST_F(HttpTest, NobodyThereIsUnavailableWithTheAddress) {
  auto client =
      HttpClient::Make({.url = *ParseHttpUrl("http://127.0.0.1:1"), .timeout_seconds = 30});
  ASSERT_TRUE(client.ok());
  const auto model = FindHttpModel(**client, "");
  EXPECT_EQ(model.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(model.status().message()), HasSubstr("127.0.0.1:1"));
}

TEST_F(HttpTest, TheModelIsTheFirstOrTheOneOfThatName) {
  std::string body = R"({"data": [{"id": "a"}, 3, {"id": "b", "vocab_size": 7}]})";
  Serve([&body](const std::string& request) -> std::vector<std::string> {
    EXPECT_THAT(request, HasSubstr("GET /base/v1/models HTTP/1.1"));
    return {Plain("200 OK", body)};
  });
  EXPECT_EQ((*FindHttpModel(*client_, ""))["id"], "a");
  EXPECT_EQ((*FindHttpModel(*client_, "b"))["vocab_size"], 7);
  EXPECT_EQ(FindHttpModel(*client_, "c").status().code(), absl::StatusCode::kNotFound);
  body = "[]";
  EXPECT_EQ(FindHttpModel(*client_, "").status().code(), absl::StatusCode::kUnavailable);
}

TEST(CompletionBody, RefusesWhatHasNoNameThere) {
  v1::GenerateRequest request;
  request.mutable_sampling()->set_presence_window(3);
  const auto body = CompletionBody(request);
  EXPECT_EQ(body.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(body.status().message()), HasSubstr("--presence-window"));
}

TEST(HttpUrl, IsTakenApart) {
  const auto plain = ParseHttpUrl("http://localhost");
  ASSERT_TRUE(plain.ok());
  EXPECT_FALSE(plain->tls);
  EXPECT_EQ(plain->host, "localhost");
  EXPECT_EQ(plain->port, "80");
  EXPECT_EQ(plain->path, "");
  const auto tls = ParseHttpUrl("https://[::1]:8443/a/b/");
  ASSERT_TRUE(tls.ok());
  EXPECT_TRUE(tls->tls);
  EXPECT_EQ(tls->host, "::1");
  EXPECT_EQ(tls->port, "8443");
  EXPECT_EQ(tls->path, "/a/b");
  EXPECT_EQ(tls->Authority(), "[::1]:8443");
  for (const char* bad : {"localhost:80", "ftp://x", "http://", "http://x:0", "http://x:65536",
                          "http://x:", "http://x y", "http://u@x", "http://x/?q", "http://:80"}) {
    EXPECT_EQ(ParseHttpUrl(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace tandem::cli
