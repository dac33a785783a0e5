// The text tier's HTTP API: which path is answered by what.
//
//   POST /v1/completions, /v1/chat/completions   as OpenAI's; a stream where asked for
//   GET  /v1/models, /v1/models/{id}
//   POST /tokenize, /detokenize
//   GET  /health                                 200 while a worker takes requests, else 503
//   GET  /version, /metrics, /openapi.json
//   GET  / and other files that the options name
//
// A path that is none is 404, another method 405. Where there are API keys, all but /health,
// /version and the files need one. Errors are in OpenAI's shape.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/common/http/http_server.h"
#include "services/text/api_keys.h"
#include "services/text/http/cors.h"
#include "services/text/http/reply.h"
#include "services/text/intake.h"
#include "services/text/web/files.h"

namespace tandem::text {

struct HttpDoorOptions {
  // Text of /metrics; null: there is no such path. TextServer has its own.
  std::function<std::string()> metrics;
  std::string metrics_type = "text/plain; version=0.0.4; charset=utf-8";
  std::span<const WebFile> files;  // must outlive the door; TextServer: empty: the playground
  std::vector<std::string> cors_origins;       // see Cors::Make
  std::function<void(const HttpEnd&)> on_end;  // of each request; null: nobody wants to know
};

class HttpDoor final : public HttpHandler {
 public:
  // intake and keys must outlive it. keys: null: none is needed. The errors of Cors::Make.
  static absl::StatusOr<std::unique_ptr<HttpDoor>> Make(HttpDoorOptions options, Intake* intake,
                                                        const ApiKeys* keys);

  void OnRequest(HttpRequest request, std::shared_ptr<HttpExchange> exchange) override;
  HttpResponse Refusal(int status, std::string_view reason) override;
  void OnEnd(const HttpEnd& end) override;

  // Streams that have begun and have not ended.
  int64_t streams() const { return *streams_; }

 private:
  using Method = void (HttpDoor::*)(HttpRequest request, Reply reply);
  struct Route {
    std::string_view path;
    bool post = false;       // else GET and HEAD
    bool open = false;       // no key is needed
    bool generates = false;  // what is refused is counted
    Method method = nullptr;
  };
  static const Route kRoutes[];

  HttpDoor(HttpDoorOptions options, Intake* intake, const ApiKeys* keys, Cors cors);
  // Null: no such path.
  const Route* Find(const std::string& path) const;
  const WebFile* FindFile(const std::string& path) const;

  void Completions(HttpRequest request, Reply reply);
  void ChatCompletions(HttpRequest request, Reply reply);
  void Models(HttpRequest request, Reply reply);
  void Model(HttpRequest request, Reply reply);
  void Tokenize(HttpRequest request, Reply reply);
  void Detokenize(HttpRequest request, Reply reply);
  void Health(HttpRequest request, Reply reply);
  void Version(HttpRequest request, Reply reply);
  void Metrics(HttpRequest request, Reply reply);
  void OpenApi(HttpRequest request, Reply reply);
  void File(const WebFile& file, const HttpRequest& request, const Reply& reply) const;

  void Generate(Endpoint endpoint, HttpRequest request, Reply reply);
  // Answers in the intake's threads with what `answer` makes of the body.
  void Answer(HttpRequest request, Reply reply,
              absl::StatusOr<std::string> (*answer)(const Router&, std::string_view body));

  const HttpDoorOptions options_;
  Intake* const intake_;
  const ApiKeys* const keys_;
  const Cors cors_;
  const int64_t started_;  // seconds since the epoch
  // Shared with the calls, which may outlive this.
  const std::shared_ptr<std::atomic<int64_t>> streams_ = std::make_shared<std::atomic<int64_t>>(0);
};

}  // namespace tandem::text
