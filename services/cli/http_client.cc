#include "services/cli/http_client.h"

#include <array>
#include <chrono>
#include <set>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "services/common/version.h"

namespace tandem::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

constexpr size_t kReadBytes = 16384;
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

using PlainStream = beast::tcp_stream;
using TlsStream = beast::ssl_stream<beast::tcp_stream>;

// Everything but Start's hand-over runs on the one thread.
template <typename Stream>
class Client final : public HttpClient {
 public:
  Client(HttpClientOptions options, asio::ssl::context tls)
      : options_(std::move(options)),
        tls_(std::move(tls)),
        work_(asio::make_work_guard(context_)),
        thread_([this] { context_.run(); }) {}
  ~Client() override {
    asio::post(context_, [this] {
      idle_.clear();
      work_.reset();
    });
    thread_.join();
  }

  void Start(HttpRequest request, OnBody on_body, OnEnd on_end) override {
    auto call = std::make_shared<Call>();
    call->request = std::move(request);
    call->on_body = std::move(on_body);
    call->on_end = std::move(on_end);
    asio::post(context_, [this, call] {
      calls_.insert(call.get());
      asio::co_spawn(context_, Run(call), asio::detached);
    });
  }

  void CancelAll() override {
    asio::post(context_, [this] {
      for (Call* const call : calls_) {
        call->cancelled = true;
        if (call->stream != nullptr) beast::get_lowest_layer(*call->stream).close();
      }
    });
  }

 private:
  struct Call {
    HttpRequest request;
    OnBody on_body;
    OnEnd on_end;
    std::unique_ptr<Stream> stream;
    bool cancelled = false;
    bool answered = false;  // something of the response came
    int status = 0;
  };

  asio::awaitable<void> Run(std::shared_ptr<Call> call) {
    const auto deadline =
        std::chrono::steady_clock::now() +
        std::chrono::microseconds(static_cast<int64_t>(options_.timeout_seconds * 1e6));
    error_code error;
    bool again = true;
    while (again && !call->cancelled) {
      const bool used_before = !idle_.empty();
      error = {};
      if (used_before) {
        call->stream = std::move(idle_.back());
        idle_.pop_back();
      } else {
        MakeStream(call.get());
      }
      if (options_.timeout_seconds > 0) {
        beast::get_lowest_layer(*call->stream).expires_at(deadline);
      }
      if (!used_before) error = co_await Connect(call.get());
      if (!error) error = co_await Exchange(call.get());
      // A kept connection that the server has closed meanwhile says nothing about the server.
      again = error && used_before && !call->answered && error != beast::error::timeout;
    }
    calls_.erase(call.get());
    call->on_end(Outcome(*call, error));
  }

  absl::StatusOr<int> Outcome(const Call& call, const error_code& error) const {
    if (call.cancelled) return absl::CancelledError("cancelled");
    if (!error) return call.status;
    if (error == beast::error::timeout) {
      return absl::DeadlineExceededError(
          absl::StrCat("no whole answer within ", options_.timeout_seconds, " s"));
    }
    return absl::UnavailableError(absl::StrCat(options_.url.Authority(), ": ", error.message()));
  }

  void MakeStream(Call* call) {
    if constexpr (std::is_same_v<Stream, TlsStream>) {
      call->stream = std::make_unique<Stream>(context_, tls_);
    } else {
      call->stream = std::make_unique<Stream>(context_);
    }
  }

  asio::awaitable<error_code> Connect(Call* call) {
    asio::ip::tcp::resolver resolver(context_);
    auto [resolve_error, addresses] =
        co_await resolver.async_resolve(options_.url.host, options_.url.port, kAwait);
    if (resolve_error) co_return resolve_error;
    // Closing a stream that is not connected ends no look-up.
    if (call->cancelled) co_return asio::error::operation_aborted;
    beast::tcp_stream& lowest = beast::get_lowest_layer(*call->stream);
    auto [connect_error, address] = co_await lowest.async_connect(addresses, kAwait);
    if (connect_error) co_return connect_error;
    error_code ignored;
    lowest.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
    if constexpr (std::is_same_v<Stream, TlsStream>) {
      SSL_set_tlsext_host_name(call->stream->native_handle(), options_.url.host.c_str());
      call->stream->set_verify_callback(asio::ssl::host_name_verification(options_.url.host),
                                        ignored);
      auto [tls_error] =
          co_await call->stream->async_handshake(asio::ssl::stream_base::client, kAwait);
      co_return tls_error;
    }
    co_return error_code();
  }

