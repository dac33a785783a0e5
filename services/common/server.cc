#include "services/common/server.h"

#include <grpc/grpc.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/server_builder.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "engine/base/status.h"

namespace tandem {
namespace {

// The part before the port.
absl::StatusOr<std::string> Host(const std::string& listen) {
  const size_t colon = listen.rfind(':');
  int port = -1;
  const bool digits = colon != std::string::npos && colon + 1 < listen.size() &&
                      listen.find_first_not_of("0123456789", colon + 1) == std::string::npos;
  if (!digits || colon == 0 || !absl::SimpleAtoi(listen.substr(colon + 1), &port) || port > 65535) {
    return InvalidArgument("--listen ", listen, ": it must be host:port, the port 0 to 65535");
  }
  const std::string host = listen.substr(0, colon);
  if (host.find(':') != std::string::npos && (host.front() != '[' || host.back() != ']')) {
    return InvalidArgument("--listen ", listen, ": an IPv6 address stands in brackets");
  }
  return host;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const ServerOptions& options, std::span<grpc::Service* const> services) {
  ASSIGN_OR_RETURN(const std::string host, Host(options.listen));
  ASSIGN_OR_RETURN(std::shared_ptr<grpc::ServerCredentials> credentials,
                   MakeServerCredentials(options.tls));
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(options.listen, credentials, &port);
  for (grpc::Service* service : services) builder.RegisterService(service);
  builder.SetMaxReceiveMessageSize(options.max_receive_bytes);
  builder.SetMaxSendMessageSize(options.max_send_bytes);
  for (const auto& [name, value] : ServerKeepaliveArguments(options.keepalive)) {
    builder.AddChannelArgument(name, value);
  }
  // Else two servers on one port would share its connections, and neither would know.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return absl::UnavailableError(
        absl::StrCat("--listen ", options.listen, ": the address cannot be bound; is it in use?"));
  }
  return std::unique_ptr<RpcServer>(
      new RpcServer(std::move(server), absl::StrCat(host, ":", port), port));
}

RpcServer::RpcServer(std::unique_ptr<grpc::Server> server, std::string address, int port)
    : server_(std::move(server)), address_(std::move(address)), port_(port) {}

RpcServer::~RpcServer() { Shutdown(std::chrono::milliseconds(0)); }

void RpcServer::Shutdown(std::chrono::milliseconds patience) {
  server_->Shutdown(std::chrono::system_clock::now() + patience);
}

}  // namespace tandem
