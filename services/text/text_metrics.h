// The text tier's metrics: the table of all of them, what is counted outside of the shards, and the
// text that Prometheus reads. What shards count: shard_counts.h.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "services/common/metrics.h"
#include "services/text/door.h"
#include "services/text/shard_counts.h"
#include "tandem/decode/v1/decode.pb.h"

namespace tandem::text {

std::span<const MetricSpec> TextMetricTable();

// Why a request to generate came to no shard.
enum class Refusal : uint8_t {
  kTooMany,   // --max-requests, or the tasks that wait
  kDraining,  // the server is shutting down
  kNoWorker,  // none is connected
  kNoModel,   // none serves a model of that name
  kInvalid,   // a field is wrong
  kNoKey,     // no API key, or a wrong one
  kGone,      // the client left, or its deadline passed, before it was read
};
inline constexpr size_t kNumRefusals = 7;
// Of one that could not be prepared, by its status.
Refusal RefusalOf(const absl::Status& status);

// Requests that were refused. Thread-safe; a request costs two additions.
class RefusalCounts final {
 public:
  struct Snapshot {
    std::array<std::array<int64_t, kNumRefusals>, kNumDoors> by_reason{};
    std::array<std::array<int64_t, kNumStatusCodes>, kNumDoors> by_status{};
  };

  // status: what the client is told.
  void Count(Door door, Refusal reason, const absl::Status& status);
  Snapshot snapshot() const;

 private:
  std::array<std::array<std::atomic<int64_t>, kNumRefusals>, kNumDoors> by_reason_{};
  std::array<std::array<std::atomic<int64_t>, kNumStatusCodes>, kNumDoors> by_status_{};
};

// What is known of each worker. Thread-safe; a frame costs a lock and a few copies.
class WorkerReports final {
 public:
  enum class State : uint8_t { kLost, kReady, kSuspect, kDraining };
  static constexpr size_t kNumStates = 4;
  struct Report {
    std::string address;  // no two are alike
    State state = State::kLost;
    // As it said last. Of all text replicas' sessions.
    int64_t running = 0;
    int64_t queued = 0;
    int64_t free_pages = 0;
    int64_t cached_pages = 0;
    int64_t total_pages = 0;
  };

  // By worker number. An address that comes again gets a number behind it.
  void SetAddresses(const std::vector<std::string>& addresses);
  void Connected(int32_t worker, uint64_t connection);
  // All: nothing, where the connection is gone.
  void Lost(uint64_t connection);
  void SetSuspect(uint64_t connection, bool suspect);
  void SetDraining(uint64_t connection);
  void Update(uint64_t connection, const decode::v1::Load& load);
  std::vector<Report> snapshot() const;

 private:
  Report* FindLocked(uint64_t connection);

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<Report> reports_;
  std::map<uint64_t, size_t> by_connection_;
};

// Of the HTTP server, as it is now.
struct HttpLoad {
  int64_t connections = 0;
  int64_t streams = 0;  // answers that are being sent as they come
};

// Everything that the metrics and the status line are made of.
struct TextSnapshot {
  ShardCounts shards;  // of all of them
  RefusalCounts::Snapshot refusals;
  std::vector<WorkerReports::Report> workers;
  int64_t tasks_waiting = 0;
  HttpLoad http;
};

// In Prometheus' text format.
std::string ExposeMetrics(const TextSnapshot& snapshot);

// "12 running, 3 queued, 1,204 tok/s, first token 0.21 s (median), pages 61 % free, 2 of 2 workers"
// for the log, as an event with fields. earlier: the snapshot that was taken so long ago. Nothing
// is written where nothing ran in between.
void LogStatus(const TextSnapshot& now, const TextSnapshot& earlier, double seconds);

}  // namespace tandem::text
