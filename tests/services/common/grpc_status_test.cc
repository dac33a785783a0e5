#include "services/common/grpc_status.h"

#include <gtest/gtest.h>

#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "services/common/status_detail.h"

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

google::rpc::Status DetailsOf(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  return details;
}

TEST(GrpcStatus, AnInvalidArgumentNamesItsField) {
  const grpc::Status status = ToGrpc(absl::InvalidArgumentError("chat.messages[2].role is empty"));
  const google::rpc::Status details = DetailsOf(status);
  EXPECT_EQ(details.code(), 3);
  EXPECT_EQ(details.message(), status.error_message());
  ASSERT_EQ(details.details_size(), 1);
  google::rpc::BadRequest bad;
  ASSERT_TRUE(details.details(0).UnpackTo(&bad));
  ASSERT_EQ(bad.field_violations_size(), 1);
  EXPECT_EQ(bad.field_violations(0).field(), "chat.messages[2].role");
  EXPECT_EQ(bad.field_violations(0).description(), "chat.messages[2].role is empty");
}

TEST(GrpcStatus, WhatMayPassSaysWhenToTryAgain) {
  const auto delay_of = [](const absl::Status& status) -> double {
    google::rpc::RetryInfo retry;
    const google::rpc::Status details = DetailsOf(ToGrpc(status));
    if (details.details_size() != 1 || !details.details(0).UnpackTo(&retry)) return -1;
    return static_cast<double>(retry.retry_delay().seconds()) + 1e-9 * retry.retry_delay().nanos();
  };
  EXPECT_EQ(delay_of(absl::UnavailableError("no worker")), 1);
  EXPECT_EQ(delay_of(RetryAfter(absl::ResourceExhaustedError("too many"), 1'500'000'000)), 1.5);
  EXPECT_EQ(delay_of(absl::ResourceExhaustedError("too large")), -1);
  EXPECT_EQ(delay_of(absl::InvalidArgumentError("top_k is 3: no")), -1);
}

TEST(GrpcStatus, OthersHaveNoDetails) {
  EXPECT_EQ(ToGrpc(absl::OkStatus()).error_details(), "");
  EXPECT_EQ(ToGrpc(absl::InternalError("top_p is 3")).error_details(), "");
  EXPECT_EQ(ToGrpc(absl::InvalidArgumentError("the request is not a valid Foo")).error_details(),
            "");
}

TEST(StatusDetail, AFieldIsThePathThatAMessageBeginsWith) {
  const auto field_of = [](const char* message) {
    return std::string(FieldOf(absl::InvalidArgumentError(message)));
  };
  EXPECT_EQ(field_of("sampling.top_p is 2: it must be 0 to 1"), "sampling.top_p");
  EXPECT_EQ(field_of("stopping.stop_strings[3] has 300 bytes: at most 256"),
            "stopping.stop_strings[3]");
  EXPECT_EQ(field_of("prompt: bad"), "prompt");
  EXPECT_EQ(field_of("response.echo with logprobs is set"), "response.echo");
  EXPECT_EQ(field_of("the request is no message"), "");
  EXPECT_EQ(field_of(" is 3"), "");
  EXPECT_EQ(field_of(""), "");
  EXPECT_EQ(field_of("top_p"), "");
}

}  // namespace
}  // namespace tandem
