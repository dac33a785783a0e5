// Channels to Tandem's servers.
#pragma once

#include <grpcpp/channel.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "services/common/transport.h"

namespace tandem {

struct ChannelOptions {
  std::string target;  // "host:port", or any gRPC target
  TlsFiles tls;
  Keepalive keepalive;
  int32_t max_receive_bytes =
      4 << 20;  // of one message; more ends the call with RESOURCE_EXHAUSTED
  int32_t max_send_bytes = 4 << 20;
};

// Connects when first used and again whenever the connection is lost, after 100 ms at first and at
// most 2 s later; an attempt is given 5 s. Has a connection of its own, and ignores the http_proxy
// variables: peers are dialled, not looked for. Errors are those of MakeChannelCredentials.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const ChannelOptions& options);

}  // namespace tandem
