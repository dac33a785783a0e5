// absl::Status <-> grpc::Status: the one place where the two meet. Their codes have the same names
// and numbers.
//
// To gRPC a status carries details, as a google.rpc.Status: BadRequest names the field of an
// INVALID_ARGUMENT, RetryInfo says after what time it is worth trying again
// (services/common/status_detail.h). From gRPC only code and message are read.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace tandem {

// A message longer than kMaxStatusMessageBytes is cut there (not inside a UTF-8 character): it
// travels as a header, and peers refuse headers above 8 KiB.
inline constexpr size_t kMaxStatusMessageBytes = 2048;

grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace tandem
