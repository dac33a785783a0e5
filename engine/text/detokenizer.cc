#include "engine/text/detokenizer.h"

#include <utility>

#include "engine/text/utf8.h"

namespace tandem {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool include_special, bool has_prompt)
    : tokenizer_(tokenizer),
      include_special_(include_special),
      has_prompt_(has_prompt),
      first_(!has_prompt) {}

std::string Detokenizer::Add(int32_t id) {
  const std::string bytes = tokenizer_.TokenBytes(id, first_, include_special_);
  // A special token that is left out of the text is no first word.
  if (include_special_ || !tokenizer_.IsSpecial(id)) first_ = false;
  pending_ += bytes;
  const size_t complete = pending_.size() - IncompleteUtf8Suffix(pending_);
  std::string text = ReplaceInvalidUtf8(std::string_view(pending_).substr(0, complete));
  pending_.erase(0, complete);
  return text;
}

std::string Detokenizer::Flush() {
  first_ = !has_prompt_;
  return ReplaceInvalidUtf8(std::exchange(pending_, {}));
}

}  // namespace tandem
