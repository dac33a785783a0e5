#include "engine/text/bpe_tokenizer.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/status.h"
#include "engine/text/added_tokens.h"
#include "engine/text/aligned_text.h"
#include "engine/text/bpe_model.h"
#include "engine/text/byte_alphabet.h"
#include "engine/text/pre_tokenizer.h"
#include "engine/text/utf8.h"
#include "engine/text/vocabulary.h"

namespace tandem {
namespace {

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(TokenizerData data, PreTokenizer pre_tokenizer, BpeModel model,
               AddedTokenMatcher raw, AddedTokenMatcher normalized,
               const std::vector<AddedToken>& added)
      : data_(std::move(data)),
        pre_tokenizer_(std::move(pre_tokenizer)),
        model_(std::move(model)),
        raw_matcher_(std::move(raw)),
        normalized_matcher_(std::move(normalized)),
        special_(data_.tokens.size(), false) {
    bytes_.reserve(data_.tokens.size());
    for (const std::string& spelling : data_.tokens)
      bytes_.push_back(BytesOfSpelling(spelling).value_or(spelling));
    for (const AddedToken& token : added) {
      bytes_[token.id] = token.content;
      special_[token.id] = token.special;
    }
  }

  absl::StatusOr<Encoding> Encode(std::string_view text,
                                  const EncodeOptions& options) const override {
    const TextPiece piece{text, options.parse_special};
    return EncodePieces({&piece, 1}, options);
  }

  absl::StatusOr<Encoding> EncodePieces(std::span<const TextPiece> pieces,
                                        const EncodeOptions& options) const override {
    ASSIGN_OR_RETURN(const JoinedText joined, JoinPieces(pieces));
    Run run{.max_tokens = options.max_tokens};
    const int64_t size = static_cast<int64_t>(joined.text.size());
    if (options.add_special && data_.add_bos) RETURN_IF_ERROR(run.Append(data_.bos_id, {0, 0}));
    for (const AddedSplit& split : raw_matcher_.Split(joined.text, joined.ranges)) {
      if (split.id >= 0) {
        RETURN_IF_ERROR(run.Append(split.id, split.range));
      } else {
        RETURN_IF_ERROR(EncodeStretch(joined, split.range, &run));
      }
    }
    if (options.add_special && data_.add_eos)
      RETURN_IF_ERROR(run.Append(data_.eos_id, {size, size}));
    return std::move(run.encoding);
  }

  std::string TokenBytes(int32_t id, bool /*first*/, bool include_special) const override {
    CheckId(id);
    return special_[id] && !include_special ? std::string() : bytes_[id];
  }

  int32_t vocab_size() const override { return static_cast<int32_t>(data_.tokens.size()); }
  std::string Piece(int32_t id) const override {
    CheckId(id);
    return data_.tokens[id];
  }
  bool IsSpecial(int32_t id) const override {
    CheckId(id);
    return special_[id];
  }
  bool IsDefined(int32_t id) const override {
    CheckId(id);
    return !data_.tokens[id].empty() &&
           (data_.types.empty() || data_.types[id] != TokenType::kUnused);
  }
  const TokenizerData& data() const override { return data_; }

 private:
  // One call's state.
  struct Run {
    int64_t max_tokens;
    Encoding encoding;
    Regex::Scratch regex;
    BpeModel::Scratch bpe;

    absl::Status Append(int32_t id, ByteRange range) {
      return AppendToken(id, range, max_tokens, &encoding);
    }
  };

  void CheckId(int32_t id) const {
    TANDEM_CHECK(id >= 0 && id < vocab_size()) << id << " of " << vocab_size();
  }

  // Text between tokens of the first matcher: normalises it and looks for the tokens that match in
  // normalised text.
  absl::Status EncodeStretch(const JoinedText& joined, ByteRange range, Run* run) const {
    const std::string_view text =
        std::string_view(joined.text).substr(range.begin, range.end - range.begin);
    ASSIGN_OR_RETURN(const AlignedText aligned, pre_tokenizer_.normalizes()
                                                    ? AlignedText::FormC(text, range.begin)
                                                    : AlignedText::Verbatim(text, range.begin));
    if (normalized_matcher_.empty()) {
      return EncodeWords(aligned, {0, static_cast<int64_t>(aligned.text().size())}, run);
    }
    const std::vector<ParseRange> ranges = RangesWithin(joined, aligned);
    for (const AddedSplit& split : normalized_matcher_.Split(aligned.text(), ranges)) {
      if (split.id >= 0) {
        RETURN_IF_ERROR(
            run->Append(split.id, aligned.InputRange(split.range.begin, split.range.end)));
      } else {
        RETURN_IF_ERROR(EncodeWords(aligned, split.range, run));
      }
    }
    return absl::OkStatus();
  }

