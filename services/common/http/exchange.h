// A response on its way from whoever makes it to its connection: bytes that wait, framed as the
// client understands them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "services/common/http/http_server.h"

namespace tandem {

// What an exchange needs of its connection. Thread-safe.
class ExchangeOwner {
 public:
  virtual ~ExchangeOwner() = default;
  // There is something to take. Never blocks.
  virtual void Wake() = 0;
};

class Exchange final : public HttpExchange {
 public:
  struct Shape {
    bool head_only = false;  // the request was HEAD
    bool http_1_0 = false;
    bool close = false;  // the client wants no more of the connection
  };
  // closing: asked when the head is made; the server wants no more of it.
  Exchange(Shape shape, std::function<bool()> closing, std::weak_ptr<ExchangeOwner> owner);

  void Watch(std::shared_ptr<HttpExchangeEvents> events) override;
  void Send(HttpResponse response) override;
  void StartStream(HttpResponse head) override;
  void Write(std::string_view bytes) override;
  void Flush() override;
  void End() override;
  int64_t waiting_bytes() const override;
  bool gone() const override;
  void SetRoute(std::string_view route) override { route_ = route; }

  // The rest is the connection's, and called from its thread alone.

  // Moves what was flushed into *out, which is empty. last: the response ends with it. False:
  // nothing.
  bool Take(std::string* out, bool* last);
  // The socket has taken so many of the bytes that Take gave.
  void OnTaken(int64_t bytes);
  // The response is whole and on its way to the network.
  void OnWhole();
  void OnGone();
  // Every byte of it is here.
  bool ended() const;
  // The connection is to end behind it. REQUIRES a head.
  bool close() const;
  HttpEnd end() const;

 private:
  void OpenChunkLocked();
  void CloseChunkLocked();
  void EndLocked();
  void Wake();

  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  const std::function<bool()> closing_;
  const std::weak_ptr<ExchangeOwner> owner_;
  std::string_view route_;  // set before anyone else knows the exchange

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  Shape shape_;
  std::shared_ptr<HttpExchangeEvents> events_;
  std::string pending_;
  int64_t taken_ = 0;                 // bytes that Take gave and the socket has not taken
  size_t chunk_ = std::string::npos;  // where the open chunk begins in pending_
  int status_ = 0;                    // 0: no head yet
  bool chunked_ = false;
  bool flushed_ = false;  // pending_ may be taken
  bool above_ = false;    // OnDrained is owed
  bool ended_ = false;
  bool gone_ = false;
};

}  // namespace tandem
