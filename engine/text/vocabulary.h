// What both kinds of tokenizer do with TokenizerData and with the text before and behind their own
// algorithm.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/text/added_tokens.h"
#include "engine/text/tokenizer.h"
#include "engine/text/tokenizer_data.h"

namespace tandem {

// data.added_tokens and, behind them, the control, unknown and user-defined tokens of data.types
// that they leave out. INVALID_ARGUMENT: types is neither empty nor as long as tokens, or an id is
// not in the vocabulary. REQUIRES tokens filled.
absl::StatusOr<std::vector<AddedToken>> AllAddedTokens(const TokenizerData& data);

// INVALID_ARGUMENT: bos, eos, unknown, padding or an end id is neither -1 (none; not for end ids)
// nor in the vocabulary, or add_bos or add_eos is set without its id.
absl::Status CheckSpecialIds(const TokenizerData& data, int32_t vocab_size);

// A text to encode: pieces joined, neighbours of one kind as one range.
struct JoinedText {
  std::string text;
  std::vector<ParseRange> ranges;
};

// INVALID_ARGUMENT: the text is longer than kMaxEncodeBytes or not UTF-8 (with the byte offset).
absl::StatusOr<JoinedText> JoinPieces(std::span<const TextPiece> pieces);

// Appends one token. RESOURCE_EXHAUSTED: encoding has max_tokens already.
absl::Status AppendToken(int32_t id, ByteRange range, int64_t max_tokens, Encoding* encoding);

}  // namespace tandem
