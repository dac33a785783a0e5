// TokenizerData <-> its message; declared in decode_codec.h.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "engine/base/status.h"
#include "services/common/decode_codec.h"

namespace tandem {
namespace {

namespace pb = ::tandem::decode::v1;

// -1 where absent; a value that is present must be an id.
absl::StatusOr<int32_t> OptionalId(const char* field, bool present, int32_t id) {
  if (!present) return -1;
  if (id < 0) return InvalidArgument(field, " is ", id, ": an id is not negative");
  return id;
}

absl::StatusOr<std::vector<TokenType>> TypesFromProto(const pb::TokenizerData& message) {
  const std::string& types = message.types();
  if (types.size() != static_cast<size_t>(message.tokens_size())) {
    return InvalidArgument("types has ", types.size(), " bytes: there are ", message.tokens_size(),
                           " tokens");
  }
  std::vector<TokenType> out;
  out.reserve(types.size());
  for (char c : types) {
    const auto value = static_cast<uint8_t>(c);
    if (value < 1 || value > 6) {
      return InvalidArgument("types holds ", static_cast<int>(value), ": it must be 1 to 6");
    }
    out.push_back(static_cast<TokenType>(value));
  }
  return out;
}

}  // namespace

void ToProto(const TokenizerData& data, pb::TokenizerData* out) {
  out->set_version(kTokenizerDataVersion);
  out->set_kind(data.kind == TokenizerKind::kByteLevelBpe ? pb::TOKENIZER_KIND_BYTE_LEVEL_BPE
                                                          : pb::TOKENIZER_KIND_SENTENCEPIECE);
  out->set_pre_tokenizer(data.pre_tokenizer);
  for (const std::string& token : data.tokens) out->add_tokens(token);
  out->mutable_types()->reserve(data.types.size());
  for (TokenType type : data.types) out->mutable_types()->push_back(static_cast<char>(type));
  for (const std::string& merge : data.merges) out->add_merges(merge);
  for (const AddedToken& token : data.added_tokens) {
    pb::AddedToken* added = out->add_added_tokens();
    added->set_id(token.id);
    added->set_content(token.content);
    added->set_special(token.special);
    added->set_lstrip(token.lstrip);
    added->set_rstrip(token.rstrip);
    added->set_single_word(token.single_word);
    added->set_normalized(token.normalized);
  }
  out->set_sentencepiece_model(data.sentencepiece_model);
  if (data.bos_id >= 0) out->set_bos_id(data.bos_id);
  if (data.eos_id >= 0) out->set_eos_id(data.eos_id);
  if (data.unknown_id >= 0) out->set_unknown_id(data.unknown_id);
  if (data.padding_id >= 0) out->set_padding_id(data.padding_id);
  out->set_add_bos(data.add_bos);
  out->set_add_eos(data.add_eos);
  out->set_add_space_prefix(data.add_space_prefix);
  for (int32_t id : data.end_ids) out->add_end_ids(id);
  out->set_chat_template(data.chat_template);
}

absl::StatusOr<TokenizerData> FromProto(const pb::TokenizerData& message) {
  if (message.version() != kTokenizerDataVersion) {
    return Unimplemented("tokenizer data has version ", message.version(), ": this build reads ",
                         kTokenizerDataVersion);
  }
  TokenizerData out;
  switch (message.kind()) {
    case pb::TOKENIZER_KIND_BYTE_LEVEL_BPE:
      out.kind = TokenizerKind::kByteLevelBpe;
      break;
    case pb::TOKENIZER_KIND_SENTENCEPIECE:
      out.kind = TokenizerKind::kSentencePiece;
      break;
    default:
      return Unimplemented("tokenizer kind ", static_cast<int>(message.kind()),
                           " is not one that this build knows");
  }
  out.pre_tokenizer = message.pre_tokenizer();
  out.tokens.assign(message.tokens().begin(), message.tokens().end());
  ASSIGN_OR_RETURN(out.types, TypesFromProto(message));
  out.merges.assign(message.merges().begin(), message.merges().end());
  for (const pb::AddedToken& added : message.added_tokens()) {
    if (added.id() < 0) {
      return InvalidArgument("an added token has id ", added.id(), ": an id is not negative");
    }
    out.added_tokens.push_back({added.id(), added.content(), added.special(), added.lstrip(),
                                added.rstrip(), added.single_word(), added.normalized()});
  }
  out.sentencepiece_model = message.sentencepiece_model();
  ASSIGN_OR_RETURN(out.bos_id, OptionalId("bos_id", message.has_bos_id(), message.bos_id()));
  ASSIGN_OR_RETURN(out.eos_id, OptionalId("eos_id", message.has_eos_id(), message.eos_id()));
  ASSIGN_OR_RETURN(out.unknown_id,
                   OptionalId("unknown_id", message.has_unknown_id(), message.unknown_id()));
  ASSIGN_OR_RETURN(out.padding_id,
                   OptionalId("padding_id", message.has_padding_id(), message.padding_id()));
  out.add_bos = message.add_bos();
  out.add_eos = message.add_eos();
  out.add_space_prefix = message.add_space_prefix();
  for (int32_t id : message.end_ids()) {
    if (id < 0) return InvalidArgument("end_ids holds ", id, ": an id is not negative");
    out.end_ids.push_back(id);
  }
  out.chat_template = message.chat_template();
  return out;
}

}  // namespace tandem
