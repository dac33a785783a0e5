// The text side of models, by tokenizer fingerprint: fetched once, however many workers have it and
// however often they return.
//
// Thread-safe. One fetch at a time: workers of one model that come up together fetch it once.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "services/text/served_model.h"

namespace tandem::text {

class ModelTextCache final {
 public:
  static constexpr size_t kMaxEntries = 8;  // the oldest goes; sessions keep what they use

  using Fetch = std::function<absl::StatusOr<TokenizerData>()>;
  // Errors are fetch's and MakeModelText's, and DATA_LOSS where the data that was fetched has
  // another fingerprint.
  absl::StatusOr<std::shared_ptr<const ModelText>> Get(const std::string& fingerprint,
                                                       const Fetch& fetch);

 private:
  std::mutex mutex_;
  std::deque<std::shared_ptr<const ModelText>> entries_;  // guarded by mutex_; oldest first
};

}  // namespace tandem::text
