// Which worker a session goes to: of the connected workers that serve its model, the one with the
// least load. None that is suspect (it has been silent for a while) or drains.
//
// One that is opened again goes rather to a worker other than the one that it came from, then to
// one with the numerics that it began with. And of those only kMaxReopening Opens wait for their
// admission at a worker: when one is lost, the sessions of it come to the others as fast as these
// admit them, so that they find room in their queues, and new ones do too.
//
// Load of a worker: what it last reported (sessions running and queued, of all text replicas), or
// the choices that this replica has there, whichever is more. The second corrects for opens that
// the report cannot know of yet.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "services/text/served_model.h"
#include "tandem/decode/v1/decode.pb.h"

namespace tandem::text {

// The way to a worker. Thread-safe.
class WorkerLink {
 public:
  virtual ~WorkerLink() = default;
  // Queues commands for the stream of this connection, to be sent together with whatever else
  // waits; what they hold then is of no meaning. Each Open among them gets the next handles: the
  // return value has their first ones, in the order of the Opens. None, if that connection is gone:
  // then nothing was queued, and OnWorkerLost has been or will be called for it.
  virtual std::vector<uint64_t> Send(int32_t shard, uint64_t connection,
                                     std::span<decode::v1::Command> commands) = 0;
  // Ends that connection, for a reason that only its sessions know; nothing if it is gone.
  virtual void Drop(uint64_t connection, const absl::Status& status) = 0;
};

// Connections are numbered over all workers: those of one are behind this number.
inline constexpr uint64_t ConnectionsOf(int32_t worker) {
  return static_cast<uint64_t>(worker) << 32;
}
inline constexpr int32_t WorkerOf(uint64_t connection) {
  return static_cast<int32_t>(connection >> 32);
}

// A worker as one connection to it knows it.
struct WorkerRef {
  int32_t worker = -1;
  uint64_t connection = 0;
  WorkerLink* link = nullptr;
  std::shared_ptr<const ServedModel> model;
};

class Router final {
 public:
  static constexpr int32_t kMaxReopening = 32;

  struct ModelCount {
    std::shared_ptr<const ServedModel> model;
    int32_t workers = 0;
  };

  // A worker that is connected, for people.
  struct WorkerStatus {
    WorkerRef ref;
    std::optional<decode::v1::Load> load;  // the last report, if one came
    Nanos load_age = 0;                    // since it came
    int64_t placed = 0;                    // choices of this replica
    bool suspect = false;
    bool draining = false;
  };

  void Connected(const WorkerRef& worker);
  void Lost(uint64_t connection);
  void Report(uint64_t connection, const decode::v1::Load& load);
  void SetSuspect(uint64_t connection, bool suspect);
  // For good: it ends, and comes back as another connection.
  void SetDraining(uint64_t connection);

  // The model of that name; an empty name is the only one served. NOT_FOUND: no such model among
  // those served; UNAVAILABLE: no worker is connected; INVALID_ARGUMENT: no name, and several
  // models.
  absl::StatusOr<std::shared_ptr<const ServedModel>> Find(const std::string& name) const;
  // By name.
  std::vector<ModelCount> Models() const;
  // By connection.
  std::vector<WorkerStatus> Workers() const;
  // Some worker takes new sessions.
  bool any() const;

  // Picks a worker and counts the choices to it until Release. UNAVAILABLE: none serves that model
  // any more.
  absl::StatusOr<WorkerRef> Place(const ServedModel& model, int32_t choices);
  // The same for what was opened before. avoid: the connection that it comes from. numerics: the
  // fingerprint that it began with. RESOURCE_EXHAUSTED: many are being opened again, wait.
  absl::StatusOr<WorkerRef> PlaceAgain(const ServedModel& model, int32_t choices, uint64_t avoid,
                                       const std::string& numerics);
  // Of one Open that PlaceAgain placed: it waits no more, whatever became of it. Once for each.
  void Settled(uint64_t connection);
  // Both: nothing, if the connection is gone.
  void Release(uint64_t connection, int32_t choices);

 private:
  struct Worker {
    WorkerRef ref;
    int64_t reported = 0;
    std::optional<decode::v1::Load> last_load;
    Nanos last_report = 0;  // when last_load came
    int64_t placed = 0;
    int32_t reopening = 0;  // Opens that are not settled
    bool suspect = false;
    bool draining = false;
    bool open() const { return !suspect && !draining; }
    int64_t load() const { return reported > placed ? reported : placed; }
  };

  mutable std::mutex mutex_;
  std::map<uint64_t, Worker> workers_;  // by connection; guarded by mutex_
};

}  // namespace tandem::text
