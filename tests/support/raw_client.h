// An HTTP client that says exactly the bytes it is told, over plain TCP or TLS on loopback, for
// tests of servers: half a request, a connection that is reset, a stream that is not read.
//
// Reads give up after 20 s and fail the test. Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tandem::test {

struct RawResponse {
  int status = 0;    // 0: none came
  std::string head;  // status line and headers
  std::string body;  // chunks are joined
  // The value of a header; empty: there is none.
  std::string Header(std::string_view name) const;
};

class RawClient final {
 public:
  struct Options {
    int receive_buffer = 0;  // bytes of what is not read; 0: the system's
    bool tls = false;
    std::string authority;         // PEM file; with tls: checks the server's certificate
    std::string certificate, key;  // PEM files; with tls: shows them
  };
  // Connects to 127.0.0.1.
  explicit RawClient(int port) : RawClient(port, Options()) {}
  RawClient(int port, const Options& options);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  // The TCP connection, and the TLS handshake if any, stand.
  bool connected() const { return connected_; }
  // False: the server has ended the connection.
  bool Send(std::string_view bytes);
  // No more will be sent.
  void EndSending();
  // Closes with what was not read still there, or at once, so that the server sees a reset.
  void Close();
  void Reset();

  // One response, whole. head_only: of a HEAD request.
  RawResponse Read(bool head_only = false);
  // Up to and with the text; all that came if the connection ends before.
  std::string ReadUntil(std::string_view text);
  // All that comes until the connection ends, or nothing has come for `quiet`.
  std::string ReadAll(std::chrono::milliseconds quiet = std::chrono::seconds(20));
  // Takes so many bytes and forgets them, allocating nothing. False: the connection ended before.
  // REQUIRES nothing was read beyond what was given out.
  bool Discard(int64_t bytes);
  // The server ends the connection, having sent nothing more.
  bool Ended();

 private:
  struct Tls;
  // Appends to input_. False: the connection has ended, or nothing came for so long.
  bool Fill(std::chrono::milliseconds patience);

  int socket_ = -1;
  bool connected_ = false;
  std::unique_ptr<Tls> tls_;
  std::string input_;
};

// Method and path as an HTTP/1.1 request, with a body if there is one.
std::string RequestText(std::string_view method, std::string_view path, std::string_view body = "",
                        std::string_view headers = "");
// Connects, asks, reads one response, and closes.
RawResponse Fetch(int port, std::string_view method, std::string_view path,
                  std::string_view body = "", std::string_view headers = "");

}  // namespace tandem::test
