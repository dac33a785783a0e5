// The tokenizer of kind kSentencePiece: the sentencepiece library (Kudo and Richardson 2018,
// arXiv:1808.06226) between special tokens.
//
// The library never makes control tokens of text. Where special tokens are parsed, text is cut at
// them first and each stretch between them is encoded alone, so that each has its own leading space
// if the model adds one; a stretch goes on over the borders of pieces.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/text/tokenizer.h"

namespace tandem {

// data.tokens and types may be left empty: they are then those of the model (data() has them). They
// may be longer than the model: the rest are added tokens. Errors as MakeTokenizer; UNIMPLEMENTED
// also for models that remove white space or have it behind words, and in a build with
// TANDEM_SENTENCEPIECE=OFF. REQUIRES data.kind is kSentencePiece.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(TokenizerData data);

}  // namespace tandem
