// PromptLogprobs of the engine <-> the message of tandem.decode.v1. Like decode_codec.h: what a
// peer sent is not trusted.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "engine/sampling/prompt_logprobs.h"
#include "tandem/decode/v1/decode.pb.h"

namespace tandem {

// The handle is left to the caller.
void ToProto(const PromptLogprobs& logprobs, decode::v1::PromptLogprobs* out);

// The message does not name what its reader knows. prompt: of the session. report_ids, num_raw_top:
// as they were asked for. INVALID_ARGUMENT: positions outside of [1, prompt.size()), none of them,
// lists of other lengths than that, an id or a rank outside of the vocabulary, a number that is not
// finite.
absl::StatusOr<PromptLogprobs> FromProto(const decode::v1::PromptLogprobs& message,
                                         std::span<const int32_t> prompt,
                                         std::span<const int32_t> report_ids, int32_t num_raw_top,
                                         int32_t vocab_size);

}  // namespace tandem
