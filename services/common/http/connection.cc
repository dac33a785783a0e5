#include "services/common/http/connection.h"

#include <netinet/tcp.h>

#include <algorithm>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_allocator.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

namespace tandem {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::chrono::milliseconds kLingerTimeout{2000};
constexpr int64_t kMaxLingerBytes = 32 << 20;
constexpr size_t kKeptBytes = 64 << 10;
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
// Bytes that the kernel takes beyond what the client's window has room for: a client that does not
// read is one whose response waits here, where it is counted.
constexpr int kUnsentBytes = 32 << 10;
// A client that vanished without a word is noticed in half a minute.
constexpr int kKeepaliveIdleSeconds = 15;
constexpr int kKeepaliveIntervalSeconds = 5;
constexpr int kKeepaliveProbes = 3;

void SetOptions(Connection::Socket& socket) {
  error_code ignored;  // they make a connection better, and none is needed
  socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  const auto set = [&](int option, int value) {
    (void)setsockopt(socket.native_handle(), IPPROTO_TCP, option, &value, sizeof(value));
  };
  set(TCP_KEEPIDLE, kKeepaliveIdleSeconds);
  set(TCP_KEEPINTVL, kKeepaliveIntervalSeconds);
  set(TCP_KEEPCNT, kKeepaliveProbes);
  set(TCP_NOTSENT_LOWAT, kUnsentBytes);
}

std::variant<Connection::Socket, asio::ssl::stream<Connection::Socket>> MakeStream(
    Connection::Socket socket, asio::ssl::context* tls) {
  using Stream = std::variant<Connection::Socket, asio::ssl::stream<Connection::Socket>>;
  if (tls == nullptr) return Stream(std::in_place_index<0>, std::move(socket));
  return Stream(std::in_place_index<1>, std::move(socket), *tls);
}

}  // namespace

Connection::Connection(std::shared_ptr<Loop> loop, std::shared_ptr<ConnectionShared> shared,
                       Socket socket, asio::ssl::context* tls)
    : loop_(std::move(loop)),
      shared_(std::move(shared)),
      stream_(MakeStream(std::move(socket), tls)),
      timer_(loop_->context) {}

Connection::~Connection() = default;

Connection::Socket& Connection::socket() {
  return stream_.index() == 0 ? std::get<0>(stream_) : std::get<1>(stream_).next_layer();
}

void Connection::Start(bool refuse) {
  loop_->connections.insert(shared_from_this());
  SetOptions(socket());
  SetReadDeadline(shared_->options.header_timeout);
  asio::co_spawn(loop_->context, Open(refuse), asio::detached);
}

asio::awaitable<void> Connection::Open(bool refuse) {
  const auto self = shared_from_this();
  if (stream_.index() == 1) {
    const auto [error] =
        co_await std::get<1>(stream_).async_handshake(asio::ssl::stream_base::server, kAwait);
    if (error) Close();
  }
  if (closed_) co_return;
  if (refuse) {
    Refuse(503, absl::StrCat("too many connections: at most ", shared_->options.max_connections));
  }
  StartReading();
}

void Connection::StartReading() {
  if (reading_ || closed_ || ended_) return;
  reading_ = true;
  asio::co_spawn(loop_->context, Read(), asio::detached);
}

asio::awaitable<void> Connection::Read() {
  const auto self = shared_from_this();
  while (!closed_ && (exchange_ == nullptr || input_.size() < HttpServer::kMaxAheadBytes)) {
    const auto [error, bytes] = co_await std::visit(
        [this](auto& stream) { return stream.async_read_some(asio::buffer(chunk_), kAwait); },
        stream_);
    if (closed_) break;
    if (bytes > 0) OnInput(bytes);
    if (error) {
      OnInputEnd();
      break;
    }
  }
  reading_ = false;
}

