// What the fields of a request are called in JSON, and errors that name them.
//
// A check that stands behind the translation speaks of tandem.v1's fields ("sampling.top_p is 2:
// it must be 0 to 1"). Clients of the JSON know those under other names, some of which depend on
// what they sent: "stop", "stop[3]", "prompt[2]", "messages[0].role".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "engine/base/status.h"

namespace tandem::text {

enum class Endpoint : uint8_t { kCompletions, kChatCompletions };

// What names depend on, of one request.
struct FieldNames {
  Endpoint endpoint = Endpoint::kCompletions;
  bool many_prompts = false;           // `prompt` was an array of prompts
  bool one_stop = false;               // `stop` was a string
  bool max_completion_tokens = false;  // instead of max_tokens
};

// status with the JSON's names in its message, and the field that it begins with as its ParamOf.
// prompt: the index of the prompt that it is about; -1: of none. The code stays, and a status that
// has a param stays as it is.
absl::Status WithJsonNames(const absl::Status& status, const FieldNames& names, int32_t prompt);

// The JSON's name of a field of v1::GenerateRequest, TokenizeRequest or DetokenizeRequest, given as
// a path ("stopping.stop_strings[3]"); empty if no field of the JSON sets it.
std::string JsonName(std::string_view path, const FieldNames& names, int32_t prompt);

// The field that an error is about: "messages[2].content"; empty if none.
std::string ParamOf(const absl::Status& status);
absl::Status WithParam(absl::Status status, std::string_view param);

// INVALID_ARGUMENT about `field`, whose message is the field and the parts.
template <typename... Parts>
absl::Status FieldError(std::string_view field, const Parts&... parts) {
  return WithParam(InvalidArgument(std::string(field), parts...), field);
}

}  // namespace tandem::text
