// What servers and channels share: TLS from files, and keepalive.
//
// gRPC's own defaults do not notice a peer that vanished without a word: a client sends no
// keepalive, a server every two hours. Here both sides ping, also when no call is open, and a
// server allows what our clients send.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/tls_files.h"

namespace tandem {

struct Keepalive {
  int time_ms = 10'000;         // a ping after so much silence
  int timeout_ms = 5'000;       // no answer in so long: the connection is dead
  int min_interval_ms = 5'000;  // a server ends connections that ping more often
};

// gRPC channel arguments, one (name, value) each.
using IntArguments = std::vector<std::pair<std::string, int>>;
IntArguments ServerKeepaliveArguments(const Keepalive& keepalive);
IntArguments ChannelKeepaliveArguments(const Keepalive& keepalive);

// INVALID_ARGUMENT: a file that is needed beside those given is not named; NOT_FOUND: a file cannot
// be read, or is no PEM.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const TlsFiles& tls);
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    const TlsFiles& tls);

}  // namespace tandem
