// HTTP/1.1 requests to one server, many at once, on a thread of its own. Connections are kept and
// used again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/transport.h"

namespace tandem::cli {

struct HttpUrl {
  bool tls = false;
  std::string host;  // without the brackets of an IPv6 address
  std::string port;
  std::string path;  // before that of each request: "" or "/..." without a slash at the end

  // What a Host header says.
  std::string Authority() const;
};

// http://host[:port][/path] or https://..., without user, query or fragment. INVALID_ARGUMENT.
absl::StatusOr<HttpUrl> ParseHttpUrl(const std::string& text);

struct HttpRequest {
  std::string path;  // "/v1/..."
  std::string body;  // JSON; empty: GET, else POST
};

struct HttpClientOptions {
  HttpUrl url;
  std::string authority_file;  // https: PEM file of the authority; empty: the system's
  std::string api_key;         // empty: none is sent
  double timeout_seconds = 0;  // of a request, from connecting to its end; 0: none
};

// Thread-safe.
class HttpClient {
 public:
  // INVALID_ARGUMENT: the authority's file cannot be read.
  static absl::StatusOr<std::unique_ptr<HttpClient>> Make(HttpClientOptions options);
  virtual ~HttpClient() = default;  // REQUIRES nothing in flight

  // Body bytes as they come, each with the response's status.
  using OnBody = std::function<void(int status, std::string_view bytes)>;
  // Once, last: the status of the response, or why there is none or not all of it. UNAVAILABLE,
  // DEADLINE_EXCEEDED, CANCELLED.
  using OnEnd = std::function<void(absl::StatusOr<int> status)>;
  // Sends and returns. Both are called from the client's thread.
  virtual void Start(HttpRequest request, OnBody on_body, OnEnd on_end) = 0;
  // Ends what is in flight with CANCELLED, soon.
  virtual void CancelAll() = 0;
};

}  // namespace tandem::cli
