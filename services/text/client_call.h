// One submitted request between its shard and its client: what waits to be written, whether the
// session is to be paused, and who is told that the client has caught up, or is gone.
//
// Both doors have one for each request, and put what it holds on their wire in their own way. Not
// thread-safe: its owner's mutex guards it. Shards are told outside of that mutex; so what is to be
// told is returned.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "services/text/outbox.h"
#include "services/text/shard.h"

namespace tandem::text {

class ClientCall final {
 public:
  explicit ClientCall(uint64_t key) : key_(key) {}

  uint64_t key() const { return key_; }
  // Where the request goes. Call before Submit.
  void SetShard(Shard* shard) { shard_ = shard; }

  // ResponseSink::Write and Finish. behind: bytes that wait on the wire, behind what is here, and
  // count like it. Write returns true if the session is to be paused; Resume is then owed.
  bool Write(v1::GenerateResponse* message, int64_t behind = 0) {
    if (cancelled_) return false;
    outbox_.Add(message);
    slow_ |= outbox_.full(behind);
    return outbox_.full(behind);
  }
  // REQUIRES not finished.
  void Finish(absl::Status status);

  // The next message for the wire. False: none now.
  bool Take(v1::GenerateResponse* message) { return outbox_.Take(message); }
  // How it ended, once every message was taken; null: it has not.
  const absl::Status* end() const { return outbox_.empty() && end_.has_value() ? &*end_ : nullptr; }
  bool finished() const { return end_.has_value(); }
  // What waits cannot be written.
  void Drop() { outbox_.Clear(); }

  // The shard whose Resume(key) is owed now; null: none.
  Shard* TakeResume(int64_t behind = 0) {
    if (!slow_ || !outbox_.drained(behind)) return nullptr;
    slow_ = false;
    return shard_;
  }
  // The client is gone. Returns the shard whose Cancel(key) is to be called; null: none.
  Shard* Cancel() {
    cancelled_ = true;
    outbox_.Clear();
    return shard_;
  }
  bool cancelled() const { return cancelled_; }

 private:
  const uint64_t key_;
  Shard* shard_ = nullptr;
  Outbox outbox_;
  std::optional<absl::Status> end_;
  bool slow_ = false;  // Resume is owed
  bool cancelled_ = false;
};

}  // namespace tandem::text
