#include "services/text/openai/error.h"

#include <string_view>

#include "absl/strings/match.h"
#include "engine/base/check.h"
#include "services/text/openai/json_writer.h"

namespace tandem::text {
namespace {

constexpr int kRetryAfterSeconds = 1;

struct Kind {
  int status = 500;
  std::string_view type = "server_error";
  std::string_view code;  // empty: null
};

Kind KindOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return {400, "invalid_request_error", ""};
    case absl::StatusCode::kUnauthenticated:
      return {401, "invalid_request_error", "invalid_api_key"};
    case absl::StatusCode::kPermissionDenied:
      return {403, "permission_error", ""};
    case absl::StatusCode::kNotFound:
      return {404, "invalid_request_error", "not_found"};
    case absl::StatusCode::kResourceExhausted:
      return {429, "rate_limit_error", "rate_limit_exceeded"};
    case absl::StatusCode::kCancelled:
      return {499, "server_error", "cancelled"};
    case absl::StatusCode::kUnimplemented:
      return {501, "invalid_request_error", "not_supported"};
    case absl::StatusCode::kUnavailable:
      return {503, "server_error", "unavailable"};
    case absl::StatusCode::kDeadlineExceeded:
      return {504, "server_error", "deadline_exceeded"};
    default:
      return {};
  }
}

void AppendStringOrNull(std::string_view text, std::string* out) {
  if (text.empty()) {
    out->append("null");
  } else {
    AppendJsonString(text, out);
  }
}

}  // namespace

HttpError ErrorOf(const absl::Status& status) { return ErrorOf(status, FieldNames(), -1); }

HttpError ErrorOf(const absl::Status& status, const FieldNames& names, int32_t prompt) {
  TANDEM_CHECK(!status.ok()) << "OK is no error";
  Kind kind = KindOf(status.code());
  absl::Status named = kind.status == 400 ? WithJsonNames(status, names, prompt) : status;
  if (kind.status == 404 && absl::StartsWith(status.message(), "model ")) {
    kind.code = "model_not_found";
    named = WithParam(status, "model");
  }
  HttpError error;
  error.status = kind.status;
  if (kind.status == 429 || kind.status == 503) error.retry_after = kRetryAfterSeconds;
  error.body = R"({"error":{"message":)";
  AppendJsonString({named.message().data(), named.message().size()}, &error.body);
  error.body += R"(,"type":)";
  AppendJsonString(kind.type, &error.body);
  error.body += R"(,"param":)";
  AppendStringOrNull(ParamOf(named), &error.body);
  error.body += R"(,"code":)";
  AppendStringOrNull(kind.code, &error.body);
  error.body += "}}";
  return error;
}

}  // namespace tandem::text
