#include "services/common/status_detail.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/check.h"

namespace tandem {
namespace {

constexpr char kRetryPayload[] = "tandem/retry-after-nanos";

bool IsPathCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '[' ||
         c == ']';
}

}  // namespace

std::string_view FieldOf(const absl::Status& status) {
  if (!absl::IsInvalidArgument(status)) return {};
  const std::string_view message(status.message().data(), status.message().size());
  const size_t end = static_cast<size_t>(
      std::find_if_not(message.begin(), message.end(), IsPathCharacter) - message.begin());
  for (const std::string_view next : {" is ", " has ", " with ", ": "}) {
    if (end > 0 && message.substr(end, next.size()) == next) return message.substr(0, end);
  }
  return {};
}

absl::Status RetryAfter(absl::Status status, Nanos delay) {
  TANDEM_CHECK(!status.ok() && delay > 0) << "nothing to try again";
  status.SetPayload(kRetryPayload, absl::Cord(absl::StrCat(delay)));
  return status;
}

std::optional<Nanos> RetryDelayOf(const absl::Status& status) {
  Nanos delay = 0;
  const auto payload = status.GetPayload(kRetryPayload);
  if (payload.has_value() && absl::SimpleAtoi(std::string(*payload), &delay)) return delay;
  if (absl::IsUnavailable(status)) return kNanosPerSecond;
  return std::nullopt;
}

}  // namespace tandem
