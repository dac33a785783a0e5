// One stream's side of the protocol, without gRPC: frames in, engine commands into the mailbox.
//
// Rules. Handles strictly rise, from 1; an Open takes first_handle .. first_handle + choices - 1
// (where choices is out of range, first_handle alone). What breaks the stream's own rules ends the
// stream: a handle that does not rise or was never opened (INVALID_ARGUMENT), an unset oneof
// (UNIMPLEMENTED). Everything else that is wrong with an Open closes its handles with REFUSED here,
// so that the engine never hears of them; what is wrong with other commands (such as a Close that
// retains for too long) is the engine's to refuse.
//
// Thread-safe: End may run while Handle does.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/decode_engine.h"
#include "services/worker/mailbox.h"
#include "services/worker/read_window.h"
#include "services/worker/session_ends.h"
#include "services/worker/stream_outbox.h"
#include "tandem/decode/v1/decode.pb.h"

namespace tandem {

// Opens of a stream whose tokens are not all there yet; more are refused.
inline constexpr int32_t kMaxPartialOpens = 16;

// Of the worker, as its Hello says.
struct StreamLimits {
  int32_t context_length = 0;
  int32_t max_choices = 1;
  int32_t max_run_ahead = 0;
  int32_t max_drafts = 0;
  Nanos max_retain = 0;
};

class StreamSession final {
 public:
  // The mailbox and `ends`, which is told of what is refused here, must outlive this; ends may be
  // null. window: charged here for the memory of each frame's commands, refunded by the engine
  // thread.
  StreamSession(int64_t stream, const StreamLimits& limits, Mailbox& mailbox,
                std::shared_ptr<StreamOutbox> outbox, std::shared_ptr<ReadWindow> window,
                SessionEnds* ends = nullptr);
  StreamSession(const StreamSession&) = delete;
  StreamSession& operator=(const StreamSession&) = delete;

  // Posts the frame's commands as one item. True: read the next frame; false: only when the window
  // says so. Not OK: the stream must end with this status; nothing of the frame is posted.
  absl::StatusOr<bool> Handle(const decode::v1::DecodeRequest& frame, Nanos now);
  // The stream is over: its sessions are freed, and frames handled from now on do nothing. Only the
  // first call counts.
  void End();

 private:
  struct PartialOpen {
    OpenCommand command;
    int64_t total_tokens = 0;
  };
  using Batch = std::vector<EngineCommand>;

  absl::Status HandleCommandLocked(const decode::v1::Command& command, Nanos now, Batch* batch);
  absl::Status OpenLocked(const decode::v1::Open& open, Nanos now, Batch* batch);
  // What the engine is to be told, or why it cannot be.
  absl::StatusOr<OpenCommand> ParseOpen(const decode::v1::Open& open, Nanos now) const;
  absl::Status OpenMoreLocked(const decode::v1::OpenMore& more, Batch* batch);
  absl::Status ExtendLocked(const decode::v1::Extend& extend, Batch* batch);
  absl::Status FetchLocked(const decode::v1::Fetch& fetch, Batch* batch);
  absl::Status CloseLocked(const decode::v1::Close& close, Batch* batch);

  // INVALID_ARGUMENT for a handle that no Open of this stream took.
  absl::Status CheckOpenedLocked(const char* command, uint64_t handle) const;
  // The partial Open that takes the handle, or end().
  std::map<uint64_t, PartialOpen>::iterator FindPartialLocked(uint64_t handle);
  // Closes the handles with kRefused. RESOURCE_EXHAUSTED: the peer does not read.
  absl::Status RefuseLocked(uint64_t first, int32_t choices, const std::string& why,
                            const std::string& request_id);
  absl::Status RefusePartialLocked(std::map<uint64_t, PartialOpen>::iterator partial,
                                   const std::string& why);

  const int64_t stream_;
  const StreamLimits limits_;
  Mailbox& mailbox_;
  const std::shared_ptr<StreamOutbox> outbox_;
  const std::shared_ptr<ReadWindow> window_;
  SessionEnds* const ends_;  // null: nobody is told

  std::mutex mutex_;
  // Guarded by mutex_.
  uint64_t last_handle_ = 0;
  std::map<uint64_t, PartialOpen> partial_;  // by first handle
  bool ended_ = false;
};

}  // namespace tandem
