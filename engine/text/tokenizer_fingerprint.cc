#include <cstdint>
#include <string>

#include "engine/base/hash.h"
#include "engine/text/tokenizer_data.h"

namespace tandem {

std::string TokenizerFingerprint(const TokenizerData& data) {
  Fingerprinter hash;
  const auto texts = [&hash](const std::vector<std::string>& values) {
    hash.Add(static_cast<int64_t>(values.size()));
    for (const std::string& value : values) hash.Add(value);
  };
  hash.Add(static_cast<int64_t>(data.kind)).Add(data.pre_tokenizer);
  texts(data.tokens);
  hash.Add(static_cast<int64_t>(data.types.size()));
  for (const TokenType type : data.types) hash.Add(static_cast<int64_t>(type));
  texts(data.merges);
  hash.Add(static_cast<int64_t>(data.added_tokens.size()));
  for (const AddedToken& token : data.added_tokens) {
    hash.Add(int64_t{token.id}).Add(token.content);
    for (const bool flag :
         {token.special, token.lstrip, token.rstrip, token.single_word, token.normalized}) {
      hash.Add(int64_t{flag});
    }
  }
  hash.Add(data.sentencepiece_model);
  for (const int32_t id : {data.bos_id, data.eos_id, data.unknown_id, data.padding_id}) {
    hash.Add(int64_t{id});
  }
  for (const bool flag : {data.add_bos, data.add_eos, data.add_space_prefix}) {
    hash.Add(int64_t{flag});
  }
  hash.Add(static_cast<int64_t>(data.end_ids.size()));
  for (const int32_t id : data.end_ids) hash.Add(int64_t{id});
  hash.Add(data.chat_template);
  return hash.Hex();
}

}  // namespace tandem
