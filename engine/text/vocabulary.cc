#include "engine/text/vocabulary.h"

#include <utility>

#include "engine/base/status.h"
#include "engine/text/utf8.h"

namespace tandem {

absl::StatusOr<std::vector<AddedToken>> AllAddedTokens(const TokenizerData& data) {
  const size_t vocab_size = data.tokens.size();
  if (!data.types.empty() && data.types.size() != vocab_size) {
    return InvalidArgument("the tokenizer has ", vocab_size, " tokens and ", data.types.size(),
                           " token types");
  }
  std::vector<AddedToken> added = data.added_tokens;
  std::vector<bool> listed(vocab_size, false);
  for (const AddedToken& token : added) {
    if (token.id < 0 || static_cast<size_t>(token.id) >= vocab_size) {
      return InvalidArgument("added token \"", token.content, "\" has id ", token.id,
                             ": the vocabulary has ", vocab_size);
    }
    listed[token.id] = true;
  }
  for (size_t i = 0; i < data.types.size(); ++i) {
    const TokenType type = data.types[i];
    const bool special = type == TokenType::kControl || type == TokenType::kUnknown;
    if (listed[i] || data.tokens[i].empty() || (!special && type != TokenType::kUserDefined))
      continue;
    added.push_back({.id = static_cast<int32_t>(i), .content = data.tokens[i], .special = special});
  }
  return added;
}

absl::Status CheckSpecialIds(const TokenizerData& data, int32_t vocab_size) {
  const auto in_vocabulary = [&](int32_t id) { return id >= 0 && id < vocab_size; };
  const std::pair<const char*, int32_t> named[] = {{"bos", data.bos_id},
                                                   {"eos", data.eos_id},
                                                   {"unknown", data.unknown_id},
                                                   {"padding", data.padding_id}};
  for (const auto& [name, id] : named) {
    if (id != -1 && !in_vocabulary(id)) {
      return InvalidArgument("the ", name, " token has id ", id, ": the vocabulary has ",
                             vocab_size);
    }
  }
  for (const int32_t id : data.end_ids) {
    if (!in_vocabulary(id))
      return InvalidArgument("an end token has id ", id, ": the vocabulary has ", vocab_size);
  }
  if (data.add_bos && data.bos_id < 0)
    return InvalidArgument("a bos token is to be added and there is none");
  if (data.add_eos && data.eos_id < 0)
    return InvalidArgument("an eos token is to be added and there is none");
  return absl::OkStatus();
}

absl::StatusOr<JoinedText> JoinPieces(std::span<const TextPiece> pieces) {
  JoinedText joined;
  for (const TextPiece& piece : pieces) {
    if (piece.text.empty()) continue;
    const int64_t begin = static_cast<int64_t>(joined.text.size());
    if (piece.text.size() > static_cast<size_t>(kMaxEncodeBytes - begin)) {
      return InvalidArgument("a text to encode may have ", kMaxEncodeBytes,
                             " bytes at most; this one has ",
                             static_cast<uint64_t>(begin) + piece.text.size(), " or more");
    }
    joined.text.append(piece.text);
    const int64_t end = static_cast<int64_t>(joined.text.size());
    if (!joined.ranges.empty() && joined.ranges.back().parse_special == piece.parse_special) {
      joined.ranges.back().range.end = end;
    } else {
      joined.ranges.push_back({{begin, end}, piece.parse_special});
    }
  }
  const int64_t invalid = FindInvalidUtf8(joined.text);
  if (invalid >= 0) return InvalidArgument("the text is not UTF-8 at byte ", invalid);
  return joined;
}

absl::Status AppendToken(int32_t id, ByteRange range, int64_t max_tokens, Encoding* encoding) {
  if (static_cast<int64_t>(encoding->ids.size()) >= max_tokens) {
    return ResourceExhausted("the text has more than ", max_tokens, " tokens");
  }
  encoding->ids.push_back(id);
  encoding->offsets.push_back(range);
  return absl::OkStatus();
}

}  // namespace tandem
