// A web server whose answers a test writes byte by byte.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/check.h"

namespace tandem::test {

// Answers each request, head and body, with pieces of bytes, sent one after the other. An empty
// piece ends the connection there.
class CannedHttpServer final {
 public:
  using Answers = std::function<std::vector<std::string>(const std::string& request)>;

  explicit CannedHttpServer(Answers answers) : answers_(std::move(answers)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    TANDEM_CHECK(listener_ >= 0 &&
                 bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                 listen(listener_, 64) == 0 &&
                 getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
    accepter_ = std::thread([this] { Accept(); });
  }
  ~CannedHttpServer() {
    shutdown(listener_, SHUT_RDWR);
    accepter_.join();
    {
      std::lock_guard lock(mutex_);
      for (const int connection : connections_) shutdown(connection, SHUT_RDWR);
    }
    for (std::thread& server : servers_) server.join();
    for (const int connection : connections_) close(connection);
    close(listener_);
  }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  int connections() const { return count_; }

 private:
  void Accept() {
    while (true) {
      const int connection = accept(listener_, nullptr, nullptr);
      if (connection < 0) return;
      ++count_;
      std::lock_guard lock(mutex_);
      connections_.push_back(connection);
      servers_.emplace_back([this, connection] { Serve(connection); });
    }
  }

  void Serve(int connection) {
    std::string bytes;
    while (true) {
      size_t end = 0;
      while ((end = WholeRequest(bytes)) == 0) {
        char piece[4096];
        const ssize_t count = recv(connection, piece, sizeof(piece), 0);
        if (count <= 0) return;
        bytes.append(piece, static_cast<size_t>(count));
      }
      for (const std::string& piece : answers_(bytes.substr(0, end))) {
        if (piece.empty()) {
          shutdown(connection, SHUT_RDWR);
          return;
        }
        if (send(connection, piece.data(), piece.size(), MSG_NOSIGNAL) < 0) return;
      }
      bytes.erase(0, end);
    }
  }

  // Bytes of the first request; 0: it is not all there.
  static size_t WholeRequest(const std::string& bytes) {
    const size_t head = bytes.find("\r\n\r\n");
    if (head == std::string::npos) return 0;
    const size_t length = bytes.find("Content-Length: ");
    const size_t body =
        length < head ? static_cast<size_t>(std::atoi(bytes.c_str() + length + 16)) : 0;
    return bytes.size() >= head + 4 + body ? head + 4 + body : 0;
  }

  const Answers answers_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<int> count_{0};
  std::thread accepter_;
  std::mutex mutex_;
  std::vector<int> connections_;      // guarded by mutex_ until the accepter is gone
  std::vector<std::thread> servers_;  // likewise
};

}  // namespace tandem::test
