#include "services/common/channel.h"

#include <grpc/grpc.h>
#include <grpcpp/create_channel.h>

#include "engine/base/status.h"
#include "services/common/version.h"

namespace tandem {

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const ChannelOptions& options) {
  ASSIGN_OR_RETURN(std::shared_ptr<grpc::ChannelCredentials> credentials,
                   MakeChannelCredentials(options.tls));
  grpc::ChannelArguments arguments;
  for (const auto& [name, value] : ChannelKeepaliveArguments(options.keepalive)) {
    arguments.SetInt(name, value);
  }
  arguments.SetMaxReceiveMessageSize(options.max_receive_bytes);
  arguments.SetMaxSendMessageSize(options.max_send_bytes);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // In spite of its name, the time that an attempt to connect is given.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
  arguments.SetUserAgentPrefix("tandem/" + std::string(Version()));
  return grpc::CreateCustomChannel(options.target, credentials, arguments);
}

}  // namespace tandem
