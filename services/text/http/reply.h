// One HTTP response of the text tier, from any thread: the headers that each of a request's
// possible answers has, and answers in OpenAI's shape.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "services/common/http/http_server.h"
#include "services/text/openai/error.h"

namespace tandem::text {

inline constexpr char kJsonType[] = "application/json";

// {"error": {"message", "type", "param": null, "code": null}}, for what is wrong with a request
// before its body is looked at.
HttpResponse Problem(int status, std::string_view message);

class Reply final {
 public:
  // headers: of every answer to this request.
  Reply(std::shared_ptr<HttpExchange> exchange, HttpHeaders headers)
      : exchange_(std::move(exchange)), headers_(std::move(headers)) {}

  HttpExchange& exchange() const { return *exchange_; }
  // What x-request-id is to be. One that is not printable ASCII cannot be in a header, and is not.
  void SetRequestId(std::string id) { request_id_ = std::move(id); }

  void Send(HttpResponse response) const;
  void SendJson(std::string body) const;
  // REQUIRES !status.ok().
  void SendError(const absl::Status& status) const { SendError(ErrorOf(status)); }
  void SendError(HttpError error) const;
  // Of server-sent events.
  void StartEvents() const;

 private:
  HttpResponse With(HttpResponse response) const;

  std::shared_ptr<HttpExchange> exchange_;
  HttpHeaders headers_;
  std::string request_id_;  // empty: no such header
};

}  // namespace tandem::text
