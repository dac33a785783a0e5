// What every request message must pass before its fields are looked at: text fields are UTF-8, and
// no field is unknown.
//
// protobuf's parser refuses a message whose string field is not UTF-8, without saying which, but
// leaves the fields that it read up to there in place; so a message that did not parse is walked
// too, to name the field.
#pragma once

#include <string>

#include <google/protobuf/message.h>

#include "absl/status/status.h"

namespace tandem::text {

// INVALID_ARGUMENT names the path of the field ("chat.messages[2].content") and the byte offset,
// or, for a field that this version does not know, the message and the field's number.
absl::Status CheckMessage(const google::protobuf::Message& message);

// Parses and checks. INVALID_ARGUMENT: bytes are no such message, or CheckMessage's errors.
absl::Status ParseMessage(const std::string& bytes, google::protobuf::Message* message);

}  // namespace tandem::text
