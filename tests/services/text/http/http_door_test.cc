// Paths, methods, keys, origins, ids, files: all that stands around a completion.
#include <gmock/gmock.h>

#include <fstream>

#include "services/text/http/request_headers.h"
#include "tests/services/text/http/http_fixture.h"
#include "tests/support/process.h"

namespace tandem::text {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

constexpr WebFile kFiles[] = {
    {"/", "text/html; charset=utf-8", "\"1\"", "<!doctype html>"},
    {"/playground/app.js", "text/javascript", "\"2\"", "let x;"},
};

TEST_F(HttpTest, HealthSaysWhetherAWorkerTakesRequests) {
  test::ScriptedWorker& worker = AddWorker();
  worker.Kill();
  StartServer();
  const RawResponse none = Get("/health");
  EXPECT_EQ(none.status, 503);
  EXPECT_THAT(none.body, HasSubstr("no worker"));
  worker.Start();
  EXPECT_TRUE(Eventually([this] { return Get("/health").status == 200; }));
}

TEST_F(HttpTest, ModelsAreListed) {
  AddWorker();
  Serve();
  const Json list = ParseJson(Get("/v1/models").body);
  EXPECT_EQ(list["data"][0]["id"], "scripted");
  const RawResponse one = Get("/v1/models/scripted");
  EXPECT_EQ(one.status, 200);
  EXPECT_EQ(ParseJson(one.body)["id"], "scripted");
  EXPECT_EQ(Get("/v1/models/organisation%2Fother").status, 404);
  EXPECT_EQ(Get("/v1/models/organisation/other").status, 404);
}

TEST_F(HttpTest, TokenizesAndBack) {
  AddWorker();
  Serve();
  const Json tokens = ParseJson(Post("/tokenize", {{"prompt", "hello \xC3\xA9"}}).body);
  EXPECT_EQ(tokens["count"], 4);
  const Json text = ParseJson(Post("/detokenize", {{"tokens", tokens["tokens"]}}).body);
  EXPECT_EQ(text["prompt"], "hello \xC3\xA9");
  EXPECT_EQ(Post("/detokenize", {{"tokens", {100'000}}}).status, 400);
  EXPECT_EQ(Post("/tokenize", {{"prompt", 1}}).status, 400);
}

TEST_F(HttpTest, UnknownPathsAndMethodsAreNamed) {
  AddWorker();
  Serve();
  const RawResponse nowhere = Get("/v1/nothing");
  EXPECT_EQ(nowhere.status, 404);
  EXPECT_THAT(ParseJson(nowhere.body)["error"]["message"], HasSubstr("/v1/nothing"));
  EXPECT_THAT(Get("/metrics").body, HasSubstr("tandem_text_http_connections 1\n"));
  const RawResponse get = Get("/v1/completions");
  EXPECT_EQ(get.status, 405);
  EXPECT_EQ(get.Header("allow"), "POST");
  const RawResponse post = Post("/health", {});
  EXPECT_EQ(post.status, 405);
  EXPECT_EQ(post.Header("allow"), "GET, HEAD");
  EXPECT_EQ(test::Fetch(http(), "OPTIONS", "/v1/models").status, 405) << "no origin is allowed";
  EXPECT_EQ(test::Fetch(http(), "HEAD", "/version").status, 200);
  EXPECT_TRUE(ParseJson(Get("/version").body)["version"].is_string());
  EXPECT_EQ(ParseJson(Get("/openapi.json").body)["openapi"].get<std::string>().substr(0, 2), "3.");
}

TEST_F(HttpTest, WhatTheTransportRefusesHasTheSameShape) {
  AddWorker();
  options_.http.max_body_bytes = 1000;
  Serve();
  const RawResponse large = Post("/v1/completions", Body(std::string(1000, 'x'), 5));
  EXPECT_EQ(large.status, 413);
  EXPECT_THAT(ParseJson(large.body)["error"]["message"], HasSubstr("1000 bytes"));
}

TEST_F(HttpTest, B177_RequestIdsAreCheckedAndComeBack) {
  AddWorker();
  Serve();
  const RawResponse named = Post("/v1/completions", Body("x", 2), "X-Request-Id: my request\r\n");
  EXPECT_EQ(named.Header("x-request-id"), "my request");
  EXPECT_EQ(ParseJson(named.body)["choices"][0]["tandem"]["request_id"], "my request");
  EXPECT_EQ(Post("/v1/completions", Body("x", 2)).Header("x-request-id").size(), 32u);
  const RawResponse failed = Post("/v1/completions", {{"prompt", 1}}, "x-request-id: failing\r\n");
  EXPECT_EQ(failed.status, 400);
  EXPECT_EQ(failed.Header("x-request-id"), "failing");
  const RawResponse bad =
      Post("/v1/completions", Body("x", 2), "x-request-id: " + std::string(129, 'i') + "\r\n");
  EXPECT_EQ(bad.status, 400);
  EXPECT_THAT(bad.body, AllOf(HasSubstr("x-request-id"), HasSubstr("128")));
  EXPECT_EQ(Post("/v1/completions", Body("x", 2), "x-request-id: \xC3\xA9\r\n").status, 400);
  // The body may name it too, but not another one. What no header can hold is in none.
  Json body = Body("x", 2);
  body["request_id"] = "of the body";
  EXPECT_EQ(Post("/v1/completions", body).Header("x-request-id"), "of the body");
  EXPECT_EQ(Post("/v1/completions", body, "x-request-id: other\r\n").status, 400);
  body["request_id"] = "two\r\nlines: x";
  const RawResponse lines = Post("/v1/completions", body);
  EXPECT_EQ(lines.status, 200);
  EXPECT_EQ(lines.Header("x-request-id"), "");
  EXPECT_EQ(lines.Header("lines"), "");
}

TEST(RequestHeaders, TimeoutsAreDecimalSecondsInTheirRange) {
  const auto deadline = [](const std::string& text) {
    HttpHeaders headers;
    headers.Add("X-Request-Timeout", text);
    return DeadlineOf(headers, 1000);
  };
  EXPECT_EQ(*DeadlineOf({}, 1000), kNoDeadline);
  EXPECT_EQ(*deadline("1.5"), 1000 + 1'500'000'000);
  EXPECT_EQ(*deadline("0.001"), 1000 + 1'000'000);
  EXPECT_EQ(*deadline("86400"), 1000 + 86400 * kNanosPerSecond);
  for (const char* bad : {"", "0", "0.0001", "86401", "-1", "1e2", "inf", "nan", "1 s", "1,5",
                          "1.5.1", "+1", "0x10"}) {
    EXPECT_EQ(deadline(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(deadline(bad).status().message()), HasSubstr("86400")) << bad;
  }
}

TEST_F(HttpTest, ACompressedBodyIsRefusedByName) {
  AddWorker();
  Serve();
  const RawResponse refused = Post("/v1/completions", Body("x", 2), "Content-Encoding: gzip\r\n");
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("Content-Encoding is gzip"));
}

TEST_F(HttpTest, AHeaderThatIsThereTwiceIsRefusedByName) {
  AddWorker();
  Serve();
  for (const std::string name :
       {"X-Request-Id", "X-Request-Timeout", "Authorization", "Content-Encoding"}) {
    const RawResponse refused =
        Post("/v1/completions", Body("x", 2), name + ": 1\r\n" + name + ": 2\r\n");
    EXPECT_EQ(refused.status, 400) << name;
    EXPECT_THAT(refused.body, HasSubstr(name + " is sent 2 times")) << name;
  }
}

TEST_F(HttpTest, GenerationsRefusedByTheirHeadersAreCounted) {
  AddWorker();
  Serve();
  Post("/v1/completions", Body("x", 2), "X-Request-Timeout: 0\r\n");
  Post("/v1/completions", Body("x", 2), "Content-Encoding: gzip\r\n");
  Post("/v1/chat/completions", Body("x", 2), "X-Request-Id: " + std::string(129, 'i') + "\r\n");
  Post("/v1/completions", Body("x", 2), "X-Request-Id: a\r\nX-Request-Id: b\r\n");
  Post("/tokenize", {{"prompt", "x"}}, "X-Request-Id: a\r\nX-Request-Id: b\r\n");  // is none
  const std::string metrics = server_->MetricsText();
  EXPECT_THAT(metrics, HasSubstr("requests_total{door=\"http\",status=\"INVALID_ARGUMENT\"} 4\n"));
  EXPECT_THAT(metrics, HasSubstr("refused_requests_total{door=\"http\",reason=\"invalid\"} 4\n"));
}

class ApiKeyTest : public HttpTest {
 protected:
  std::string Write(const std::string& content) {
    const std::string path = folder_.File("keys");
    std::ofstream(path) << content;
    return path;
  }
  const test::TemporaryFolder folder_;
};

TEST_F(ApiKeyTest, BothDoorsAskForAKeyAndWhatIsOpenDoesNot) {
  AddWorker();
  options_.api_key_file = Write("first-key\n\nsecond-key\r\n");
  options_.http_door.files = kFiles;
  Serve();
  for (const char* open : {"/health", "/version", "/", "/playground/app.js"}) {
    EXPECT_EQ(Get(open).status, 200) << open;
  }
  for (const char* closed : {"/v1/models", "/v1/models/scripted", "/metrics", "/openapi.json"}) {
    EXPECT_EQ(Get(closed).status, 401) << closed;
    EXPECT_EQ(Get(closed, "Authorization: Bearer first-key\r\n").status, 200) << closed;
  }
  const RawResponse none = Post("/v1/completions", Body("x", 2));
  EXPECT_EQ(none.status, 401);
  EXPECT_EQ(none.Header("www-authenticate"), "Bearer");
  EXPECT_EQ(ParseJson(none.body)["error"]["code"], "invalid_api_key");
  for (const char* bad : {"first-key", "Bearer", "Bearer ", "Bearer first-ke", "Bearer first-key2",
                          "Basic first-key", "Bearer first-key second-key"}) {
    const std::string header = std::string("Authorization: ") + bad + "\r\n";
    EXPECT_EQ(Post("/v1/completions", Body("x", 2), header).status, 401) << bad;
  }
  EXPECT_EQ(Post("/v1/completions", Body("x", 2), "authorization: bearer second-key\r\n").status,
            200);
  // gRPC.
  EXPECT_EQ(Ask(Prompt("x", 2)).status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  v1::ListModelsResponse models;
  {
    grpc::ClientContext context;
    EXPECT_EQ(stub_->ListModels(&context, {}, &models).error_code(),
              grpc::StatusCode::UNAUTHENTICATED);
  }
  grpc::ClientContext context;
  context.AddMetadata("authorization", "Bearer first-key");
  EXPECT_TRUE(stub_->ListModels(&context, {}, &models).ok());
  EXPECT_EQ(server_->active(), 0);
  const std::string metrics = server_->MetricsText();
  EXPECT_THAT(metrics, HasSubstr("refused_requests_total{door=\"http\",reason=\"no_key\"} 8\n"));
  EXPECT_THAT(metrics, HasSubstr("refused_requests_total{door=\"grpc\",reason=\"no_key\"} 1\n"));
}

TEST_F(ApiKeyTest, TheDocumentSaysWhichPathsNeedAKey) {
  AddWorker();
  options_.api_key_file = Write("first-key\n");
  Serve();
  const Json document = ParseJson(Get("/openapi.json", "Authorization: Bearer first-key\r\n").body);
  int open = 0;
  int closed = 0;
  for (const auto& path : document["paths"].items()) {
    for (const auto& operation : path.value().items()) {
      const Json& said = operation.value();
      const bool needs_key = !said.contains("security");
      EXPECT_EQ(said["responses"].contains("401"), needs_key) << path.key();
      const RawResponse answer =
          operation.key() == "post" ? Post(path.key(), Json::object()) : Get(path.key());
      EXPECT_EQ(answer.status, needs_key ? 401 : 200) << path.key();
      ++(needs_key ? closed : open);
    }
  }
  EXPECT_EQ(open, 2);
  EXPECT_EQ(closed, 8);
}

TEST_F(ApiKeyTest, KeyFilesAreCheckedByLineAndNoKeyIsShown) {
  const auto message = [&](const std::string& content) {
    return std::string(ApiKeys::Load(Write(content)).status().message());
  };
  EXPECT_EQ(ApiKeys::Load("/none").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(message("\n\n"), HasSubstr("no key"));
  EXPECT_THAT(message("good\nse cret\n"),
              AllOf(HasSubstr("line 2"), testing::Not(HasSubstr("cret"))));
  EXPECT_THAT(message(std::string(513, 'k')), AllOf(HasSubstr("line 1"), HasSubstr("512")));
  std::string many;
  for (int i = 0; i < 1025; ++i) many += std::to_string(i) + "\n";
  EXPECT_THAT(message(many), HasSubstr("1024"));
}

TEST_F(HttpTest, PagesOfNamedOriginsMayAskAndReadTheAnswer) {
  AddWorker();
  options_.http_door.cors_origins = {"https://page.example:8443"};
  Serve();
  const std::string good = "Origin: https://page.example:8443\r\n";
  const RawResponse preflight =
      test::Fetch(http(), "OPTIONS", "/v1/chat/completions", "",
                  good +
                      "Access-Control-Request-Method: POST\r\n"
                      "Access-Control-Request-Headers: authorization,x-stainless-os\r\n");
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.Header("access-control-allow-origin"), "https://page.example:8443");
  EXPECT_THAT(preflight.Header("access-control-allow-methods"), HasSubstr("POST"));
  EXPECT_EQ(preflight.Header("access-control-allow-headers"), "authorization,x-stainless-os");
  const RawResponse answer = Post("/v1/completions", Body("x", 2, true), good);
  EXPECT_EQ(answer.Header("access-control-allow-origin"), "https://page.example:8443");
  EXPECT_THAT(answer.Header("access-control-expose-headers"), HasSubstr("x-request-id"));
  EXPECT_EQ(Get("/v1/models/none", good).Header("access-control-allow-origin"),
            "https://page.example:8443")
      << "errors, too, can be read";
  for (const char* bad : {"Origin: https://page.example\r\n", "Origin: null\r\n", ""}) {
    const RawResponse other = Get("/v1/models", bad);
    EXPECT_EQ(other.status, 200);
    EXPECT_EQ(other.Header("access-control-allow-origin"), "") << bad;
    EXPECT_EQ(other.Header("vary"), "Origin");
  }
}

TEST(Cors, OriginsAreChecked) {
  for (const char* bad : {"", "page.example", "https://", "https://a/", "https://a,https://b"}) {
    EXPECT_EQ(Cors::Make({bad}).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  const auto any = Cors::Make({"*"});
  ASSERT_TRUE(any.ok());
  HttpRequest request;
  request.headers.Add("Origin", "https://any.example");
  HttpHeaders headers;
  any->AddHeaders(request, &headers);
  EXPECT_EQ(*headers.Find("access-control-allow-origin"), "*");
  EXPECT_EQ(headers.Find("vary"), nullptr);
}

TEST_F(HttpTest, FilesAreServedWithWhatKeepsPagesSafe) {
  AddWorker();
  options_.http_door.files = kFiles;
  Serve();
  const RawResponse page = Get("/");
  EXPECT_EQ(page.body, "<!doctype html>");
  EXPECT_EQ(page.Header("content-type"), "text/html; charset=utf-8");
  EXPECT_THAT(page.Header("content-security-policy"),
              AllOf(HasSubstr("default-src 'none'"), HasSubstr("frame-ancestors 'none'")));
  EXPECT_EQ(page.Header("x-content-type-options"), "nosniff");
  EXPECT_EQ(page.Header("referrer-policy"), "no-referrer");
  EXPECT_EQ(Get("/playground/app.js?v=1").body, "let x;");
  EXPECT_EQ(Get("/playground/../app.js").status, 404);
  EXPECT_EQ(Post("/", {}).status, 405);
}

TEST_F(HttpTest, TheEndOfEveryRequestIsTold) {
  AddWorker(Paced(milliseconds(5)));
  std::mutex mutex;
  std::map<std::pair<std::string, int>, int> ends;
  options_.http_door.on_end = [&](const HttpEnd& end) {
    std::lock_guard lock(mutex);
    ++ends[{std::string(end.route), end.status}];
    EXPECT_GE(end.duration.count(), 0);
  };
  Serve();
  Get("/v1/models/scripted");
  Get("/nothing/of/that/name");
  Post("/v1/completions", {{"prompt", 1}});
  RawClient client(http());
  client.Send(StreamText("go", 90'000));
  client.ReadUntil("\n\n");
  client.Close();
  ASSERT_TRUE(EverythingIsFree());
  const std::map<std::pair<std::string, int>, int> expected = {{{"/v1/models/{id}", 200}, 1},
                                                               {{"none", 404}, 1},
                                                               {{"/v1/completions", 400}, 1},
                                                               {{"/v1/completions", 499}, 1}};
  EXPECT_TRUE(Eventually([&] {
    std::lock_guard lock(mutex);
    return ends.size() == expected.size();
  }));
  server_.reset();
  EXPECT_EQ(ends, expected);
}

}  // namespace
}  // namespace tandem::text
