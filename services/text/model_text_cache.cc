#include "services/text/model_text_cache.h"

#include <utility>

#include "engine/base/status.h"
#include "engine/text/tokenizer_data.h"

namespace tandem::text {

absl::StatusOr<std::shared_ptr<const ModelText>> ModelTextCache::Get(const std::string& fingerprint,
                                                                     const Fetch& fetch) {
  std::lock_guard lock(mutex_);
  for (const auto& entry : entries_) {
    if (entry->fingerprint == fingerprint) return entry;
  }
  ASSIGN_OR_RETURN(TokenizerData data, fetch());
  const std::string actual = TokenizerFingerprint(data);
  if (actual != fingerprint) {
    return absl::DataLossError(absl::StrCat("the tokenizer that came has fingerprint ", actual,
                                            ": the worker named ", fingerprint));
  }
  ASSIGN_OR_RETURN(std::shared_ptr<const ModelText> text,
                   MakeModelText(fingerprint, std::move(data)));
  entries_.push_back(text);
  if (entries_.size() > kMaxEntries) entries_.pop_front();
  return text;
}

}  // namespace tandem::text
