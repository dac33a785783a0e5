#include "engine/text/sentencepiece_tokenizer.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "engine/base/check.h"
#include "engine/base/status.h"
#include "engine/text/added_tokens.h"
#include "engine/text/byte_alphabet.h"
#include "engine/text/sentencepiece_model.h"
#include "engine/text/sentencepiece_shim.h"
#include "engine/text/vocabulary.h"

namespace tandem {
namespace {

constexpr char kSpace[] = "\xE2\x96\x81";  // U+2581, with which pieces spell a space

TokenType TypeOf(SentencePieceShim::Kind kind) {
  switch (kind) {
    case SentencePieceShim::Kind::kUnknown:
      return TokenType::kUnknown;
    case SentencePieceShim::Kind::kControl:
      return TokenType::kControl;
    case SentencePieceShim::Kind::kUnused:
      return TokenType::kUnused;
    case SentencePieceShim::Kind::kByte:
      return TokenType::kByte;
    case SentencePieceShim::Kind::kNormal:
      break;
  }
  return TokenType::kNormal;
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(TokenizerData data, std::unique_ptr<SentencePieceShim> model,
                         SentencePieceSettings settings, AddedTokenMatcher matcher,
                         const std::vector<AddedToken>& added)
      : data_(std::move(data)),
        model_(std::move(model)),
        settings_(settings),
        matcher_(std::move(matcher)),
        special_(data_.tokens.size(), false) {
    for (size_t id = 0; id < data_.tokens.size(); ++id) {
      const std::string& spelling = data_.tokens[id];
      longest_piece_ = std::max(longest_piece_, static_cast<int64_t>(spelling.size()));
      bytes_.push_back(data_.types[id] == TokenType::kByte
                           ? std::string(1, static_cast<char>(ParseByteToken(spelling)))
                           : absl::StrReplaceAll(spelling, {{kSpace, " "}}));
    }
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
    const int64_t size = static_cast<int64_t>(joined.text.size());
    Encoding out;
    if (options.add_special && data_.add_bos) {
      RETURN_IF_ERROR(AppendToken(data_.bos_id, {0, 0}, options.max_tokens, &out));
    }
    for (const AddedSplit& split : matcher_.Split(joined.text, joined.ranges)) {
      if (split.id >= 0) {
        RETURN_IF_ERROR(AppendToken(split.id, split.range, options.max_tokens, &out));
      } else {
        RETURN_IF_ERROR(EncodeStretch(joined.text, split.range, options.max_tokens, &out));
      }
    }
    if (options.add_special && data_.add_eos) {
      RETURN_IF_ERROR(AppendToken(data_.eos_id, {size, size}, options.max_tokens, &out));
    }
    return out;
  }

  std::string TokenBytes(int32_t id, bool first, bool include_special) const override {
    CheckId(id);
    if (special_[id]) return include_special ? bytes_[id] : std::string();
    // The space that the model puts before a text is not the text's own.
    const bool drop_space =
        first && settings_.add_dummy_prefix && data_.tokens[id].starts_with(kSpace);
    return drop_space ? bytes_[id].substr(1) : bytes_[id];
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
    return !data_.tokens[id].empty() && data_.types[id] != TokenType::kUnused;
  }
  const TokenizerData& data() const override { return data_; }

 private:
  void CheckId(int32_t id) const {
    TANDEM_CHECK(id >= 0 && id < vocab_size()) << id << " of " << vocab_size();
  }

  absl::Status EncodeStretch(std::string_view text, ByteRange range, int64_t max_tokens,
                             Encoding* out) const {
    const int64_t length = range.end - range.begin;
    const int64_t room = max_tokens - static_cast<int64_t>(out->ids.size());
    // The library encodes a stretch as a whole. Where it cannot shorten the text, a text that is
    // clearly too long is refused before.
    const bool may_shrink = settings_.has_character_map || !settings_.escape_whitespaces;
    if (!may_shrink && (length + longest_piece_ - 1) / longest_piece_ > room) {
      return ResourceExhausted("the text has more than ", max_tokens, " tokens");
    }
    std::vector<SentencePieceShim::Piece> pieces;
    std::string error;
    if (!model_->Encode(text.substr(range.begin, length), &pieces, &error)) {
      return Internal("sentencepiece could not encode ", length, " bytes: ", error);
    }
    SpreadByteRuns(&pieces);
    for (const SentencePieceShim::Piece& piece : pieces) {
      RETURN_IF_ERROR(AppendToken(piece.id, {range.begin + piece.begin, range.begin + piece.end},
                                  max_tokens, out));
    }
    return absl::OkStatus();
  }

  // Of a character that became byte tokens the library says that the last one covers it all: gives
  // each its own byte.
  void SpreadByteRuns(std::vector<SentencePieceShim::Piece>* pieces) const {
    size_t run = 0;  // byte tokens without text before piece i
    for (size_t i = 0; i < pieces->size(); ++i) {
      SentencePieceShim::Piece& last = (*pieces)[i];
      const bool is_byte = data_.types[last.id] == TokenType::kByte;
      if (is_byte && last.begin == last.end) {
        ++run;
        continue;
      }
      if (is_byte && last.end - last.begin == static_cast<int64_t>(run) + 1) {
        const int64_t begin = last.begin;
        for (size_t k = 0; k <= run; ++k) {
          const int64_t at = begin + static_cast<int64_t>(k);
          (*pieces)[i - run + k].begin = at;
          (*pieces)[i - run + k].end = at + 1;
        }
      }
      run = 0;
    }
  }

  TokenizerData data_;
  std::unique_ptr<SentencePieceShim> model_;
  SentencePieceSettings settings_;
  AddedTokenMatcher matcher_;
  std::vector<std::string> bytes_;  // by id
  std::vector<bool> special_;
  int64_t longest_piece_ = 1;
};

// Makes data.tokens and types those of the model, with what they have beyond it.
absl::Status FillVocabulary(const SentencePieceShim& model, TokenizerData* data) {
  const size_t size = static_cast<size_t>(model.size());
  if (!data->tokens.empty() && data->tokens.size() < size) {
    return InvalidArgument("the sentencepiece model has ", size, " pieces, the vocabulary only ",
                           data->tokens.size());
  }
  const bool given = !data->tokens.empty();
  if (!given) data->tokens.resize(size);
  if (data->types.empty()) data->types.assign(data->tokens.size(), TokenType::kNormal);
  if (data->types.size() != data->tokens.size()) {
    return InvalidArgument("the tokenizer has ", data->tokens.size(), " tokens and ",
                           data->types.size(), " token types");
  }
  for (size_t i = 0; i < size; ++i) {
    const int32_t id = static_cast<int32_t>(i);
    std::string spelling = model.Spelling(id);
    if (given && data->tokens[i] != spelling) {
      return InvalidArgument("token ", id, " is \"", data->tokens[i], "\" in the vocabulary and \"",
                             spelling, "\" in the sentencepiece model");
    }
    data->tokens[i] = std::move(spelling);
    data->types[i] = TypeOf(model.KindOf(id));
  }
  for (size_t i = 0; i < data->tokens.size(); ++i) {
    if (data->types[i] == TokenType::kByte && ParseByteToken(data->tokens[i]) < 0) {
      return InvalidArgument("byte token ", i, " is \"", data->tokens[i],
                             "\", not \"<0x00>\" to \"<0xFF>\"");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(TokenizerData data) {
  TANDEM_CHECK(data.kind == TokenizerKind::kSentencePiece);
  ASSIGN_OR_RETURN(const SentencePieceSettings settings,
                   ReadSentencePieceSettings(data.sentencepiece_model));
  if (settings.remove_extra_whitespaces)
    return Unimplemented("sentencepiece model with remove_extra_whitespaces");
  if (settings.whitespace_as_suffix)
    return Unimplemented("sentencepiece model with treat_whitespace_as_suffix");
  std::string error;
  std::unique_ptr<SentencePieceShim> model =
      SentencePieceShim::Load(data.sentencepiece_model, &error);
  if (model == nullptr) return InvalidArgument("the sentencepiece model: ", error);
  RETURN_IF_ERROR(FillVocabulary(*model, &data));
  RETURN_IF_ERROR(CheckSpecialIds(data, static_cast<int32_t>(data.tokens.size())));
  ASSIGN_OR_RETURN(const std::vector<AddedToken> added, AllAddedTokens(data));
  // The library finds the normal and user-defined pieces of its model itself.
  std::vector<AddedToken> searched;
  for (const AddedToken& token : added) {
    if (token.special || token.id >= model->size()) searched.push_back(token);
  }
  ASSIGN_OR_RETURN(AddedTokenMatcher matcher, AddedTokenMatcher::Make(std::move(searched)));
  return std::make_unique<SentencePieceTokenizer>(std::move(data), std::move(model), settings,
                                                  std::move(matcher), added);
}

}  // namespace tandem
