#include <chrono>
#include <iostream>
#include <memory>
#include <string>

#include "grpc/health/v1/health.grpc.pb.h"
#include "services/cli/commands.h"
#include "services/cli/connection.h"

namespace tandem::cli {
namespace {

struct Flags {
  ConnectionFlags connection;
  std::string service;
};

int RunHealth(const Flags& flags) {
  auto connection = Connection::Dial(flags.connection);
  if (!connection.ok()) return Fail(connection.status());
  const auto stub = grpc::health::v1::Health::NewStub((*connection)->channel());
  grpc::ClientContext context;
  (*connection)->Authorize(&context);
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(flags.service);
  grpc::health::v1::HealthCheckResponse response;
  const grpc::Status status = stub->Check(&context, request, &response);
  if (!status.ok()) return Fail(FromGrpc(status));
  std::cout << grpc::health::v1::HealthCheckResponse::ServingStatus_Name(response.status()) << "\n";
  return response.status() == grpc::health::v1::HealthCheckResponse::SERVING ? 0 : 1;
}

}  // namespace

void AddHealth(CLI::App& app, const std::function<void(Run)>& set_run) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand(
      "health", "Ask any Tandem server for its health; exit status 0 iff SERVING");
  flags->connection.AddTo(*command);
  command->add_option("address", flags->connection.server, "host:port, the same as --server")
      ->check(CheckAddress);
  command->add_option("--service", flags->service,
                      "gRPC service name; default: the server as a whole");
  command->callback([flags, set_run] { set_run([flags] { return RunHealth(*flags); }); });
}

}  // namespace tandem::cli
