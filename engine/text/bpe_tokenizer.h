// The tokenizer of kind kByteLevelBpe: added tokens, then normalisation, pre-tokenizer and merges
// between them.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/text/tokenizer.h"

namespace tandem {

// Errors as MakeTokenizer. REQUIRES data.kind is kByteLevelBpe.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeBpeTokenizer(TokenizerData data);

}  // namespace tandem
