// A gRPC server as all of Tandem's are: TLS or none, keepalive, explicit message limits, health,
// reflection.
#pragma once

#include <grpcpp/server.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "services/common/transport.h"

namespace tandem {

struct ServerOptions {
  std::string listen;  // "host:port" or "[v6 address]:port"; port 0: any free one
  TlsFiles tls;
  Keepalive keepalive;
  int32_t max_receive_bytes = 4 << 20;  // of one message; one byte more is RESOURCE_EXHAUSTED
  int32_t max_send_bytes = 4 << 20;
};

class RpcServer final {
 public:
  // The services must outlive this. INVALID_ARGUMENT: `listen` is no address; UNAVAILABLE: it
  // cannot be bound, for instance because another process has the port; else the errors of
  // MakeServerCredentials.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const ServerOptions& options,
                                                          std::span<grpc::Service* const> services);
  // Shuts down with no time left for calls.
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // The port that was bound.
  int port() const { return port_; }
  // "host:port", with the port that was bound.
  const std::string& address() const { return address_; }
  // Takes no new calls, waits for open ones, and cancels what is left after `patience`.
  void Shutdown(std::chrono::milliseconds patience);

 private:
  RpcServer(std::unique_ptr<grpc::Server> server, std::string address, int port);

  const std::unique_ptr<grpc::Server> server_;
  const std::string address_;
  const int port_;
};

}  // namespace tandem
