#include "services/text/router.h"

#include <algorithm>

#include "engine/base/status.h"

namespace tandem::text {

void Router::Connected(const WorkerRef& worker) {
  std::lock_guard lock(mutex_);
  workers_[worker.connection] = {.ref = worker};
}

void Router::Lost(uint64_t connection) {
  std::lock_guard lock(mutex_);
  workers_.erase(connection);
}

void Router::Report(uint64_t connection, const decode::v1::Load& load) {
  std::lock_guard lock(mutex_);
  const auto found = workers_.find(connection);
  if (found == workers_.end()) return;
  found->second.reported = int64_t{load.running()} + load.queued();
}

absl::StatusOr<std::shared_ptr<const ServedModel>> Router::Find(const std::string& name) const {
  const std::vector<ModelCount> models = Models();
  if (models.empty()) return absl::UnavailableError("no worker is connected");
  if (name.empty()) {
    for (const ModelCount& entry : models) {
      if (entry.model->name != models[0].model->name) {
        return InvalidArgument("model is empty: several are served, such as ",
                               models[0].model->name, " and ", entry.model->name);
      }
    }
    return models[0].model;
  }
  for (const ModelCount& entry : models) {
    if (entry.model->name == name) return entry.model;
  }
  return NotFound("model ", name, " is not served");
}

std::vector<Router::ModelCount> Router::Models() const {
  std::vector<ModelCount> out;
  std::lock_guard lock(mutex_);
  for (const auto& [connection, worker] : workers_) {
    const auto same = std::find_if(out.begin(), out.end(), [&](const ModelCount& entry) {
      return entry.model->SameModel(*worker.ref.model);
    });
    if (same != out.end()) {
      ++same->workers;
    } else {
      out.push_back({worker.ref.model, 1});
    }
  }
  std::stable_sort(out.begin(), out.end(), [](const ModelCount& a, const ModelCount& b) {
    return a.model->name < b.model->name;
  });
  return out;
}

bool Router::any() const {
  std::lock_guard lock(mutex_);
  return !workers_.empty();
}

absl::StatusOr<WorkerRef> Router::Place(const ServedModel& model, int32_t choices) {
  std::lock_guard lock(mutex_);
  Worker* best = nullptr;
  for (auto& [connection, worker] : workers_) {
    if (!worker.ref.model->SameModel(model)) continue;
    if (best == nullptr || worker.load() < best->load()) best = &worker;
  }
  if (best == nullptr) {
    return absl::UnavailableError(absl::StrCat("no worker serves model ", model.name, " any more"));
  }
  best->placed += choices;
  return best->ref;
}

void Router::Release(uint64_t connection, int32_t choices) {
  std::lock_guard lock(mutex_);
  const auto found = workers_.find(connection);
  if (found != workers_.end()) found->second.placed -= choices;
}

}  // namespace tandem::text
