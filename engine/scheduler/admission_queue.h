// Requests that wait for admission, bounded. Order: higher priority first, then age; nothing
// overtakes the first, so that a large request is not starved by small ones.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace tandem {

class AdmissionQueue final {
 public:
  // REQUIRES max_queued >= 0.
  explicit AdmissionQueue(int32_t max_queued);

  // False: the queue is full. REQUIRES an id larger than every one before it.
  bool Push(int64_t id, int32_t priority);
  // The id whose turn it is.
  std::optional<int64_t> First() const;
  // No effect where the id is not queued.
  void Remove(int64_t id);
  int32_t size() const { return static_cast<int32_t>(turns_.size()); }

 private:
  using Turn = std::pair<int64_t, int64_t>;  // (-priority, id)

  int32_t max_queued_;
  int64_t last_id_ = -1;
  std::map<int64_t, int32_t> priorities_;  // by id
  std::set<Turn> turns_;
};

}  // namespace tandem
