// A data race, on purpose, beside a gRPC server at work: built only for ThreadSanitizer, whose
// report its test demands. It shows that the suppressions for gRPC's libraries leave our own
// threads checked. They do hide races in gRPC's own threads, that is in callbacks; classes that
// callbacks use are therefore tested by plain threads too.
#include <grpcpp/client_context.h>

#include <iostream>
#include <thread>

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
  const auto call = [&] {
    ++unguarded;
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckResponse response;
    TANDEM_CHECK(client->Check(&context, {}, &response).ok());
  };
  std::thread first(call);
  std::thread second(call);
  first.join();
  second.join();
  std::cout << unguarded << "\n";
  return 0;
}
