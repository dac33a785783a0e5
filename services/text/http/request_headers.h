// What a request's headers say to the text tier.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "services/common/http/http_message.h"

namespace tandem::text {

// Printable ASCII, with spaces.
bool IsPrintable(std::string_view text);

// x-request-id: 1 to 128 printable ASCII characters; empty where there is none. INVALID_ARGUMENT
// names the limit.
absl::StatusOr<std::string> RequestIdOf(const HttpHeaders& headers);

// X-Request-Timeout: seconds, a decimal from 0.001 to 86400, counted from `now`; kNoDeadline where
// there is none. INVALID_ARGUMENT names the value and the limits.
absl::StatusOr<Nanos> DeadlineOf(const HttpHeaders& headers, Nanos now);

// INVALID_ARGUMENT: one of the headers that mean something here is there twice. Of two values none
// is chosen.
absl::Status CheckNoneTwice(const HttpHeaders& headers);

// INVALID_ARGUMENT: the body is compressed.
absl::Status CheckEncoding(const HttpHeaders& headers);

// 32 hexadecimal digits, drawn.
std::string MakeId();

}  // namespace tandem::text