  asio::awaitable<error_code> Exchange(Call* call) {
    http::request<http::string_body> request;
    request.version(11);
    request.method(call->request.body.empty() ? http::verb::get : http::verb::post);
    request.target(options_.url.path + call->request.path);
    request.set(http::field::host, options_.url.Authority());
    request.set(http::field::user_agent, absl::StrCat("tandem/", std::string(Version())));
    if (!options_.api_key.empty()) {
      request.set(http::field::authorization, absl::StrCat("Bearer ", options_.api_key));
    }
    if (!call->request.body.empty()) {
      request.set(http::field::content_type, "application/json");
      request.body() = call->request.body;
    }
    request.prepare_payload();
    auto [write_error, written] = co_await http::async_write(*call->stream, request, kAwait);
    if (write_error) co_return write_error;

    beast::flat_buffer buffer;
    http::response_parser<http::buffer_body> parser;
    parser.body_limit(boost::none);
    auto [head_error, head_bytes] =
        co_await http::async_read_header(*call->stream, buffer, parser, kAwait);
    if (head_error) co_return head_error;
    call->answered = true;
    call->status = parser.get().result_int();
    std::array<char, kReadBytes> bytes;
    while (!parser.is_done()) {
      parser.get().body().data = bytes.data();
      parser.get().body().size = bytes.size();
      parser.get().body().more = true;
      auto [error, count] = co_await http::async_read_some(*call->stream, buffer, parser, kAwait);
      if (error && error != http::error::need_buffer) co_return error;
      const size_t got = bytes.size() - parser.get().body().size;
      if (got > 0) call->on_body(call->status, std::string_view(bytes.data(), got));
    }
    if (parser.keep_alive() && !call->cancelled) {
      beast::get_lowest_layer(*call->stream).expires_never();
      idle_.push_back(std::move(call->stream));
    }
    co_return error_code();
  }

  const HttpClientOptions options_;
  asio::ssl::context tls_;
  asio::io_context context_{1};
  std::set<Call*> calls_;
  std::vector<std::unique_ptr<Stream>> idle_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::thread thread_;
};

}  // namespace

std::string HttpUrl::Authority() const {
  const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return name + ":" + port;
}

absl::StatusOr<HttpUrl> ParseHttpUrl(const std::string& text) {
  const auto bad = [&text](const char* why) {
    return InvalidArgument("the URL ", text, " ", why,
                           ": it must be http://host[:port][/path], or ", "https");
  };
  HttpUrl url;
  std::string rest = text;
  if (rest.rfind("http://", 0) == 0) {
    rest.erase(0, 7);
    url.port = "80";
  } else if (rest.rfind("https://", 0) == 0) {
    rest.erase(0, 8);
    url.port = "443";
    url.tls = true;
  } else {
    return bad("has no scheme that is known");
  }
  for (const char c : rest) {
    if (c <= ' ' || c == 0x7F || c == '?' || c == '#' || c == '@') {
      return bad("has a character that cannot be used here");
    }
  }
  const size_t slash = rest.find('/');
  if (slash != std::string::npos) {
    url.path = rest.substr(slash);
    url.path.erase(url.path.find_last_not_of('/') + 1);
    rest.erase(slash);
  }
  const size_t bracket = rest.find(']');
  const size_t colon = rest.find(':', bracket == std::string::npos ? 0 : bracket);
  if (colon != std::string::npos) {
    url.port = rest.substr(colon + 1);
    int32_t port = 0;
    if (!absl::SimpleAtoi(url.port, &port) || port < 1 || port > 65535) {
      return bad("has no port of 1 to 65535");
    }
    rest.erase(colon);
  }
  if (rest.size() > 2 && rest.front() == '[' && rest.back() == ']') {
    rest = rest.substr(1, rest.size() - 2);
  }
  if (rest.empty()) return bad("has no host");
  url.host = rest;
  return url;
}

absl::StatusOr<std::unique_ptr<HttpClient>> HttpClient::Make(HttpClientOptions options) {
  asio::ssl::context tls(asio::ssl::context::tls_client);
  if (!options.url.tls) {
    return std::make_unique<Client<PlainStream>>(std::move(options), std::move(tls));
  }
  error_code error;
  if (options.authority_file.empty()) {
    tls.set_default_verify_paths(error);
  } else {
    tls.load_verify_file(options.authority_file, error);
  }
  if (error) {
    return InvalidArgument("--tls-ca ", options.authority_file,
                           ": the certificates cannot be read: ", error.message());
  }
  tls.set_verify_mode(asio::ssl::verify_peer, error);
  return std::make_unique<Client<TlsStream>>(std::move(options), std::move(tls));
}

}  // namespace tandem::cli
