// What goes out on one stream: a bounded queue of engine events, cut into frames as the stream can
// take them.
//
// Order: events of a handle leave in the order they were pushed, except that raw logits (a Fetched
// of ids or row, which may be half a megabyte) stand in a queue of their own, are cut into chunks,
// and other events pass between the chunks. Those of a handle that closes are dropped, so that
// nothing follows its Closed.
//
// Encoding happens in NextFrame, in the caller's thread. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "engine/decode_engine.h"
#include "tandem/decode/v1/decode.pb.h"

namespace tandem {

// Raw logits in one chunk: 64 KiB.
inline constexpr int32_t kChunkValues = 16384;

class StreamOutbox final {
 public:
  // wake is called, without a lock held, whenever NextFrame may have something new. max_bytes
  // bounds what is queued, in bytes of the encoded events.
  StreamOutbox(int64_t max_bytes, std::function<void()> wake);
  StreamOutbox(const StreamOutbox&) = delete;
  StreamOutbox& operator=(const StreamOutbox&) = delete;

  // Goes before everything that is pushed later. load: null before the first is known.
  void PushHello(const decode::v1::Hello& hello, const std::optional<EngineLoad>& load);
  // load: as it was after the step that the events come from. Where the queue would hold more than
  // max_bytes, the stream is aborted with RESOURCE_EXHAUSTED and false is returned. Ignored, and
  // true, after End or Abort.
  bool Push(std::vector<EngineEvent> events, const std::optional<EngineLoad>& load);
  // A frame goes out now, even if it holds nothing but the load.
  void Beat(const std::optional<EngineLoad>& load);
  // The stream ends with this status behind what is queued / at once, the queue dropped. The first
  // of them counts.
  void End(const absl::Status& status);
  void Abort(const absl::Status& status);

  // Fills `frame` (at most kMaxFrameBytes) with what is next; false: there is nothing now.
  bool NextFrame(decode::v1::DecodeResponse* frame);
  // How the stream is to end; null while frames may come.
  std::optional<absl::Status> ended() const;
  // End or Abort was called, or the queue overflowed: nothing that is pushed now will be sent.
  bool ending() const;

 private:
  struct Values {
    FetchedEvent event;
    int64_t bound = 0;  // its part of bytes_
    int32_t sent = 0;
  };
  void PushLocked(EngineEvent event);
  void ClearLocked();
  void AddChunkLocked(decode::v1::DecodeResponse* frame);

  const int64_t max_bytes_;
  const std::function<void()> wake_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::optional<decode::v1::Hello> hello_;
  std::deque<EngineEvent> events_;
  std::deque<Values> values_;
  int64_t bytes_ = 0;  // of events_ and values_
  std::optional<EngineLoad> load_;
  bool beat_ = false;
  std::optional<absl::Status> end_;
};

}  // namespace tandem
