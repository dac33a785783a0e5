// Records generations into files, for `tandem explain`: what their sessions said and were told.
//
// Whoever records never waits for a disk: records go into a queue of bounded size, and a thread of
// the recorder's own writes them. When the queue is full, or a write fails, or a file has as many
// bytes as it may, that trace ends with a record that says so, and its request goes on as if
// nothing had been.
//
// Files are named trace-MILLISECONDS-NUMBER-REQUEST.trace, with the characters of the request id
// that a file name may have. They hold prompts and output in the clear, and are their owner's alone
// (0600). Of the files that this process made the newest max_requests are kept. A request that
// comes while that many are being recorded is not.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "services/text/request.h"
#include "tandem/trace/v1/trace.pb.h"

namespace tandem::text {

struct TraceOptions {
  std::string folder;                       // must exist; empty: nothing is recorded
  int32_t requests = 100;                   // [1, kMaxTraceRequests]: files at once
  int64_t bytes = int64_t{16} << 20;        // of a file, [kMinTraceFile, kMaxTraceFile]
  int64_t queue_bytes = int64_t{16} << 20;  // of what waits to be written
};

inline constexpr int32_t kMaxTraceRequests = 100'000;
inline constexpr int64_t kMinTraceFile = 64 << 10;
inline constexpr int64_t kMaxTraceFile = int64_t{1} << 30;

class TraceRecorder;

// What one request's session does. Never blocks on a disk. Not thread-safe.
class RequestTrace final {
 public:
  ~RequestTrace();  // without End: the file reads as cut off
  RequestTrace(const RequestTrace&) = delete;
  RequestTrace& operator=(const RequestTrace&) = delete;

  void OnCommand(uint64_t connection, const decode::v1::Command& command, Nanos now);
  void OnEvent(uint64_t connection, const decode::v1::Event& event, Nanos now);
  // The handles of the last Open there: of these choices of the request.
  void OnHandles(uint64_t connection, uint64_t first_handle, int32_t first_choice, int32_t choices,
                 Nanos now);
  void OnLost(uint64_t connection, const absl::Status& why, Nanos now);
  // tokens: prompt and output of that choice.
  void OnFinished(const v1::Finished& finished, std::span<const int32_t> tokens, Nanos now);
  void End(const absl::Status& status);

 private:
  friend class TraceRecorder;
  struct File;  // the writing thread's
  RequestTrace(TraceRecorder* recorder, std::shared_ptr<File> file, Nanos begin);
  trace::v1::Record MakeRecord(uint64_t connection, Nanos now) const;
  void Push(trace::v1::Record record);

  TraceRecorder* const recorder_;
  const std::shared_ptr<File> file_;
  const Nanos begin_;
  bool ended_ = false;
};

// Thread-safe.
class TraceRecorder final {
 public:
  // INVALID_ARGUMENT names the flag: a folder that is none or cannot be written to, numbers out of
  // their ranges.
  static absl::StatusOr<std::unique_ptr<TraceRecorder>> Start(const TraceOptions& options);
  // Writes what waits. All traces must be gone.
  ~TraceRecorder();

  // Null: as many as may be are being recorded.
  std::unique_ptr<RequestTrace> Begin(const GenerationRequest& request, Nanos now);

 private:
  friend class RequestTrace;
  struct Item {
    std::shared_ptr<RequestTrace::File> file;
    trace::v1::Record record;
    int64_t bytes = 0;
    bool closes = false;
  };

  explicit TraceRecorder(const TraceOptions& options);
  // False: the queue is full. What closes a trace always fits.
  bool Push(Item item);
  void Run();
  void Write(const Item& item);
  void Create(const std::shared_ptr<RequestTrace::File>& file);
  void Append(RequestTrace::File& file, const trace::v1::Record& record);
  void OnDisk(const absl::Status& status);
  void MakeRoom();

  const TraceOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::vector<Item> queue_;
  int64_t queued_bytes_ = 0;  // with what is being written
  int32_t active_ = 0;        // traces that are not closed yet
  uint64_t last_number_ = 0;
  bool stop_ = false;

  // The thread's own.
  std::deque<std::shared_ptr<RequestTrace::File>> files_;  // that exist, the oldest first
  bool disk_failed_ = false;  // when it was used last; logged when it changes
  std::thread thread_;
};

}  // namespace tandem::text
