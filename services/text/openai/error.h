// Errors as OpenAI's clients expect them.
//
//   INVALID_ARGUMENT, OUT_OF_RANGE  400  invalid_request_error
//   UNAUTHENTICATED                 401  invalid_request_error  invalid_api_key
//   PERMISSION_DENIED               403  permission_error
//   NOT_FOUND                       404  invalid_request_error  model_not_found, of a message that
//                                        begins with "model ", or not_found
//   RESOURCE_EXHAUSTED              429  rate_limit_error       rate_limit_exceeded
//   CANCELLED                       499  server_error           cancelled
//   UNIMPLEMENTED                   501  invalid_request_error  not_supported
//   UNAVAILABLE                     503  server_error           unavailable
//   DEADLINE_EXCEEDED               504  server_error           deadline_exceeded
//   all others                      500  server_error
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "services/text/openai/field_names.h"

namespace tandem::text {

struct HttpError {
  int status = 500;                // of HTTP
  std::string body;                // {"error": {"message", "type", "param", "code"}}
  std::optional<int> retry_after;  // seconds, with 429 and 503
};

// The message is the status's, with U+FFFD for what is not UTF-8; param is ParamOf, for a
// status without one the field that its message begins with, or null. REQUIRES !status.ok().
HttpError ErrorOf(const absl::Status& status);

// Of a status that speaks of tandem.v1's fields; prompt as for WithJsonNames.
HttpError ErrorOf(const absl::Status& status, const FieldNames& names, int32_t prompt = -1);

}  // namespace tandem::text
