// A client in C++: streams the answer to a chat, stops at Ctrl-C's signal as any program does, and
// says which field was wrong.
//
//   example-generate SERVER PROMPT [TEMPERATURE]
//
// It needs gRPC, and what protoc makes of proto/tandem/v1/generation.proto and google/rpc. The
// channel's service config (proto/tandem/v1/service_config.json) spreads calls over all addresses
// of SERVER that say SERVING, and tries a call that found no worker again, as long as nothing of
// its answer has come.
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tandem/v1/generation.grpc.pb.h"

namespace {

constexpr char kServiceConfig[] = R"({
  "loadBalancingConfig": [{"round_robin": {}}],
  "healthCheckConfig": {"serviceName": "tandem.v1.Generation"},
  "methodConfig": [{
    "name": [{"service": "tandem.v1.Generation"}],
    "retryPolicy": {
      "maxAttempts": 4, "initialBackoff": "0.2s", "maxBackoff": "5s", "backoffMultiplier": 2,
      "retryableStatusCodes": ["UNAVAILABLE"]
    }
  }]
})";

// What the server said beyond the message.
void PrintDetails(const grpc::Status& status) {
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return;
  for (const google::protobuf::Any& detail : details.details()) {
    google::rpc::BadRequest bad;
    google::rpc::RetryInfo retry;
    if (detail.UnpackTo(&bad)) {
      for (const auto& violation : bad.field_violations()) {
        std::cerr << "  field: " << violation.field() << "\n";
      }
    } else if (detail.UnpackTo(&retry)) {
      std::cerr << "  try again after " << retry.retry_delay().seconds() << " s\n";
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) {
    std::cerr << "usage: example-generate SERVER PROMPT [TEMPERATURE]\n";
    return 2;
  }
  grpc::ChannelArguments arguments;
  arguments.SetServiceConfigJSON(kServiceConfig);
  const auto channel =
      grpc::CreateCustomChannel(argv[1], grpc::InsecureChannelCredentials(), arguments);
  const auto stub = tandem::v1::Generation::NewStub(channel);

  tandem::v1::GenerateRequest request;
  tandem::v1::Message* const message = request.mutable_chat()->add_messages();
  message->set_role("user");
  message->set_content(argv[2]);
  request.set_max_tokens(64);
  if (argc == 4) request.mutable_sampling()->set_temperature(std::strtof(argv[3], nullptr));

  grpc::ClientContext context;  // to end a call early: context.TryCancel() from any thread
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
  const auto reader = stub->Generate(&context, request);
  tandem::v1::GenerateResponse response;
  while (reader->Read(&response)) {
    if (response.has_started()) {
      std::cerr << "seed " << response.started().seed() << "\n";
    } else if (response.has_delta()) {
      std::cout << response.delta().text() << std::flush;
    } else if (response.has_finished()) {
      const tandem::v1::Finished& finished = response.finished();
      std::cout << std::endl;
      std::cerr << tandem::v1::FinishReason_Name(finished.reason()) << ", "
                << finished.usage().output_tokens() << " tokens\n";
    }
  }
  const grpc::Status status = reader->Finish();
  if (status.ok()) return 0;
  std::cerr << "error " << status.error_code() << ": " << status.error_message() << "\n";
  PrintDetails(status);
  return 1;
}