void Connection::OnInput(size_t bytes) {
  if (lingering_ || refused_) {
    discarded_ += static_cast<int64_t>(bytes);
    if (discarded_ > kMaxLingerBytes) Close();
    return;
  }
  input_.append(chunk_.data(), bytes);
  Advance();
}

void Connection::OnInputEnd() {
  ended_ = true;
  if (closed_) return;
  // What is whole is still written; what is not has nobody to be made for.
  if (exchange_ == nullptr ? !writing_ : !exchange_->ended()) Close();
}

void Connection::Advance() {
  while (!closed_ && !lingering_ && !refused_ && exchange_ == nullptr) {
    if (!reader_.has_value()) {
      // Some clients end a body with a line of its own.
      while (input_.compare(0, 2, "\r\n") == 0) input_.erase(0, 2);
      if (input_.empty() || input_ == "\r") break;
      reader_.emplace(RequestLimits{.max_body_bytes = shared_->options.max_body_bytes,
                                    .max_header_bytes = shared_->options.max_header_bytes});
      in_body_ = false;
      SetReadDeadline(shared_->options.header_timeout);
    }
    size_t used = 0;
    const RequestReader::State state = reader_->Put(input_, &used);
    input_.erase(0, used);
    switch (state) {
      case RequestReader::State::kBody:
        if (!ChargeBody()) {
          Refuse(503, absl::StrCat("too many bodies are being received: at most ",
                                   shared_->options.max_bodies_bytes, " bytes at once"));
          return;
        }
        if (!in_body_) SetReadDeadline(shared_->options.body_timeout);
        in_body_ = true;
        if (reader_->TakeExpectation()) {
          own_.append("HTTP/1.1 100 Continue\r\n\r\n");
          Pump();
        }
        return;
      case RequestReader::State::kHeader:
        return;
      case RequestReader::State::kFailed:
        Refuse(reader_->status(), reader_->reason());
        return;
      case RequestReader::State::kDone:
        Dispatch();
        break;
    }
  }
}

bool Connection::ChargeBody() {
  const int64_t more = reader_->body_bytes() - charged_;
  charged_ += more;
  return (shared_->receiving += more) <= shared_->options.max_bodies_bytes;
}

void Connection::ForgetReader() {
  reader_.reset();
  shared_->receiving -= std::exchange(charged_, 0);
}

void Connection::Dispatch() {
  HttpRequest request = reader_->TakeRequest();
  const Exchange::Shape shape{.head_only = request.method == "HEAD",
                              .http_1_0 = reader_->http_1_0(),
                              .close = !reader_->keep_alive()};
  ForgetReader();
  read_deadline_ = Clock::time_point::max();
  exchange_ = std::make_shared<Exchange>(
      shape, [shared = shared_] { return shared->closing.load(); }, weak_from_this());
  shared_->handler->OnRequest(std::move(request), exchange_);
  if (ended_ && !exchange_->ended()) Close();
}

void Connection::Refuse(int status, std::string_view reason) {
  const HttpResponse response = shared_->handler->Refusal(status, reason);
  AppendHead(response, {.close = true}, &own_);
  own_.append(response.body);
  refused_ = true;
  input_.clear();
  ForgetReader();
  SetReadDeadline(kLingerTimeout);
  shared_->handler->OnEnd({.route = {}, .status = status});
  Pump();
}

void Connection::Wake() {
  if (woken_.exchange(true)) return;
  asio::post(loop_->context, asio::bind_allocator(HandlerAllocator<void>(&wake_memory_),
                                                  [self = shared_from_this()] {
                                                    self->woken_ = false;
                                                    self->Pump();
                                                  }));
}

void Connection::Pump() {
  if (writing_ || closed_ || lingering_) return;
  if (sent_ == outgoing_.size()) {
    outgoing_.clear();
    sent_ = 0;
    outgoing_is_response_ = own_.empty();
    if (!outgoing_is_response_) {
      outgoing_.swap(own_);
    } else if (exchange_ == nullptr || !exchange_->Take(&outgoing_, &outgoing_is_last_)) {
      return;
    }
  }
  writing_ = true;
  write_deadline_ = Clock::now() + shared_->options.write_timeout;
  Arm();
  const auto rest = asio::buffer(outgoing_.data() + sent_, outgoing_.size() - sent_);
  std::visit(
      [&](auto& stream) {
        stream.async_write_some(rest, [self = shared_from_this()](error_code error, size_t bytes) {
          self->OnWritten(error, bytes);
        });
      },
      stream_);
}

