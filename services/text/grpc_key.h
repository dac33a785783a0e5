// The API key of a gRPC call: its metadata `authorization`.
#pragma once

#include <grpcpp/server_context.h>

#include "absl/status/status.h"
#include "services/text/api_keys.h"

namespace tandem::text {

// keys: null: none is needed. Else the errors of ApiKeys::Check.
inline absl::Status CheckKey(const ApiKeys* keys, const grpc::ServerContextBase& context) {
  if (keys == nullptr) return absl::OkStatus();
  const auto found = context.client_metadata().find("authorization");
  if (found == context.client_metadata().end()) return keys->Check("");
  return keys->Check({found->second.data(), found->second.size()});
}

}  // namespace tandem::text
