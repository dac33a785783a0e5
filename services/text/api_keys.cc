#include "services/text/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <fstream>

#include "engine/base/status.h"
#include "services/common/api_key.h"

namespace tandem::text {
namespace {

constexpr std::string_view kScheme = "bearer ";

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

ApiKeys::Digest ApiKeys::DigestOf(std::string_view key) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

absl::StatusOr<ApiKeys> ApiKeys::Load(const std::string& path) {
  std::ifstream file(path);
  if (!file) return NotFound("--api-key-file ", path, ": the file cannot be read");
  ApiKeys out;
  std::string line;
  for (int32_t number = 1; std::getline(file, line); ++number) {
    const std::string_view key = TrimKeyLine(line);
    if (key.empty()) continue;
    if (!IsApiKey(key)) {
      return InvalidArgument("--api-key-file ", path, ": line ", number, " is no key: 1 to ",
                             kMaxApiKeyBytes, " visible ASCII characters");
    }
    if (out.digests_.size() == kMaxKeys) {
      return InvalidArgument("--api-key-file ", path, ": more than ", kMaxKeys, " keys");
    }
    out.digests_.push_back(DigestOf(key));
  }
  if (out.digests_.empty()) {
    return InvalidArgument("--api-key-file ", path, ": it holds no key, so nobody could come in");
  }
  return out;
}

absl::Status ApiKeys::Check(std::string_view authorization) const {
  if (authorization.empty()) {
    return absl::UnauthenticatedError("an API key is needed: Authorization: Bearer KEY");
  }
  const bool bearer = authorization.size() > kScheme.size() &&
                      std::equal(kScheme.begin(), kScheme.end(), authorization.begin(),
                                 [](char expected, char c) { return expected == Lower(c); });
  if (bearer) {
    std::string_view key = authorization.substr(kScheme.size());
    while (!key.empty() && key.front() == ' ') key.remove_prefix(1);
    const Digest digest = DigestOf(key);
    bool found = false;
    for (const Digest& known : digests_) {
      found |= CRYPTO_memcmp(known.data(), digest.data(), digest.size()) == 0;
    }
    if (found) return absl::OkStatus();
  }
  return absl::UnauthenticatedError("the API key is not one of this server's");
}

}  // namespace tandem::text