void Connection::OnWritten(error_code error, size_t bytes) {
  writing_ = false;
  write_deadline_ = Clock::time_point::max();
  if (closed_) return;
  if (error) return Close();
  sent_ += bytes;
  if (outgoing_is_response_) {
    exchange_->OnTaken(static_cast<int64_t>(bytes));
    if (closed_) return;
  }
  if (sent_ < outgoing_.size()) return Pump();
  if (outgoing_is_response_ && outgoing_is_last_) return OnResponseWritten();
  if (refused_ && own_.empty()) return Linger();
  Pump();
}

void Connection::OnResponseWritten() {
  // Nothing of a long answer stays with an idle connection.
  if (outgoing_.capacity() > kKeptBytes) std::string().swap(outgoing_);
  outgoing_.clear();
  sent_ = 0;
  const std::shared_ptr<Exchange> done = std::exchange(exchange_, nullptr);
  done->OnWhole();
  shared_->handler->OnEnd(done->end());
  if (done->close() || shared_->closing) return Linger();
  SetReadDeadline(shared_->options.idle_timeout);
  Advance();
  if (ended_ && exchange_ == nullptr && !refused_) return Close();
  StartReading();
}

void Connection::Linger() {
  if (ended_) return Close();
  lingering_ = true;
  input_.clear();
  SetReadDeadline(kLingerTimeout);
  const auto end_sending = [self = shared_from_this()](error_code) {
    error_code ignored;
    if (!self->closed_) self->socket().shutdown(Socket::shutdown_send, ignored);
  };
  if (stream_.index() == 1) {
    std::get<1>(stream_).async_shutdown(end_sending);
  } else {
    end_sending({});
  }
  StartReading();
}

void Connection::Drain() {
  if (exchange_ == nullptr && !refused_ && !lingering_) Close();
}

void Connection::Close() {
  if (closed_) return;
  const auto self = shared_from_this();
  closed_ = true;
  error_code ignored;
  socket().close(ignored);
  timer_.cancel();
  input_.clear();
  ForgetReader();
  if (exchange_ != nullptr) {
    const std::shared_ptr<Exchange> gone = std::exchange(exchange_, nullptr);
    gone->OnGone();
    shared_->handler->OnEnd(gone->end());
  }
  loop_->connections.erase(self);
  shared_->on_close();
}

void Connection::SetReadDeadline(std::chrono::milliseconds from_now) {
  read_deadline_ = Clock::now() + from_now;
  Arm();
}

void Connection::Arm() {
  // A deadline that moved back is looked at when the old one fires.
  const Clock::time_point next = std::min(read_deadline_, write_deadline_);
  if (closed_ || next >= armed_) return;
  armed_ = next;
  timer_.expires_at(next);
  timer_.async_wait([self = shared_from_this()](error_code error) {
    if (!error) self->OnTimer();
  });
}

void Connection::OnTimer() {
  if (closed_) return;
  armed_ = Clock::time_point::max();
  const Clock::time_point now = Clock::now();
  if (write_deadline_ <= now) return Close();
  if (read_deadline_ <= now) {
    read_deadline_ = Clock::time_point::max();
    if (!reader_.has_value()) return Close();  // idle, or refused and lingering
    const auto limit = in_body_ ? shared_->options.body_timeout : shared_->options.header_timeout;
    return Refuse(408, absl::StrCat(in_body_ ? "the body" : "the headers", " did not come within ",
                                    limit.count(), " ms"));
  }
  Arm();
}

}  // namespace tandem
