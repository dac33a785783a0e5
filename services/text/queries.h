// What the public API answers without generating anything, as functions of its messages. Thread-
// safe; a tokenizer may take seconds over megabytes.
#pragma once

#include "absl/status/status.h"
#include "services/text/router.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::text {

// What clients take unless told otherwise; a larger answer is RESOURCE_EXHAUSTED.
inline constexpr int32_t kMaxResponseBytes = 4 << 20;

// All of them: the errors of Router::Find. REQUIRES CheckMessage passed.
// INVALID_ARGUMENT names the field, the value and the limit.
absl::Status Tokenize(const Router& router, const v1::TokenizeRequest& request,
                      v1::TokenizeResponse* response);
absl::Status Detokenize(const Router& router, const v1::DetokenizeRequest& request,
                        v1::DetokenizeResponse* response);
absl::Status ListModels(const Router& router, const v1::ListModelsRequest& request,
                        v1::ListModelsResponse* response);
absl::Status GetModel(const Router& router, const v1::GetModelRequest& request,
                      v1::GetModelResponse* response);

// RESOURCE_EXHAUSTED if the response is larger than kMaxResponseBytes.
absl::Status CheckResponseSize(const google::protobuf::Message& response);

}  // namespace tandem::text
