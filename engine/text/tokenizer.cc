#include "engine/text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"
#include "engine/text/bpe_tokenizer.h"
#include "engine/text/detokenizer.h"
#include "engine/text/sentencepiece_tokenizer.h"
#include "engine/text/vocabulary.h"

namespace tandem {

absl::StatusOr<Encoding> Tokenizer::EncodePieces(std::span<const TextPiece> pieces,
                                                 const EncodeOptions& options) const {
  ASSIGN_OR_RETURN(const JoinedText joined, JoinPieces(pieces));
  if (joined.ranges.empty()) return Encode("", options);
  Encoding out;
  for (const ParseRange& part : joined.ranges) {
    const auto [begin, end] = part.range;
    EncodeOptions part_options = options;
    part_options.parse_special = part.parse_special;
    part_options.max_tokens = options.max_tokens - static_cast<int64_t>(out.ids.size());
    part_options.add_special = options.add_special && joined.ranges.size() == 1;
    ASSIGN_OR_RETURN(
        const Encoding encoded,
        Encode(std::string_view(joined.text).substr(begin, end - begin), part_options));
    out.ids.insert(out.ids.end(), encoded.ids.begin(), encoded.ids.end());
    for (const ByteRange& range : encoded.offsets)
      out.offsets.push_back({range.begin + begin, range.end + begin});
    out.dropped_bytes += encoded.dropped_bytes;
  }
  return out;
}

absl::StatusOr<std::string> Tokenizer::Decode(std::span<const int32_t> ids,
                                              bool include_special) const {
  Detokenizer detokenizer(*this, include_special, /*has_prompt=*/false);
  std::string text;
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size()) {
      return absl::OutOfRangeError(
          absl::StrCat("token id ", id, ": the vocabulary has ", vocab_size(), " tokens"));
    }
    text += detokenizer.Add(id);
  }
  return text + detokenizer.Flush();
}

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizer(TokenizerData data) {
  switch (data.kind) {
    case TokenizerKind::kByteLevelBpe:
      return MakeBpeTokenizer(std::move(data));
    case TokenizerKind::kSentencePiece:
      return MakeSentencePieceTokenizer(std::move(data));
  }
  return Unimplemented("tokenizer kind ", static_cast<int>(data.kind));
}

}  // namespace tandem
