// Text to token ids and back.
//
// Thread-safe: const methods may run on any number of threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/text/tokenizer_data.h"

namespace tandem {

struct EncodeOptions {
  bool add_special = false;  // bos / eos where the vocabulary asks for them
  // Special tokens written out in the text become their ids. Off for what a user wrote.
  bool parse_special = false;
  int64_t max_tokens = INT64_MAX;  // RESOURCE_EXHAUSTED as soon as there would be more
};

// Half-open byte range of the input text that a token covers; empty for tokens that stand for no
// text.
struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;
};

struct Encoding {
  std::vector<int32_t> ids;
  std::vector<ByteRange> offsets;  // as many as ids
  // Bytes of the text that no token stands for, because the vocabulary lacks them (SmolLM2's has no
  // token for the byte 0xF1, say). They are left out, as the reference implementation does.
  int64_t dropped_bytes = 0;
};

// A stretch of a text that is put together of several, such as a rendered chat template.
struct TextPiece {
  std::string_view text;
  bool parse_special = false;  // as in EncodeOptions
};

inline constexpr int64_t kMaxEncodeBytes = int64_t{4} << 20;

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // INVALID_ARGUMENT: text is not UTF-8 (with the byte offset) or longer than kMaxEncodeBytes.
  virtual absl::StatusOr<Encoding> Encode(std::string_view text,
                                          const EncodeOptions& options) const = 0;

  // Encodes the joined text of pieces (options.parse_special is not looked at): words form across
  // borders, so that a text in pieces has the ids of the text in one; but an added token is found
  // only within neighbouring pieces of one kind, so that no user completes a control token that a
  // template began, or the other way round. Errors as Encode, offsets in the joined text. The base
  // class, for tokenizers without words, encodes each run of one kind alone and adds bos and eos
  // only to a text of one kind.
  virtual absl::StatusOr<Encoding> EncodePieces(std::span<const TextPiece> pieces,
                                                const EncodeOptions& options) const;

  // The bytes that id adds to a text. Not always whole characters. Control tokens give their
  // content iff include_special, else nothing. `first` says that no token was decoded before it
  // (sentencepiece drops that token's leading space); special tokens that give nothing don't count.
  // REQUIRES 0 <= id < vocab_size().
  virtual std::string TokenBytes(int32_t id, bool first, bool include_special) const = 0;

  // Decodes ids at once; bytes that are not UTF-8 become U+FFFD, one per maximal bad run as the
  // Unicode standard recommends (chapter 3.9). OUT_OF_RANGE names a bad id and the vocabulary size.
  absl::StatusOr<std::string> Decode(std::span<const int32_t> ids, bool include_special) const;

  virtual int32_t vocab_size() const = 0;
  // The token's own spelling for people ("Ġthe", "▁the", "<|im_end|>").
  virtual std::string Piece(int32_t id) const = 0;
  virtual bool IsSpecial(int32_t id) const = 0;
  // False for ids that stand for nothing (holes, padding up to a round vocabulary size).
  virtual bool IsDefined(int32_t id) const = 0;
  virtual const TokenizerData& data() const = 0;
};

// Control, unknown and user-defined tokens of data.types that data.added_tokens does not list are
// added tokens without flags. INVALID_ARGUMENT: the data contradicts itself; UNIMPLEMENTED: a
// pre-tokenizer or kind that this build lacks, by name.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizer(TokenizerData data);

}  // namespace tandem
