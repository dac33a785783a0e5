#include "services/text/http/request_headers.h"

#include <algorithm>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "services/text/request.h"

namespace tandem::text {
namespace {

constexpr double kMinTimeout = 0.001;
constexpr double kMaxTimeout = 86400;

}  // namespace

bool IsPrintable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c < 0x7f; });
}

absl::StatusOr<std::string> RequestIdOf(const HttpHeaders& headers) {
  const std::string* const id = headers.Find("x-request-id");
  if (id == nullptr) return std::string();
  if (id->empty() || id->size() > kMaxRequestIdBytes || !IsPrintable(*id)) {
    return InvalidArgument("x-request-id has ", id->size(), " bytes: it must be 1 to ",
                           kMaxRequestIdBytes, " printable ASCII characters");
  }
  return *id;
}

absl::StatusOr<Nanos> DeadlineOf(const HttpHeaders& headers, Nanos now) {
  const std::string* const text = headers.Find("x-request-timeout");
  if (text == nullptr) return kNoDeadline;
  double seconds = 0;
  // Digits and a point, which leaves out "inf", "1e3" and signs.
  if (text->empty() || text->find_first_not_of("0123456789.") != std::string::npos ||
      !absl::SimpleAtod(*text, &seconds) || seconds < kMinTimeout || seconds > kMaxTimeout) {
    return InvalidArgument("X-Request-Timeout is ", *text, ": it must be ", kMinTimeout, " to ",
                           kMaxTimeout, " seconds, as a decimal");
  }
  return now + static_cast<Nanos>(seconds * static_cast<double>(kNanosPerSecond));
}

absl::Status CheckNoneTwice(const HttpHeaders& headers) {
  for (const char* const name :
       {"Authorization", "Content-Encoding", "X-Request-Id", "X-Request-Timeout"}) {
    const auto count = std::count_if(
        headers.begin(), headers.end(),
        [name](const HttpHeader& header) { return EqualsIgnoringCase(header.name, name); });
    if (count > 1) return InvalidArgument(name, " is sent ", count, " times: at most once");
  }
  return absl::OkStatus();
}

absl::Status CheckEncoding(const HttpHeaders& headers) {
  const std::string* const encoding = headers.Find("content-encoding");
  if (encoding == nullptr || EqualsIgnoringCase(*encoding, "identity")) return absl::OkStatus();
  return InvalidArgument("Content-Encoding is ", *encoding, ": only identity is supported");
}

std::string MakeId() {
  std::random_device device;
  std::string id;
  for (int i = 0; i < 4; ++i) absl::StrAppendFormat(&id, "%08x", device());
  return id;
}

}  // namespace tandem::text
