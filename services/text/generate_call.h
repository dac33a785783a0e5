// The moving of one Generate call's messages: from a shard into an outbox, from there to gRPC, one
// write in flight.
//
// The reactor is gRPC's and deletes itself; the call is shared by whoever works on it, and forgets
// the reactor once the call is finished. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "services/text/outbox.h"
#include "services/text/shard.h"

namespace tandem::text {

class GenerateCall final : public ResponseSink, public std::enable_shared_from_this<GenerateCall> {
 public:
  // on_done runs when gRPC is done with the call.
  GenerateCall(uint64_t key, std::function<void()> on_done);
  // To be returned to gRPC; once.
  grpc::ServerWriteReactor<grpc::ByteBuffer>* MakeReactor();

  uint64_t key() const { return key_; }
  // Where the request goes; cancelling and resuming are sent there. Call before Submit.
  void SetShard(Shard* shard);

  bool Write(v1::GenerateResponse* message) override;
  void Flush() override;
  void Finish(absl::Status status) override;
  bool cancelled() const override;

 private:
  class Reactor;

  void OnWriteDone(bool ok);
  void OnCancel();
  void PumpLocked();
  // The shard to be told that the client has caught up; null: none.
  Shard* ResumeOwedLocked();

  const uint64_t key_;
  const std::function<void()> on_done_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  Reactor* reactor_ = nullptr;  // null: the call is finished
  Shard* shard_ = nullptr;
  Outbox outbox_;
  v1::GenerateResponse taken_;  // kept for its memory
  grpc::ByteBuffer outgoing_;
  std::optional<absl::Status> final_;
  bool writing_ = false;
  bool slow_ = false;  // Resume is owed
  bool cancelled_ = false;
};

}  // namespace tandem::text
