// The hand-written part of the OpenAPI document: what the server answers.
#pragma once

#include <string_view>

namespace tandem::text {

// JSON objects: of components.schemas, and of paths, in which the schemas of requests are named
// CompletionRequest, ChatCompletionRequest, TokenizeRequest and DetokenizeRequest, and in which
// "errors" lists the statuses that an operation may answer with beside those of its "responses".
extern const std::string_view kAnswerSchemas;
extern const std::string_view kPaths;

}  // namespace tandem::text
