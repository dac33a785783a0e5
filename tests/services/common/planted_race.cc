// A data race in a gRPC callback, on purpose: built only for ThreadSanitizer, whose report its test
// demands. It shows that the suppressions for gRPC's libraries leave our own code checked.
#include <grpcpp/client_context.h>

#include <future>
#include <iostream>

#include "engine/base/check.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "services/common/channel.h"
#include "services/common/health_service.h"
#include "services/common/server.h"

int main() {
  tandem::HealthService health({"some.Service"});
  tandem::ServerOptions server_options;
  server_options.listen = "127.0.0.1:0";
  grpc::Service* const services[] = {&health};
  const auto server = tandem::RpcServer::Start(server_options, services);
  TANDEM_CHECK(server.ok()) << server.status();
  tandem::ChannelOptions channel_options;
  channel_options.target = (*server)->address();
  const auto client = grpc::health::v1::Health::NewStub(*tandem::MakeChannel(channel_options));

  int unguarded = 0;
  std::promise<void> done;
  grpc::ClientContext context;
  const grpc::health::v1::HealthCheckRequest request;
  grpc::health::v1::HealthCheckResponse response;
  client->async()->Check(&context, &request, &response, [&](grpc::Status) {
    ++unguarded;
    done.set_value();
  });
  ++unguarded;
  done.get_future().wait();
  std::cout << unguarded << "\n";
  return 0;
}
