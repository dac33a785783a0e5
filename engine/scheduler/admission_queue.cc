#include "engine/scheduler/admission_queue.h"

#include "engine/base/check.h"

namespace tandem {

AdmissionQueue::AdmissionQueue(int32_t max_queued) : max_queued_(max_queued) {
  TANDEM_CHECK(max_queued >= 0) << "max_queued " << max_queued;
}

bool AdmissionQueue::Push(int64_t id, int32_t priority) {
  TANDEM_CHECK(id > last_id_) << "id " << id << " after " << last_id_;
  last_id_ = id;
  if (size() >= max_queued_) return false;
  priorities_.emplace(id, priority);
  turns_.emplace(-int64_t{priority}, id);
  return true;
}

std::optional<int64_t> AdmissionQueue::First() const {
  if (turns_.empty()) return std::nullopt;
  return turns_.begin()->second;
}

void AdmissionQueue::Remove(int64_t id) {
  const auto found = priorities_.find(id);
  if (found == priorities_.end()) return;
  turns_.erase({-int64_t{found->second}, id});
  priorities_.erase(found);
}

}  // namespace tandem
