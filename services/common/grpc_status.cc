#include "services/common/grpc_status.h"

#include <cstdint>
#include <string>

namespace tandem {

static_assert(static_cast<int>(grpc::StatusCode::UNAUTHENTICATED) ==
              static_cast<int>(absl::StatusCode::kUnauthenticated));

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::string message(status.message().data(), status.message().size());
  if (message.size() > kMaxStatusMessageBytes) {
    size_t end = kMaxStatusMessageBytes;
    while (end > 0 && (static_cast<uint8_t>(message[end]) & 0xc0) == 0x80) --end;
    message.resize(end);
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), message);
}

absl::Status FromGrpc(const grpc::Status& status) {
  // absl reads numbers that are no code as kUnknown, which is what gRPC asks for.
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace tandem
