// What a status says beyond its code and its message, for whoever turns it into an answer: which
// field is wrong, and when it is worth trying again.
#pragma once

#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "engine/base/clock.h"

namespace tandem {

// The path of the field that an INVALID_ARGUMENT is about ("sampling.top_p",
// "chat.messages[2].content"): its messages begin with it. Empty: it is about none. Points into the
// status.
std::string_view FieldOf(const absl::Status& status);

// The same status, with the advice to try again after so long. REQUIRES !status.ok(), delay > 0.
absl::Status RetryAfter(absl::Status status, Nanos delay);
// That advice. Where RetryAfter gave none it is a second for UNAVAILABLE, and else absent: the same
// request would fail again.
std::optional<Nanos> RetryDelayOf(const absl::Status& status);

}  // namespace tandem