  absl::Status EncodeWords(const AlignedText& aligned, ByteRange range, Run* run) const {
    const std::string_view text = aligned.text().substr(range.begin, range.end - range.begin);
    return pre_tokenizer_.Split(text, &run->regex, [&](std::string_view word) -> absl::Status {
      const int64_t base = word.data() - aligned.text().data();
      const size_t first = run->encoding.ids.size();
      RETURN_IF_ERROR(model_.EncodeWord(word, base, run->max_tokens, &run->bpe, &run->encoding));
      for (size_t i = first; i < run->encoding.offsets.size(); ++i) {
        ByteRange& offset = run->encoding.offsets[i];
        offset = aligned.InputRange(offset.begin, offset.end);
      }
      return absl::OkStatus();
    });
  }

  // The parts of joined.ranges that aligned is made of, as offsets in aligned. Where normalisation
  // melted two kinds of text into one character, it counts as text in which special tokens are not
  // parsed.
  static std::vector<ParseRange> RangesWithin(const JoinedText& joined,
                                              const AlignedText& aligned) {
    std::vector<ParseRange> out;
    int64_t begin = 0;
    for (const ParseRange& source : joined.ranges) {
      const int64_t end = aligned.OffsetOf(source.range.end, /*round_up=*/!source.parse_special);
      if (end > begin) out.push_back({{begin, end}, source.parse_special});
      begin = std::max(begin, end);
    }
    return out;
  }

  TokenizerData data_;
  PreTokenizer pre_tokenizer_;
  BpeModel model_;
  AddedTokenMatcher raw_matcher_;         // added tokens with normalized false
  AddedTokenMatcher normalized_matcher_;  // and true
  std::vector<std::string> bytes_;        // by id
  std::vector<bool> special_;
};

// Tokens that are looked for in normalised text are normalised themselves.
absl::Status NormalizeContents(std::vector<AddedToken>* tokens) {
  for (AddedToken& token : *tokens) {
    if (FindInvalidUtf8(token.content) >= 0) {
      return InvalidArgument("added token ", token.id, " is not UTF-8");
    }
    ASSIGN_OR_RETURN(const AlignedText content, AlignedText::FormC(token.content, 0));
    token.content = std::string(content.text());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeBpeTokenizer(TokenizerData data) {
  TANDEM_CHECK(data.kind == TokenizerKind::kByteLevelBpe);
  if (data.tokens.empty() || data.tokens.size() > INT32_MAX) {
    return InvalidArgument("a vocabulary of ", data.tokens.size(), " tokens");
  }
  RETURN_IF_ERROR(CheckSpecialIds(data, static_cast<int32_t>(data.tokens.size())));
  ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, PreTokenizer::Make(data.pre_tokenizer));
  ASSIGN_OR_RETURN(const std::vector<AddedToken> added, AllAddedTokens(data));
  std::vector<AddedToken> raw, normalized;
  // Where words that are tokens are taken whole, the spelling of a control token is not such a
  // word: text in which special tokens are not parsed must not become one on this way.
  std::vector<bool> whole_words;
  if (pre_tokenizer.whole_words_first()) whole_words.assign(data.tokens.size(), true);
  const auto is_no_word = [&](int32_t id) {
    if (!whole_words.empty()) whole_words[id] = false;
  };
  for (const AddedToken& token : added) {
    (token.normalized ? normalized : raw).push_back(token);
    if (token.special) is_no_word(token.id);
  }
  for (size_t i = 0; i < data.types.size(); ++i) {
    if (data.types[i] != TokenType::kNormal) is_no_word(static_cast<int32_t>(i));
  }
  if (pre_tokenizer.normalizes()) RETURN_IF_ERROR(NormalizeContents(&normalized));
  ASSIGN_OR_RETURN(BpeModel model, BpeModel::Make(data.tokens, data.merges, whole_words));
  ASSIGN_OR_RETURN(AddedTokenMatcher raw_matcher, AddedTokenMatcher::Make(std::move(raw)));
  ASSIGN_OR_RETURN(AddedTokenMatcher normalized_matcher,
                   AddedTokenMatcher::Make(std::move(normalized)));
  return std::make_unique<BpeTokenizer>(std::move(data), std::move(pre_tokenizer), std::move(model),
                                        std::move(raw_matcher), std::move(normalized_matcher),
                                        added);
}

}  // namespace tandem
