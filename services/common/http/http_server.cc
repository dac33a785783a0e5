#include "services/common/http/http_server.h"

#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "absl/strings/numbers.h"
#include "engine/base/status.h"
#include "services/common/http/connection.h"
#include "services/common/http/tls_context.h"
#include "services/common/logging.h"

namespace tandem {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;

// Connections beyond the limit that are still told why; those beyond these are closed.
constexpr int32_t kMaxRefusals = 64;
constexpr std::chrono::milliseconds kAcceptAgainAfter{100};  // no file descriptor, no memory
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

absl::Status CheckRange(const HttpServerOptions& options, const char* name, int64_t value,
                        int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return InvalidArgument(options.flag, "-", name, " is ", value, ": it must be ", low, " to ",
                         high);
}

absl::Status CheckOptions(const HttpServerOptions& options) {
  RETURN_IF_ERROR(CheckRange(options, "threads", options.threads, 1, 64));
  RETURN_IF_ERROR(
      CheckRange(options, "max-connections", options.max_connections, 1, kMaxHttpConnections));
  RETURN_IF_ERROR(CheckRange(options, "max-body-bytes", options.max_body_bytes, 1, 1 << 30));
  RETURN_IF_ERROR(CheckRange(options, "max-bodies-bytes", options.max_bodies_bytes,
                             options.max_body_bytes, int64_t{1} << 40));
  RETURN_IF_ERROR(CheckRange(options, "max-header-bytes", options.max_header_bytes, 1024, 1 << 20));
  return absl::OkStatus();
}

struct Address {
  std::string host;  // an IPv6 address in its brackets
  std::string port;
};

absl::StatusOr<Address> ParseAddress(const HttpServerOptions& options) {
  const std::string& listen = options.listen;
  const size_t colon = listen.rfind(':');
  int port = -1;
  const bool digits = colon != std::string::npos && colon + 1 < listen.size() &&
                      listen.find_first_not_of("0123456789", colon + 1) == std::string::npos;
  if (!digits || colon == 0 || !absl::SimpleAtoi(listen.substr(colon + 1), &port) || port > 65535) {
    return InvalidArgument(options.flag, "-listen ", listen,
                           ": it must be host:port, the port 0 to 65535");
  }
  Address address{listen.substr(0, colon), listen.substr(colon + 1)};
  if (address.host.find(':') != std::string::npos &&
      (address.host.front() != '[' || address.host.back() != ']')) {
    return InvalidArgument(options.flag, "-listen ", listen,
                           ": an IPv6 address stands in brackets");
  }
  return address;
}

}  // namespace

HttpResponse HttpHandler::Refusal(int status, std::string_view reason) {
  return {.status = status,
          .content_type = "text/plain; charset=utf-8",
          .body = std::string(reason) + "\n"};
}

class HttpServer::Impl final {
 public:
  Impl(const HttpServerOptions& options, HttpHandler* handler)
      : shared_(std::make_shared<ConnectionShared>()) {
    shared_->options = options;
    shared_->handler = handler;
    shared_->on_close = [this] {
      --shared_->open;
      std::lock_guard lock(mutex_);
      closed_.notify_all();
    };
    for (int32_t i = 0; i < options.threads; ++i) loops_.push_back(std::make_shared<Loop>());
    acceptor_.emplace(loops_[0]->context);
  }
  ~Impl() {
    Shutdown(std::chrono::milliseconds(0));
    guards_.clear();
    for (std::thread& thread : threads_) thread.join();
  }

  absl::Status Start() {
    if (!shared_->options.tls.empty()) {
      ASSIGN_OR_RETURN(tls_, TlsContext::Load(shared_->options.tls, shared_->options.flag));
    }
    RETURN_IF_ERROR(Bind());
    asio::co_spawn(loops_[0]->context, Accept(), asio::detached);
    for (const auto& loop : loops_) {
      guards_.push_back(asio::make_work_guard(loop->context));
      threads_.emplace_back([loop] { loop->context.run(); });
    }
    return absl::OkStatus();
  }

  void Shutdown(std::chrono::milliseconds patience) {
    if (threads_.empty()) return;
    shared_->closing = true;
    std::promise<void> closed;
    asio::post(loops_[0]->context, [&] {
      error_code ignored;
      acceptor_->close(ignored);
      closed.set_value();
    });
    closed.get_future().wait();
    ForEachConnection([](Connection& connection) { connection.Drain(); });
    std::unique_lock lock(mutex_);
    const auto none_is_open = [this] { return shared_->open == 0; };
    if (closed_.wait_for(lock, patience, none_is_open)) return;
    lock.unlock();
    ForEachConnection([](Connection& connection) { connection.Close(); });
    lock.lock();
    closed_.wait(lock, none_is_open);
  }

