#include "services/text/http/reply.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "services/text/http/request_headers.h"
#include "services/text/openai/json_writer.h"

namespace tandem::text {

HttpResponse Problem(int status, std::string_view message) {
  HttpResponse response{.status = status, .content_type = kJsonType};
  response.body = R"({"error":{"message":)";
  AppendJsonString(message, &response.body);
  absl::StrAppend(&response.body, R"(,"type":")",
                  status < 500 ? "invalid_request_error" : "server_error",
                  R"(","param":null,"code":null}})");
  return response;
}

HttpResponse Reply::With(HttpResponse response) const {
  for (const HttpHeader& header : headers_) response.headers.Add(header.name, header.value);
  if (!request_id_.empty() && IsPrintable(request_id_)) {
    response.headers.Add("x-request-id", request_id_);
  }
  return response;
}

void Reply::Send(HttpResponse response) const { exchange_->Send(With(std::move(response))); }

void Reply::SendJson(std::string body) const {
  Send({.content_type = kJsonType, .body = std::move(body)});
}

void Reply::SendError(HttpError error) const {
  HttpResponse response{.status = error.status, .content_type = kJsonType};
  response.body = std::move(error.body);
  if (error.retry_after.has_value()) {
    response.headers.Add("Retry-After", absl::StrCat(*error.retry_after));
  }
  if (error.status == 401) response.headers.Add("WWW-Authenticate", "Bearer");
  Send(std::move(response));
}

void Reply::StartEvents() const {
  HttpResponse head{.content_type = "text/event-stream"};
  head.headers.Add("Cache-Control", "no-cache");
  head.headers.Add("X-Accel-Buffering", "no");
  exchange_->StartStream(With(std::move(head)));
}

}  // namespace tandem::text
