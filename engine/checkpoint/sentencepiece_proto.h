// Writes a sentencepiece ModelProto from the pieces and scores that a GGUF file keeps of one.
//
// Message and field numbers: sentencepiece_model.proto of github.com/google/sentencepiece. The
// format is proto2 and its encoding is fixed, so that a few lines stand in for generated code,
// which would bring a second protobuf into the process.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/text/tokenizer_data.h"

namespace tandem {

struct SentencePieceSpec {
  std::span<const std::string> pieces;  // by id
  std::span<const float> scores;        // as many
  std::span<const TokenType> types;     // as many; exactly one is kUnknown
  int32_t unknown_id = 0;
  int32_t bos_id = -1;  // -1: none
  int32_t eos_id = -1;
  int32_t padding_id = -1;
  bool byte_fallback = false;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = false;
  std::string_view
      precompiled_charsmap;  // sentencepiece's normalisation table; empty: text stays as it is
};

// A model of type BPE, serialised. REQUIRES spans of equal length.
std::string SerializeSentencePieceModel(const SentencePieceSpec& spec);

}  // namespace tandem
