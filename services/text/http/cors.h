// Which pages of other origins may use the API from a browser (https://fetch.spec.whatwg.org, "CORS
// protocol"). Off unless origins are named.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/http/http_message.h"

namespace tandem::text {

// Immutable; thread-safe.
class Cors final {
 public:
  // origins: "https://host:port" each, without a path, or "*". INVALID_ARGUMENT names one that is
  // neither.
  static absl::StatusOr<Cors> Make(std::vector<std::string> origins);

  // The request is a browser's question whether it may send another one, and the answer is yes:
  // then *response is that.
  bool Preflight(const HttpRequest& request, HttpResponse* response) const;
  // What the answers to this request are to have so that the page may read them.
  void AddHeaders(const HttpRequest& request, HttpHeaders* headers) const;

 private:
  // What Access-Control-Allow-Origin is to be; null: the header is not to be there.
  const std::string* AllowedOrigin(const HttpRequest& request) const;

  std::vector<std::string> origins_;
};

}  // namespace tandem::text
