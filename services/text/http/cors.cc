#include "services/text/http/cors.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"

namespace tandem::text {
namespace {

constexpr size_t kMaxHeaderNames = 1024;  // bytes of Access-Control-Request-Headers

bool IsOrigin(const std::string& origin) {
  const size_t scheme = origin.find("://");
  return scheme != std::string::npos && scheme > 0 && scheme + 3 < origin.size() &&
         origin.find_first_of("/?#@ ,", scheme + 3) == std::string::npos &&
         std::all_of(origin.begin(), origin.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

// Names of headers, separated by commas.
bool AreNames(const std::string& text) {
  return text.size() <= kMaxHeaderNames && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == ',' || c == ' ';
         });
}

}  // namespace

absl::StatusOr<Cors> Cors::Make(std::vector<std::string> origins) {
  for (const std::string& origin : origins) {
    if (origin != "*" && !IsOrigin(origin)) {
      return InvalidArgument("--http-cors-origin ", origin,
                             ": it must be *, or scheme://host with its port and no path");
    }
  }
  Cors cors;
  cors.origins_ = std::move(origins);
  return cors;
}

const std::string* Cors::AllowedOrigin(const HttpRequest& request) const {
  const std::string* const origin = request.headers.Find("origin");
  if (origin == nullptr) return nullptr;
  for (const std::string& allowed : origins_) {
    if (allowed == "*" || allowed == *origin) return &allowed;
  }
  return nullptr;
}

bool Cors::Preflight(const HttpRequest& request, HttpResponse* response) const {
  if (request.method != "OPTIONS" || AllowedOrigin(request) == nullptr ||
      request.headers.Find("access-control-request-method") == nullptr) {
    return false;
  }
  *response = HttpResponse{.status = 204};
  AddHeaders(request, &response->headers);
  response->headers.Add("Access-Control-Allow-Methods", "GET, HEAD, POST");
  const std::string* const names = request.headers.Find("access-control-request-headers");
  if (names != nullptr && AreNames(*names)) {
    response->headers.Add("Access-Control-Allow-Headers", *names);
  }
  response->headers.Add("Access-Control-Max-Age", "600");
  return true;
}

void Cors::AddHeaders(const HttpRequest& request, HttpHeaders* headers) const {
  if (origins_.empty()) return;
  const std::string* const allowed = AllowedOrigin(request);
  // A cache must not give one origin's answer to another.
  if (allowed == nullptr || *allowed != "*") headers->Add("Vary", "Origin");
  if (allowed == nullptr) return;
  headers->Add("Access-Control-Allow-Origin", *allowed);
  headers->Add("Access-Control-Expose-Headers", "x-request-id, retry-after");
}

}  // namespace tandem::text
