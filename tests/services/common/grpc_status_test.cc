#include "services/common/grpc_status.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem {
namespace {

TEST(GrpcStatus, CodesAndMessagesComeBack) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), code == 0 ? "" : "why");
    EXPECT_EQ(FromGrpc(ToGrpc(status)), status);
    EXPECT_EQ(static_cast<int>(ToGrpc(status).error_code()), code);
  }
}

TEST(GrpcStatus, ALongMessageIsCutBetweenCharacters) {
  std::string message(kMaxStatusMessageBytes - 1, 'x');
  message += "\xe2\x82\xac and more";
  const grpc::Status status = ToGrpc(absl::InternalError(message));
  EXPECT_EQ(status.error_message(), std::string(kMaxStatusMessageBytes - 1, 'x'));
}

}  // namespace
}  // namespace tandem
