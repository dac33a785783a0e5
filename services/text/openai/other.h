// The other JSON of the server: models, tokens, and the document that describes all of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::text {

// {"model", "prompt", "add_special_tokens": true, "parse_special_tokens": false}; errors as those
// of ParseCompletionCall.
absl::StatusOr<v1::TokenizeRequest> ParseTokenizeCall(std::string_view body);
// {"count", "tokens": [ids], "token_strs": [pieces], "offsets": [[begin, end], ...]}, the offsets
// in bytes of the prompt.
std::string TokenizeJson(const v1::TokenizeResponse& response);

// {"model", "tokens": [ids], "skip_special_tokens": false}
absl::StatusOr<v1::DetokenizeRequest> ParseDetokenizeCall(std::string_view body);
// {"prompt"}
std::string DetokenizeJson(const v1::DetokenizeResponse& response);

// {"object": "list", "data": [models]}. created: seconds since the epoch.
std::string ModelsJson(const v1::ListModelsResponse& response, int64_t created);
// {"id", "object": "model", "created", "owned_by", "max_model_len", "root", "tandem": {...}}
std::string ModelJson(const v1::Model& model, int64_t created);

// The OpenAPI 3.1 document. Its requests are those that the parsers above and ParseCompletionCall
// read: both are made of the same tables of fields.
std::string_view OpenApiJson();

}  // namespace tandem::text
