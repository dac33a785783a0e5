// One client's connection: reads requests, one after the other, and writes their responses.
//
// It lives in one thread, that of its loop; only Wake may be called from others. Reading never
// stops while a response is being made (but see HttpServer::kMaxAheadBytes), so that the client's
// end is noticed; writing is one write at a time, of everything that waits then.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <variant>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>

#include "services/common/http/exchange.h"
#include "services/common/http/handler_memory.h"
#include "services/common/http/http_server.h"
#include "services/common/http/request_reader.h"

namespace tandem {

class Connection;

// What connections share.
struct ConnectionShared {
  HttpServerOptions options;
  HttpHandler* handler = nullptr;
  std::atomic<bool> closing{false};  // no connection is to be kept for another request
  std::atomic<int32_t> open{0};
  std::atomic<int64_t> receiving{0};  // bytes of bodies that are not whole
  std::function<void()> on_close;     // open went down
};

// A thread's event loop, and the connections in it. What is not the loop itself belongs to its
// thread.
struct Loop {
  boost::asio::io_context context{1};
  std::unordered_set<std::shared_ptr<Connection>> connections;
};

class Connection final : public ExchangeOwner, public std::enable_shared_from_this<Connection> {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  // The connection holds its loop, so that an exchange may outlive the server. tls: null: plain.
  Connection(std::shared_ptr<Loop> loop, std::shared_ptr<ConnectionShared> shared, Socket socket,
             boost::asio::ssl::context* tls);
  ~Connection() override;

  // refuse: the answer is 503, whatever comes.
  void Start(bool refuse);
  // Ends it as soon as no response is being made.
  void Drain();
  // Ends it now.
  void Close();

  void Wake() override;

 private:
  using Clock = std::chrono::steady_clock;
  using Tls = boost::asio::ssl::stream<Socket>;

  Socket& socket();
  boost::asio::awaitable<void> Open(bool refuse);
  boost::asio::awaitable<void> Read();
  void StartReading();
  void OnInput(size_t bytes);
  void OnInputEnd();
  // Reads requests from what has come, as long as no response is being made.
  void Advance();
  // Counts the body's bytes as they come. False: all connections together have too many.
  bool ChargeBody();
  void ForgetReader();
  void Dispatch();
  // Answers what cannot be understood, and ends the connection.
  void Refuse(int status, std::string_view reason);
  void Pump();
  void OnWritten(boost::system::error_code error, size_t bytes);
  void OnResponseWritten();
  // Ends the sending side and waits a little for the client's end: closing at once would take back
  // what it has not read yet.
  void Linger();
  void SetReadDeadline(std::chrono::milliseconds from_now);
  void Arm();
  void OnTimer();

  const std::shared_ptr<Loop> loop_;  // first, so that it goes last
  const std::shared_ptr<ConnectionShared> shared_;
  std::variant<Socket, Tls> stream_;
  boost::asio::steady_timer timer_;
  std::atomic<bool> woken_{false};
  HandlerMemory wake_memory_;

  std::string input_;  // bytes that are not part of a request yet
  std::array<char, 16 << 10> chunk_;
  std::optional<RequestReader> reader_;  // of the request that is being read
  bool in_body_ = false;
  int64_t charged_ = 0;                 // its bytes in shared_->receiving
  std::shared_ptr<Exchange> exchange_;  // the response that is being made
  std::string own_;                     // words of the connection itself, to go out next
  std::string outgoing_;                // being written; not to be touched meanwhile
  size_t sent_ = 0;                     // of outgoing_
  bool outgoing_is_response_ = false;   // of exchange_; else it was own_
  bool outgoing_is_last_ = false;       // of the response
  bool writing_ = false;
  bool reading_ = false;
  bool ended_ = false;      // the client sends no more
  bool refused_ = false;    // own_ or what was taken from it is the last that goes out
  bool lingering_ = false;  // we send no more
  bool closed_ = false;
  int64_t discarded_ = 0;  // while lingering
  Clock::time_point read_deadline_ = Clock::time_point::max();
  Clock::time_point write_deadline_ = Clock::time_point::max();
  Clock::time_point armed_ = Clock::time_point::max();  // when timer_ fires
};

}  // namespace tandem
