#include "services/text/router.h"

#include <algorithm>
#include <tuple>

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
  found->second.last_load = load;
  found->second.last_report = SteadyNow();
}

void Router::SetSuspect(uint64_t connection, bool suspect) {
  std::lock_guard lock(mutex_);
  const auto found = workers_.find(connection);
  if (found != workers_.end()) found->second.suspect = suspect;
}

void Router::SetDraining(uint64_t connection) {
  std::lock_guard lock(mutex_);
  const auto found = workers_.find(connection);
  if (found != workers_.end()) found->second.draining = true;
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

std::vector<Router::WorkerStatus> Router::Workers() const {
  std::vector<WorkerStatus> out;
  std::lock_guard lock(mutex_);
  const Nanos now = SteadyNow();
  for (const auto& [connection, worker] : workers_) {
    out.push_back({.ref = worker.ref,
                   .load = worker.last_load,
                   .load_age = worker.last_load.has_value() ? now - worker.last_report : 0,
                   .placed = worker.placed,
                   .suspect = worker.suspect,
                   .draining = worker.draining});
  }
  return out;
}

bool Router::any() const {
  std::lock_guard lock(mutex_);
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const auto& entry) { return entry.second.open(); });
}

namespace {

absl::Status NoWorker(const ServedModel& model) {
  return absl::UnavailableError(absl::StrCat("no worker serves model ", model.name, " any more"));
}

}  // namespace

absl::StatusOr<WorkerRef> Router::Place(const ServedModel& model, int32_t choices) {
  std::lock_guard lock(mutex_);
  Worker* best = nullptr;
  for (auto& [connection, worker] : workers_) {
    if (!worker.open() || !worker.ref.model->SameModel(model)) continue;
    if (best == nullptr || worker.load() < best->load()) best = &worker;
  }
  if (best == nullptr) return NoWorker(model);
  best->placed += choices;
  return best->ref;
}

absl::StatusOr<WorkerRef> Router::PlaceAgain(const ServedModel& model, int32_t choices,
                                             uint64_t avoid, const std::string& numerics) {
  std::lock_guard lock(mutex_);
  Worker* best = nullptr;
  // A better worker that is busy is worth the wait.
  const auto rank = [&](const Worker& worker) {
    return std::tuple(worker.ref.connection == avoid,
                      worker.ref.model->numerics_fingerprint != numerics,
                      worker.reopening >= kMaxReopening, worker.load());
  };
  for (auto& [connection, worker] : workers_) {
    if (!worker.open() || !worker.ref.model->SameModel(model)) continue;
    if (best == nullptr || rank(worker) < rank(*best)) best = &worker;
  }
  if (best == nullptr) return NoWorker(model);
  if (best->reopening >= kMaxReopening) {
    return ResourceExhausted("worker ", best->ref.worker, " has ", best->reopening,
                             " sessions to open again");
  }
  best->placed += choices;
  ++best->reopening;
  return best->ref;
}

void Router::Settled(uint64_t connection) {
  std::lock_guard lock(mutex_);
  const auto found = workers_.find(connection);
  if (found != workers_.end()) --found->second.reopening;
}

void Router::Release(uint64_t connection, int32_t choices) {
  std::lock_guard lock(mutex_);
  const auto found = workers_.find(connection);
  if (found != workers_.end()) found->second.placed -= choices;
}

}  // namespace tandem::text
