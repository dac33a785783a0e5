// The moving of one Generate call's messages: from a shard into its ClientCall, from there to gRPC,
// one write in flight.
//
// The reactor is gRPC's and deletes itself; the call is shared by whoever works on it, and forgets
// the reactor once the call is finished. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "services/text/client_call.h"
#include "services/text/intake.h"
#include "services/text/shard.h"

namespace tandem::text {

class GenerateCall final : public ResponseSink, public std::enable_shared_from_this<GenerateCall> {
 public:
  explicit GenerateCall(uint64_t key) : key_(key), call_(key) {}
  // To be returned to gRPC; once.
  grpc::ServerWriteReactor<grpc::ByteBuffer>* MakeReactor();

  uint64_t key() const { return key_; }
  // Kept until gRPC is done with the call. Call before it is finished.
  void SetPlace(Intake::Place place);
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
  void OnDone();
  void PumpLocked();

  const uint64_t key_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  Reactor* reactor_ = nullptr;  // null: the call is finished
  Intake::Place place_;
  ClientCall call_;
  v1::GenerateResponse taken_;  // kept for its memory
  grpc::ByteBuffer outgoing_;
  bool writing_ = false;
};

}  // namespace tandem::text
