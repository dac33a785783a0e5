#include "engine/checkpoint/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/checkpoint/sentencepiece_proto.h"

namespace tandem {
namespace {

constexpr size_t kNumBytes = 256;

// Control tokens that end a turn or a text, by the formats that define them: ChatML, Llama 3, Phi,
// Gemma, GPT-2.
constexpr std::string_view kEndTokens[] = {"<|im_end|>",     "<|eot_id|>",    "<|eom_id|>",
                                           "<|end|>",        "<end_of_turn>", "<|endoftext|>",
                                           "<|end_of_text|>"};
// Pre-tokenizers whose models begin with bos although their files may lack the flag.
constexpr std::string_view kPreTokenizersWithBos[] = {"llama3", "llama-v3", "llama-bpe"};

absl::StatusOr<bool> BoolOr(const GgufFile& file, std::string_view key, bool missing) {
  if (!file.Has(key)) return missing;
  return file.Bool(key);
}

absl::StatusOr<int32_t> IdOrNone(const GgufFile& file, std::string_view key, int32_t vocab_size) {
  if (!file.Has(key)) return -1;
  ASSIGN_OR_RETURN(const int64_t id, file.Int(key, 0, vocab_size - 1));
  return static_cast<int32_t>(id);
}

absl::Status ReadTokens(const GgufFile& file, int32_t vocab_size, TokenizerData& data) {
  ASSIGN_OR_RETURN(const std::vector<std::string_view> tokens,
                   file.TextArray("tokenizer.ggml.tokens"));
  if (static_cast<int64_t>(tokens.size()) != vocab_size) {
    return InvalidArgument("the tokenizer has ", tokens.size(), " tokens, the model ", vocab_size);
  }
  data.tokens.assign(tokens.begin(), tokens.end());
  if (!file.Has("tokenizer.ggml.token_type")) {
    data.types.assign(tokens.size(), TokenType::kNormal);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::vector<int32_t> types, file.Int32Array("tokenizer.ggml.token_type"));
  if (types.size() != tokens.size()) {
    return InvalidArgument("the tokenizer has ", tokens.size(), " tokens and ", types.size(),
                           " token types");
  }
  data.types.reserve(types.size());
  for (size_t id = 0; id < types.size(); ++id) {
    if (types[id] < static_cast<int32_t>(TokenType::kNormal) ||
        types[id] > static_cast<int32_t>(TokenType::kByte)) {
      return InvalidArgument("token ", id, " has the type ", types[id], ": types are 1 to 6");
    }
    data.types.push_back(static_cast<TokenType>(types[id]));
  }
  return absl::OkStatus();
}

absl::Status ReadSpecialIds(const GgufFile& file, int32_t vocab_size, TokenizerData& data) {
  ASSIGN_OR_RETURN(data.bos_id, IdOrNone(file, "tokenizer.ggml.bos_token_id", vocab_size));
  ASSIGN_OR_RETURN(data.eos_id, IdOrNone(file, "tokenizer.ggml.eos_token_id", vocab_size));
  ASSIGN_OR_RETURN(data.unknown_id, IdOrNone(file, "tokenizer.ggml.unknown_token_id", vocab_size));
  ASSIGN_OR_RETURN(data.padding_id, IdOrNone(file, "tokenizer.ggml.padding_token_id", vocab_size));
  std::set<int32_t> ends = {data.eos_id};
  for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    ASSIGN_OR_RETURN(const int32_t id, IdOrNone(file, key, vocab_size));
    ends.insert(id);
  }
  for (int32_t id = 0; id < vocab_size; ++id) {
    const std::string& token = data.tokens[static_cast<size_t>(id)];
    if (data.types[static_cast<size_t>(id)] == TokenType::kControl &&
        std::find(std::begin(kEndTokens), std::end(kEndTokens), token) != std::end(kEndTokens)) {
      ends.insert(id);
    }
  }
  ends.erase(-1);
  data.end_ids.assign(ends.begin(), ends.end());
  return absl::OkStatus();
}

void FindAddedTokens(TokenizerData& data) {
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    const TokenType type = data.types[id];
    const bool special = type == TokenType::kControl || type == TokenType::kUnknown;
    if ((special || type == TokenType::kUserDefined) && !data.tokens[id].empty()) {
      data.added_tokens.push_back(
          {.id = static_cast<int32_t>(id), .content = data.tokens[id], .special = special});
    }
  }
}

absl::Status ReadByteLevelBpe(const GgufFile& file, TokenizerData& data) {
  data.kind = TokenizerKind::kByteLevelBpe;
  // Every family splits text differently before merging; a guess would give other ids without a
  // sign of it.
  ASSIGN_OR_RETURN(data.pre_tokenizer, file.Text("tokenizer.ggml.pre"));
  ASSIGN_OR_RETURN(const std::vector<std::string_view> merges,
                   file.TextArray("tokenizer.ggml.merges"));
  data.merges.assign(merges.begin(), merges.end());
  const bool bos = std::find(std::begin(kPreTokenizersWithBos), std::end(kPreTokenizersWithBos),
                             data.pre_tokenizer) != std::end(kPreTokenizersWithBos);
  ASSIGN_OR_RETURN(data.add_bos, BoolOr(file, "tokenizer.ggml.add_bos_token", bos));
  ASSIGN_OR_RETURN(data.add_space_prefix, BoolOr(file, "tokenizer.ggml.add_space_prefix", false));
  return absl::OkStatus();
}

