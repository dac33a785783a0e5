// An HTTP/1.1 server for APIs and event streams: keep-alive, chunked bodies, TLS, and a limit on
// everything that a client can make grow or last.
//
// A handler is called once a request has arrived whole, and answers through an exchange, then or
// later, from any thread, in one piece or as a stream. Nothing here waits for a client: what it
// does not read waits in the exchange, which says how much that is. While a response is being made
// the connection is read, so that a client that goes away is noticed at once.
//
// A client that shuts down its sending side while its response is being made counts as gone: the
// two cannot be told apart. Requests that a client sends ahead of its responses are answered in
// order; once it is kMaxAheadBytes ahead the connection is not read, and its end not noticed, until
// a response is done.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "services/common/http/http_message.h"
#include "services/common/tls_files.h"

namespace tandem {

inline constexpr int32_t kMaxHttpConnections = 1 << 20;

struct HttpServerOptions {
  std::string flag = "--http";  // errors name the flags --http-listen, --http-tls-cert and so on
  std::string listen;           // "host:port" or "[v6 address]:port"; port 0: any free one
  TlsFiles tls;                 // TLS 1.2 and newer
  int32_t threads = 2;          // that move bytes, [1, 64]
  int64_t max_body_bytes = 8 << 20;      // of a request, chunks joined; more is 413
  int64_t max_bodies_bytes = 256 << 20;  // of all bodies that are being received; more is 503
  int32_t max_header_bytes = 32 << 10;   // request line and headers; more is 431
  int32_t max_connections = 1024;  // at once, to kMaxHttpConnections; one more is answered 503
  std::chrono::milliseconds header_timeout{10'000};  // from the first byte, or from the connection
  std::chrono::milliseconds body_timeout{30'000};    // from the last byte of the headers
  std::chrono::milliseconds idle_timeout{75'000};    // between two requests
  std::chrono::milliseconds write_timeout{60'000};   // of a write that takes no byte
};

// What an exchange tells of its client. Called from the server's threads, with no lock held; not to
// block.
class HttpExchangeEvents {
 public:
  virtual ~HttpExchangeEvents() = default;
  // More than kDrainMark bytes waited, and now no more than that do.
  virtual void OnDrained() = 0;
  // The client went away before the response was whole, or was cut off. Once, and the last call.
  virtual void OnGone() = 0;
};

// One request's answer: Send, or StartStream, any number of Write and Flush, and End. Thread-safe;
// never blocks. Once the client is gone everything is ignored. Each request has to be answered.
class HttpExchange {
 public:
  static constexpr int64_t kDrainMark = 16 << 10;

  virtual ~HttpExchange() = default;
  // Who is told; kept until the response is whole or the client is gone. If it is gone already,
  // OnGone is called from here.
  virtual void Watch(std::shared_ptr<HttpExchangeEvents> events) = 0;

  // The whole response.
  virtual void Send(HttpResponse response) = 0;
  // Status and headers of a stream, and its first bytes.
  virtual void StartStream(HttpResponse head) = 0;
  // More of it, to go out with the next Flush or End. REQUIRES StartStream and no End.
  virtual void Write(std::string_view bytes) = 0;
  virtual void Flush() = 0;
  virtual void End() = 0;

  // Bytes that the client's socket has not taken yet.
  virtual int64_t waiting_bytes() const = 0;
  // The client is gone.
  virtual bool gone() const = 0;
  // Whom HttpEnd names; a constant, for it is kept as it is. Call from OnRequest.
  virtual void SetRoute(std::string_view route) = 0;
};

// What became of one request.
struct HttpEnd {
  std::string_view route;                // as the handler called it; empty: it never got that far
  int status = 0;                        // 499: the client went away first
  std::chrono::nanoseconds duration{0};  // from its last byte to that of the response
};

// Called from the server's threads; not to block. Must outlive the server.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  virtual void OnRequest(HttpRequest request, std::shared_ptr<HttpExchange> exchange) = 0;
  // The answer to what the server refuses itself. reason: a sentence with the limit.
  virtual HttpResponse Refusal(int status, std::string_view reason);
  virtual void OnEnd(const HttpEnd&) {}
};

class HttpServer final {
 public:
  static constexpr int64_t kMaxAheadBytes = 64 << 10;

  // INVALID_ARGUMENT: an option is out of its range, `listen` is no address, or the TLS files do
  // not fit each other; NOT_FOUND: one of them cannot be read; UNAVAILABLE: it cannot be bound.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options,
                                                           HttpHandler* handler);
  // Shutdown with no patience. Exchanges may outlive it; their clients are gone.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // The port that was bound.
  int port() const;
  // "host:port", with the port that was bound.
  const std::string& address() const;
  // Connections that are open.
  int32_t connections() const;

  // Takes no new connections, closes those that are idle, waits for responses that are being made,
  // and cuts off what is left after `patience`. Returns once no connection is left. Not to be
  // called from a handler.
  void Shutdown(std::chrono::milliseconds patience);

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
