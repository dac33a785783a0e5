// Everything that a tokenizer is made of, as a checkpoint holds it and as it crosses from worker to
// text tier. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

enum class TokenizerKind : uint8_t {
  kByteLevelBpe,   // GPT-2's byte alphabet; vocabulary and merges
  kSentencePiece,  // a serialised sentencepiece ModelProto
};

enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

// A token that is found in text before the model's own splitting.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;  // only matched where special tokens are parsed; left out of decoded text
  bool lstrip = false;   // swallows white space before it
  bool rstrip = false;   // swallows white space behind it
  bool single_word = false;  // only between non-word characters
  bool normalized = false;   // looked for in normalised text, after all others were
};

struct TokenizerData {
  TokenizerKind kind = TokenizerKind::kByteLevelBpe;
  std::string pre_tokenizer;  // byte-level BPE: a name from the table in pre_tokenizer.h; unknown
                              // names are refused
  std::vector<std::string> tokens;  // by id, in the byte alphabet for kByteLevelBpe
  std::vector<TokenType> types;     // by id
  std::vector<std::string> merges;  // "left right", most important first
  std::vector<AddedToken> added_tokens;
  std::string sentencepiece_model;  // serialised ModelProto, kSentencePiece only
  int32_t bos_id = -1;              // -1: none
  int32_t eos_id = -1;
  int32_t unknown_id = -1;
  int32_t padding_id = -1;
  bool add_bos = false;
  bool add_eos = false;
  bool add_space_prefix = false;
  std::vector<int32_t> end_ids;  // ids that end a generation (eos, end of turn)
  std::string chat_template;     // Jinja; empty: none
};

// Of every field above, in order: 32 hex digits. Equal data, equal fingerprint, on any machine.
std::string TokenizerFingerprint(const TokenizerData& data);

}  // namespace tandem
