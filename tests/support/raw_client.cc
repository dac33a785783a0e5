#include "tests/support/raw_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <utility>

namespace tandem::test {
namespace {

constexpr std::chrono::seconds kPatience{20};

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return text;
}

}  // namespace

struct RawClient::Tls {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  SSL* session = nullptr;
  ~Tls() {
    SSL_free(session);
    SSL_CTX_free(context);
  }
};

std::string RawResponse::Header(std::string_view name) const {
  const std::string wanted = "\r\n" + Lower(std::string(name)) + ": ";
  const size_t found = Lower(head).find(wanted);
  if (found == std::string::npos) return "";
  const size_t begin = found + wanted.size();
  return head.substr(begin, head.find("\r\n", begin) - begin);
}

RawClient::RawClient(int port, const Options& options) {
  socket_ = socket(AF_INET, SOCK_STREAM, 0);
  if (options.receive_buffer > 0) {
    setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &options.receive_buffer,
               sizeof(options.receive_buffer));
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  connected_ = connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  if (!connected_ || !options.tls) return;
  tls_ = std::make_unique<Tls>();
  if (!options.authority.empty()) {
    SSL_CTX_load_verify_locations(tls_->context, options.authority.c_str(), nullptr);
    SSL_CTX_set_verify(tls_->context, SSL_VERIFY_PEER, nullptr);
  }
  if (!options.certificate.empty()) {
    SSL_CTX_use_certificate_chain_file(tls_->context, options.certificate.c_str());
    SSL_CTX_use_PrivateKey_file(tls_->context, options.key.c_str(), SSL_FILETYPE_PEM);
  }
  tls_->session = SSL_new(tls_->context);
  SSL_set_fd(tls_->session, socket_);
  connected_ = SSL_connect(tls_->session) == 1;
}

RawClient::~RawClient() { Close(); }

bool RawClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent =
        tls_ != nullptr ? SSL_write(tls_->session, bytes.data(), static_cast<int>(bytes.size()))
                        : send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

void RawClient::EndSending() { shutdown(socket_, SHUT_WR); }

void RawClient::Close() {
  if (socket_ >= 0) close(std::exchange(socket_, -1));
}

void RawClient::Reset() {
  const linger now{1, 0};
  setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  Close();
}

bool RawClient::Fill(std::chrono::milliseconds patience) {
  std::array<char, 64 << 10> buffer;
  if (tls_ == nullptr || SSL_pending(tls_->session) == 0) {
    pollfd waited{socket_, POLLIN, 0};
    if (poll(&waited, 1, static_cast<int>(patience.count())) <= 0) return false;
  }
  const ssize_t got = tls_ != nullptr
                          ? SSL_read(tls_->session, buffer.data(), static_cast<int>(buffer.size()))
                          : recv(socket_, buffer.data(), buffer.size(), 0);
  if (got <= 0) return false;
  input_.append(buffer.data(), static_cast<size_t>(got));
  return true;
}

std::string RawClient::ReadUntil(std::string_view text) {
  size_t found = input_.find(text);
  while (found == std::string::npos) {
    if (!Fill(kPatience)) return std::exchange(input_, "");
    found = input_.find(text);
  }
  std::string out = input_.substr(0, found + text.size());
  input_.erase(0, out.size());
  return out;
}

std::string RawClient::ReadAll(std::chrono::milliseconds quiet) {
  while (Fill(quiet)) {
  }
  return std::exchange(input_, "");
}

bool RawClient::Discard(int64_t bytes) {
  std::array<char, 4096> buffer;
  while (bytes > 0) {
    const ssize_t got = recv(socket_, buffer.data(), std::min<size_t>(buffer.size(), bytes), 0);
    if (got <= 0) return false;
    bytes -= got;
  }
  return input_.empty();
}

bool RawClient::Ended() {
  if (!input_.empty()) return false;
  pollfd waited{socket_, POLLIN, 0};
  if (poll(&waited, 1, std::chrono::milliseconds(kPatience).count()) <= 0) return false;
  return !Fill(kPatience) && input_.empty();
}

RawResponse RawClient::Read(bool head_only) {
  RawResponse response;
  response.head = ReadUntil("\r\n\r\n");
  if (response.head.size() < 12) return response;
  response.status = std::atoi(response.head.c_str() + 9);
  if (head_only || response.status == 100 || response.status == 204) return response;
  if (response.Header("transfer-encoding") == "chunked") {
    for (;;) {
      const std::string line = ReadUntil("\r\n");
      const size_t size = std::strtoul(line.c_str(), nullptr, 16);
      while (input_.size() < size + 2 && Fill(kPatience)) {
      }
      EXPECT_EQ(input_.substr(std::min(size, input_.size()), 2), "\r\n") << "a chunk's end";
      response.body += input_.substr(0, size);
      input_.erase(0, size + 2);
      if (size == 0) return response;
    }
  }
  const std::string length = response.Header("content-length");
  if (length.empty()) {
    response.body = ReadAll();
    return response;
  }
  const size_t size = std::strtoul(length.c_str(), nullptr, 10);
  while (input_.size() < size && Fill(kPatience)) {
  }
  EXPECT_GE(input_.size(), size) << "the body is cut off";
  response.body = input_.substr(0, size);
  input_.erase(0, size);
  return response;
}

std::string RequestText(std::string_view method, std::string_view path, std::string_view body,
                        std::string_view headers) {
  std::string text(method);
  text.append(" ").append(path).append(" HTTP/1.1\r\nHost: test\r\n").append(headers);
  if (!body.empty()) text.append("Content-Length: " + std::to_string(body.size()) + "\r\n");
  return text.append("\r\n").append(body);
}

RawResponse Fetch(int port, std::string_view method, std::string_view path, std::string_view body,
                  std::string_view headers) {
  RawClient client(port);
  EXPECT_TRUE(client.Send(RequestText(method, path, body, headers)));
  return client.Read(method == "HEAD");
}

}  // namespace tandem::test
