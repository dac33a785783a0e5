// The keys that clients of the public API have to show, if the server has any.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::text {

// Immutable; thread-safe.
class ApiKeys final {
 public:
  static constexpr int32_t kMaxKeys = 1024;

  // One key a line (see IsApiKey); empty lines do not count. NOT_FOUND: the file cannot
  // be read; INVALID_ARGUMENT names the line: it is no key, or there is none, or one too many.
  static absl::StatusOr<ApiKeys> Load(const std::string& path);

  // The value of an `authorization` header; empty: none came. UNAUTHENTICATED unless it is "Bearer"
  // and one of the keys. How long that takes does not depend on how much of a key is right.
  absl::Status Check(std::string_view authorization) const;

 private:
  using Digest = std::array<uint8_t, 32>;
  static Digest DigestOf(std::string_view key);
  std::vector<Digest> digests_;  // SHA-256: of one length, and not the keys themselves
};

}  // namespace tandem::text
