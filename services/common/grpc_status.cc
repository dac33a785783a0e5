#include "services/common/grpc_status.h"

#include <cstdint>
#include <optional>
#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "services/common/decode_codec.h"
#include "services/common/status_detail.h"

namespace tandem {
namespace {

// Serialised; empty: there are none.
std::string DetailsOf(const absl::Status& status, const std::string& message) {
  google::rpc::Status details;
  if (const std::string_view field = FieldOf(status); !field.empty()) {
    google::rpc::BadRequest bad;
    google::rpc::BadRequest::FieldViolation* const violation = bad.add_field_violations();
    violation->set_field(std::string(field));
    violation->set_description(message);
    details.add_details()->PackFrom(bad);
  }
  if (const std::optional<Nanos> delay = RetryDelayOf(status)) {
    google::rpc::RetryInfo retry;
    ToProto(*delay, retry.mutable_retry_delay());
    details.add_details()->PackFrom(retry);
  }
  if (details.details().empty()) return "";
  details.set_code(static_cast<int>(status.code()));
  details.set_message(message);
  return details.SerializeAsString();
}

}  // namespace

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
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), message,
                      DetailsOf(status, message));
}

absl::Status FromGrpc(const grpc::Status& status) {
  // absl reads numbers that are no code as kUnknown, which is what gRPC asks for.
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace tandem
