#include "services/text/http/http_door.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "services/common/version.h"
#include "services/text/http/http_generation.h"
#include "services/text/http/request_headers.h"
#include "services/text/message_check.h"
#include "services/text/openai/json_writer.h"
#include "services/text/openai/other.h"
#include "services/text/queries.h"

namespace tandem::text {
namespace {

constexpr std::string_view kModelPrefix = "/v1/models/";

absl::StatusOr<std::string> TokenizeAnswer(const Router& router, std::string_view body) {
  ASSIGN_OR_RETURN(const v1::TokenizeRequest request, ParseTokenizeCall(body));
  RETURN_IF_ERROR(CheckMessage(request));
  v1::TokenizeResponse response;
  RETURN_IF_ERROR(Tokenize(router, request, &response));
  RETURN_IF_ERROR(CheckResponseSize(response));
  return TokenizeJson(response);
}

absl::StatusOr<std::string> DetokenizeAnswer(const Router& router, std::string_view body) {
  ASSIGN_OR_RETURN(const v1::DetokenizeRequest request, ParseDetokenizeCall(body));
  RETURN_IF_ERROR(CheckMessage(request));
  v1::DetokenizeResponse response;
  RETURN_IF_ERROR(Detokenize(router, request, &response));
  RETURN_IF_ERROR(CheckResponseSize(response));
  return DetokenizeJson(response);
}

}  // namespace

const HttpDoor::Route HttpDoor::kRoutes[] = {
    {.path = "/v1/completions", .post = true, .generates = true, .method = &HttpDoor::Completions},
    {.path = "/v1/chat/completions",
     .post = true,
     .generates = true,
     .method = &HttpDoor::ChatCompletions},
    {.path = "/v1/models", .method = &HttpDoor::Models},
    {.path = "/v1/models/{id}", .method = &HttpDoor::Model},
    {.path = "/tokenize", .post = true, .method = &HttpDoor::Tokenize},
    {.path = "/detokenize", .post = true, .method = &HttpDoor::Detokenize},
    {.path = "/health", .open = true, .method = &HttpDoor::Health},
    {.path = "/version", .open = true, .method = &HttpDoor::Version},
    {.path = "/metrics", .method = &HttpDoor::Metrics},
    {.path = "/openapi.json", .method = &HttpDoor::OpenApi},
};

absl::StatusOr<std::unique_ptr<HttpDoor>> HttpDoor::Make(HttpDoorOptions options, Intake* intake,
                                                         const ApiKeys* keys) {
  ASSIGN_OR_RETURN(Cors cors, Cors::Make(options.cors_origins));
  return std::unique_ptr<HttpDoor>(new HttpDoor(std::move(options), intake, keys, std::move(cors)));
}

HttpDoor::HttpDoor(HttpDoorOptions options, Intake* intake, const ApiKeys* keys, Cors cors)
    : options_(std::move(options)),
      intake_(intake),
      keys_(keys),
      cors_(std::move(cors)),
      started_(std::time(nullptr)) {}

const HttpDoor::Route* HttpDoor::Find(const std::string& path) const {
  const bool one_model =
      path.size() > kModelPrefix.size() && path.compare(0, kModelPrefix.size(), kModelPrefix) == 0;
  for (const Route& route : kRoutes) {
    if (route.method == &HttpDoor::Metrics && !options_.metrics) continue;
    if (route.method == &HttpDoor::Model ? one_model : route.path == path) return &route;
  }
  return nullptr;
}

const WebFile* HttpDoor::FindFile(const std::string& path) const {
  const auto found = std::find_if(options_.files.begin(), options_.files.end(),
                                  [&](const WebFile& file) { return file.path == path; });
  return found == options_.files.end() ? nullptr : &*found;
}

void HttpDoor::OnRequest(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  HttpHeaders headers;
  cors_.AddHeaders(request, &headers);
  const Reply reply(exchange, std::move(headers));
  const Route* const route = Find(request.path);
  const WebFile* const file = route == nullptr ? FindFile(request.path) : nullptr;
  if (route == nullptr && file == nullptr) {
    exchange->SetRoute("none");
    return reply.Send(Problem(404, absl::StrCat("there is no path ", request.path)));
  }
  exchange->SetRoute(route == nullptr ? "file" : route->path);
  if (HttpResponse preflight; cors_.Preflight(request, &preflight)) {
    return exchange->Send(std::move(preflight));
  }
  const bool post = route != nullptr && route->post;
  if (post ? request.method != "POST" : request.method != "GET" && request.method != "HEAD") {
    const std::string allowed = post ? "POST" : "GET, HEAD";
    HttpResponse refused = Problem(405, absl::StrCat("the method of ", request.path, " is ",
                                                     request.method, ": it must be ", allowed));
    refused.headers.Add("Allow", allowed);
    return reply.Send(std::move(refused));
  }
  if (file != nullptr) return File(*file, request, reply);
  absl::Status allowed = CheckNoneTwice(request.headers);
  if (allowed.ok() && keys_ != nullptr && !route->open) {
    const std::string* const shown = request.headers.Find("authorization");
    allowed = keys_->Check(shown == nullptr ? "" : *shown);
  }
  if (!allowed.ok()) {
    if (route->generates) intake_->CountRefusal(Door::kHttp, allowed);
    return reply.SendError(allowed);
  }
  (this->*route->method)(std::move(request), reply);
}

HttpResponse HttpDoor::Refusal(int status, std::string_view reason) {
  return Problem(status, reason);
}

void HttpDoor::OnEnd(const HttpEnd& end) {
  if (options_.on_end) options_.on_end(end);
}

void HttpDoor::Completions(HttpRequest request, Reply reply) {
  Generate(Endpoint::kCompletions, std::move(request), std::move(reply));
}

void HttpDoor::ChatCompletions(HttpRequest request, Reply reply) {
  Generate(Endpoint::kChatCompletions, std::move(request), std::move(reply));
}

void HttpDoor::Generate(Endpoint endpoint, HttpRequest request, Reply reply) {
  const Nanos now = SteadyNow();
  std::string id = MakeId();
  const auto refuse = [&](const absl::Status& status) {
    intake_->CountRefusal(Door::kHttp, status);
    reply.SendError(status);
  };
  absl::StatusOr<std::string> request_id = RequestIdOf(request.headers);
  if (!request_id.ok()) return refuse(request_id.status());
  reply.SetRequestId(request_id->empty() ? id : *request_id);
  const absl::StatusOr<Nanos> deadline = DeadlineOf(request.headers, now);
  if (!deadline.ok()) return refuse(deadline.status());
  const absl::Status plain = CheckEncoding(request.headers);
  if (!plain.ok()) return refuse(plain);
  HttpGeneration::Start(intake_,
                        {.endpoint = endpoint,
                         .body = std::move(request.body),
                         .id = std::move(id),
                         .request_id = *std::move(request_id),
                         .received = now,
                         .deadline = *deadline,
                         .streams = streams_},
                        std::move(reply));
}

void HttpDoor::Models(HttpRequest, Reply reply) {
  v1::ListModelsResponse models;
  const absl::Status status = ListModels(intake_->router(), {}, &models);
  if (!status.ok()) return reply.SendError(status);
  reply.SendJson(ModelsJson(models, started_));
}

void HttpDoor::Model(HttpRequest request, Reply reply) {
  v1::GetModelRequest query;
  query.set_model(request.path.substr(kModelPrefix.size()));
  v1::GetModelResponse model;
  const absl::Status status = GetModel(intake_->router(), query, &model);
  if (!status.ok()) return reply.SendError(status);
  reply.SendJson(ModelJson(model.model(), started_));
}

void HttpDoor::Answer(HttpRequest request, Reply reply,
                      absl::StatusOr<std::string> (*answer)(const Router&, std::string_view)) {
  if (const absl::Status plain = CheckEncoding(request.headers); !plain.ok()) {
    return reply.SendError(plain);
  }
  const absl::Status posted =
      intake_->Post([intake = intake_, reply, answer, body = std::move(request.body)] {
        absl::StatusOr<std::string> json = answer(intake->router(), body);
        if (!json.ok()) return reply.SendError(json.status());
        reply.SendJson(*std::move(json));
      });
  if (!posted.ok()) reply.SendError(posted);
}

void HttpDoor::Tokenize(HttpRequest request, Reply reply) {
  Answer(std::move(request), std::move(reply), TokenizeAnswer);
}

void HttpDoor::Detokenize(HttpRequest request, Reply reply) {
  Answer(std::move(request), std::move(reply), DetokenizeAnswer);
}

void HttpDoor::Health(HttpRequest, Reply reply) {
  const bool draining = intake_->draining();
  if (!draining && intake_->router().any()) return reply.SendJson(R"({"status":"serving"})");
  HttpResponse response{.status = 503, .content_type = kJsonType};
  response.body = draining ? R"({"status":"not_serving","reason":"the server is shutting down"})"
                           : R"({"status":"not_serving","reason":"no worker takes requests"})";
  reply.Send(std::move(response));
}

void HttpDoor::Version(HttpRequest, Reply reply) {
  std::string json = R"({"version":)";
  AppendJsonString(tandem::Version(), &json);
  json.push_back('}');
  reply.SendJson(std::move(json));
}

void HttpDoor::Metrics(HttpRequest, Reply reply) {
  reply.Send({.content_type = options_.metrics_type, .body = options_.metrics()});
}

void HttpDoor::OpenApi(HttpRequest, Reply reply) { reply.SendJson(std::string(OpenApiJson())); }

void HttpDoor::File(const WebFile& file, const HttpRequest& request, const Reply& reply) const {
  HttpResponse response{.content_type = std::string(file.content_type),
                        .body = std::string(file.body)};
  const std::string* const known = request.headers.Find("if-none-match");
  if (known != nullptr && *known == file.etag) response = {.status = 304};
  response.headers.Add("ETag", std::string(file.etag));
  response.headers.Add("Content-Security-Policy", std::string(kWebContentSecurityPolicy));
  response.headers.Add("X-Content-Type-Options", "nosniff");
  response.headers.Add("Referrer-Policy", "no-referrer");
  response.headers.Add("Cache-Control", "no-cache");
  reply.Send(std::move(response));
}

}  // namespace tandem::text