  int port() const { return port_; }
  const std::string& address() const { return address_; }
  int32_t connections() const { return shared_->open; }

 private:
  absl::Status Bind() {
    ASSIGN_OR_RETURN(const Address listen, ParseAddress(shared_->options));
    const std::string& name = shared_->options.listen;
    std::string host = listen.host;
    if (host.front() == '[') host = host.substr(1, host.size() - 2);
    error_code error;
    tcp::resolver resolver(loops_[0]->context);
    const auto found = resolver.resolve(
        host, listen.port, tcp::resolver::passive | tcp::resolver::numeric_service, error);
    if (error || found.empty()) {
      return InvalidArgument(shared_->options.flag, "-listen ", name, ": ", error.message());
    }
    const tcp::endpoint endpoint = found.begin()->endpoint();
    acceptor_->open(endpoint.protocol(), error);
    if (!error) acceptor_->set_option(asio::socket_base::reuse_address(true), error);
    if (!error && endpoint.protocol() == tcp::v6()) {
      acceptor_->set_option(asio::ip::v6_only(false), error);
    }
    if (!error) acceptor_->bind(endpoint, error);
    if (!error) acceptor_->listen(asio::socket_base::max_listen_connections, error);
    if (!error) port_ = acceptor_->local_endpoint(error).port();
    if (error) {
      return absl::UnavailableError(
          absl::StrCat(shared_->options.flag, "-listen ", name,
                       ": the address cannot be bound: ", error.message()));
    }
    address_ = absl::StrCat(listen.host, ":", port_);
    return absl::OkStatus();
  }

  asio::awaitable<void> Accept() {
    bool complained = false;  // of a series of failures the first is logged
    for (size_t next = 0;; next = (next + 1) % loops_.size()) {
      const std::shared_ptr<Loop>& loop = loops_[next];
      auto [error, socket] = co_await acceptor_->async_accept(loop->context, kAwait);
      if (!acceptor_->is_open()) co_return;
      if (error) {
        if (!std::exchange(complained, true)) {
          LogWarning(shared_->options.flag,
                     "-listen: no connection can be taken: ", error.message());
        }
        asio::steady_timer pause(loops_[0]->context, kAcceptAgainAfter);
        co_await pause.async_wait(kAwait);
        if (!acceptor_->is_open()) co_return;
        continue;
      }
      complained = false;
      const int32_t open = ++shared_->open;
      const int32_t limit = shared_->options.max_connections;
      if (open > limit + kMaxRefusals) {
        shared_->on_close();
        continue;  // the socket closes itself
      }
      const std::shared_ptr<asio::ssl::context> tls = tls_ == nullptr ? nullptr : tls_->Get();
      auto connection = std::make_shared<Connection>(loop, shared_, std::move(socket), tls.get());
      asio::post(loop->context, [shared = shared_, connection, refuse = open > limit] {
        connection->Start(refuse);
        if (shared->closing) connection->Drain();
      });
    }
  }

  template <typename Action>
  void ForEachConnection(Action action) {
    for (const auto& loop : loops_) {
      asio::post(loop->context, [loop, action] {
        const auto connections = loop->connections;  // they leave it while they are gone through
        for (const std::shared_ptr<Connection>& connection : connections) action(*connection);
      });
    }
  }

  const std::shared_ptr<ConnectionShared> shared_;
  std::vector<std::shared_ptr<Loop>> loops_;
  std::vector<asio::executor_work_guard<asio::io_context::executor_type>> guards_;
  std::optional<tcp::acceptor> acceptor_;  // of the first loop
  std::unique_ptr<TlsContext> tls_;        // null: no TLS
  std::string address_;
  int port_ = 0;
  std::mutex mutex_;
  std::condition_variable closed_;  // shared_->open went down
  std::vector<std::thread> threads_;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& options,
                                                              HttpHandler* handler) {
  RETURN_IF_ERROR(CheckOptions(options));
  auto impl = std::make_unique<Impl>(options, handler);
  RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

int HttpServer::port() const { return impl_->port(); }
const std::string& HttpServer::address() const { return impl_->address(); }
int32_t HttpServer::connections() const { return impl_->connections(); }
void HttpServer::Shutdown(std::chrono::milliseconds patience) { impl_->Shutdown(patience); }

}  // namespace tandem
