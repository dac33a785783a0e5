#include "tests/services/worker/relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "engine/base/check.h"

namespace tandem::test {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int NewSocket() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  TANDEM_CHECK(fd >= 0) << "errno " << errno;
  return fd;
}

// Passes on what there is; false at the end of either side.
bool Pass(int from, int to) {
  char buffer[16384];
  const ssize_t got = read(from, buffer, sizeof(buffer));
  for (ssize_t sent = 0; sent < got;) {
    const ssize_t n = send(to, buffer + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += n;
  }
  return got > 0;
}

}  // namespace

Relay::Relay(const std::string& target)
    : target_port_(std::stoi(target.substr(target.rfind(':') + 1))),
      listener_(NewSocket()),
      stop_(eventfd(0, EFD_CLOEXEC)) {
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  TANDEM_CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
               listen(listener_, 1) == 0 &&
               getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0)
      << "errno " << errno;
  address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  thread_ = std::thread([this] { Run(); });
}

Relay::~Relay() {
  const uint64_t one = 1;
  TANDEM_CHECK(write(stop_, &one, sizeof(one)) == sizeof(one)) << "errno " << errno;
  thread_.join();
  close(listener_);
  close(stop_);
}

void Relay::Run() {
  int client = -1;
  int server = -1;
  while (true) {
    pollfd fds[] = {
        {stop_, POLLIN, 0}, {client < 0 ? listener_ : client, POLLIN, 0}, {server, POLLIN, 0}};
    // Frozen, it looks at nothing but its own end.
    poll(fds, frozen_ ? 1 : 3, 20);
    if (fds[0].revents != 0) break;
    if (frozen_) continue;
    if (client < 0) {
      if (fds[1].revents == 0) continue;
      client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      server = NewSocket();
      const sockaddr_in address = Loopback(target_port_);
      TANDEM_CHECK(connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) ==
                   0)
          << "errno " << errno;
      continue;
    }
    if (fds[1].revents != 0 && !Pass(client, server)) break;
    if (fds[2].revents != 0 && !Pass(server, client)) break;
  }
  if (client >= 0) close(client);
  if (server >= 0) close(server);
}

}  // namespace tandem::test