// The byte of "<0x00>" to "<0xFF>", with exactly two upper-case hex digits as sentencepiece writes
// them; -1 for any other spelling.
int ByteOf(std::string_view spelling) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (spelling.size() != 6 || !spelling.starts_with("<0x") || spelling.back() != '>') return -1;
  const size_t high = kDigits.find(spelling[3]);
  const size_t low = kDigits.find(spelling[4]);
  if (high == kDigits.npos || low == kDigits.npos) return -1;
  return static_cast<int>(high * 16 + low);
}

// Byte tokens are all there, once each and spelled "<0xHH>", or none is.
absl::StatusOr<bool> CheckByteTokens(const TokenizerData& data) {
  std::array<bool, kNumBytes> seen = {};
  size_t count = 0;
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    if (data.types[id] != TokenType::kByte) continue;
    const int byte = ByteOf(data.tokens[id]);
    if (byte < 0) {
      return InvalidArgument("token ", id, " is a byte token spelled ", Quoted(data.tokens[id]),
                             ": it must be <0x00> to <0xFF> with two upper-case hex digits");
    }
    if (seen[static_cast<size_t>(byte)]) {
      return InvalidArgument("byte token ", Quoted(data.tokens[id]), " is there twice");
    }
    seen[static_cast<size_t>(byte)] = true;
    ++count;
  }
  if (count != 0 && count != kNumBytes) {
    return InvalidArgument("the vocabulary has ", count, " byte tokens: there must be none or ",
                           kNumBytes);
  }
  return count != 0;
}

absl::Status ReadSentencePiece(const GgufFile& file, TokenizerData& data) {
  data.kind = TokenizerKind::kSentencePiece;
  ASSIGN_OR_RETURN(const std::vector<float> scores, file.FloatArray("tokenizer.ggml.scores"));
  if (scores.size() != data.tokens.size()) {
    return InvalidArgument("the tokenizer has ", data.tokens.size(), " tokens and ", scores.size(),
                           " scores");
  }
  for (size_t id = 0; id < scores.size(); ++id) {
    if (!std::isfinite(scores[id])) {
      return InvalidArgument("token ", id, " has the score ", scores[id]);
    }
    if (data.tokens[id].empty()) return InvalidArgument("token ", id, " is an empty piece");
  }
  // A ModelProto has one unknown piece. Some files mark placeholders so too: those become control
  // pieces.
  const auto is_unknown = [&data](int64_t id) {
    return data.types[static_cast<size_t>(id)] == TokenType::kUnknown;
  };
  if (data.unknown_id < 0 || !is_unknown(data.unknown_id)) {
    const auto first = std::find(data.types.begin(), data.types.end(), TokenType::kUnknown);
    if (first == data.types.end()) {
      return InvalidArgument("the vocabulary has no token of the type unknown");
    }
    data.unknown_id = static_cast<int32_t>(first - data.types.begin());
  }
  for (size_t id = 0; id < data.types.size(); ++id) {
    if (static_cast<int64_t>(id) != data.unknown_id && data.types[id] == TokenType::kUnknown) {
      data.types[id] = TokenType::kControl;
    }
  }
  ASSIGN_OR_RETURN(data.add_bos, BoolOr(file, "tokenizer.ggml.add_bos_token", true));
  ASSIGN_OR_RETURN(data.add_space_prefix, BoolOr(file, "tokenizer.ggml.add_space_prefix", true));

  SentencePieceSpec spec = {.pieces = data.tokens, .scores = scores, .types = data.types};
  ASSIGN_OR_RETURN(spec.byte_fallback, CheckByteTokens(data));
  ASSIGN_OR_RETURN(spec.remove_extra_whitespaces,
                   BoolOr(file, "tokenizer.ggml.remove_extra_whitespaces", false));
  if (file.Has("tokenizer.ggml.precompiled_charsmap")) {
    ASSIGN_OR_RETURN(spec.precompiled_charsmap,
                     file.ByteArray("tokenizer.ggml.precompiled_charsmap"));
  }
  spec.add_dummy_prefix = data.add_space_prefix;
  spec.unknown_id = data.unknown_id;
  spec.bos_id = data.bos_id;
  spec.eos_id = data.eos_id;
  spec.padding_id = data.padding_id;
  data.sentencepiece_model = SerializeSentencePieceModel(spec);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerData> ReadTokenizer(const GgufFile& file, int32_t vocab_size) {
  TokenizerData data;
  ASSIGN_OR_RETURN(const std::string model, file.Text("tokenizer.ggml.model"));
  if (model != "gpt2" && model != "llama") {
    return Unimplemented("vocabulary type ", Quoted(model),
                         " is not supported: gpt2 and llama are");
  }
  RETURN_IF_ERROR(ReadTokens(file, vocab_size, data));
  RETURN_IF_ERROR(ReadSpecialIds(file, vocab_size, data));
  FindAddedTokens(data);
  RETURN_IF_ERROR(model == "gpt2" ? ReadByteLevelBpe(file, data) : ReadSentencePiece(file, data));
  ASSIGN_OR_RETURN(data.add_eos, BoolOr(file, "tokenizer.ggml.add_eos_token", false));
  if (data.add_bos && data.bos_id < 0) {
    return InvalidArgument("the tokenizer adds bos and names no bos token");
  }
  if (data.add_eos && data.eos_id < 0) {
    return InvalidArgument("the tokenizer adds eos and names no eos token");
  }
  if (file.Has("tokenizer.chat_template")) {
    ASSIGN_OR_RETURN(data.chat_template, file.Text("tokenizer.chat_template"));
  }
  return data;
}

}  // namespace tandem
