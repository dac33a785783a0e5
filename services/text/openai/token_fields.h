// The fields of /tokenize and /detokenize.
#pragma once

#include <cstdint>
#include <span>

#include "services/text/openai/fields.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::text {

inline constexpr uint8_t kOfTokens = 1;

std::span<const Field<v1::TokenizeRequest>> TokenizeFields();
std::span<const Field<v1::DetokenizeRequest>> DetokenizeFields();

}  // namespace tandem::text
