#include "services/common/status_detail.h"

#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/field_path.h"

namespace tandem {
namespace {

constexpr char kRetryPayload[] = "tandem/retry-after-nanos";

}  // namespace

std::string_view FieldOf(const absl::Status& status) {
  if (!absl::IsInvalidArgument(status)) return {};
  const std::string_view message(status.message().data(), status.message().size());
  const std::string_view path = LeadingPath(message);
  for (const std::string_view next : {" is ", " has ", " with ", ": "}) {
    if (!path.empty() && message.substr(path.size(), next.size()) == next) return path;
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
