// tandem.decode.v1.DecodeWorker on gRPC's callback API. Reactors only move messages: the protocol
// is in StreamSession, what goes out in StreamOutbox, the work in EngineLoop.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "services/worker/dispatcher.h"
#include "services/worker/mailbox.h"
#include "services/worker/stream_session.h"
#include "tandem/decode/v1/decode.grpc.pb.h"

namespace tandem {

inline constexpr char kDecodeServiceName[] = "tandem.decode.v1.DecodeWorker";

// Streams at once; one text replica has one.
inline constexpr int32_t kMaxStreams = 64;
// Commands that a stream may have waiting for the engine thread, in bytes of memory.
inline constexpr int64_t kReadWindowBytes = int64_t{4} << 20;
// How long an aborted stream waits for its peer to take the write in flight, and with it the
// status.
inline constexpr Nanos kAbortPatience = 5 * kNanosPerSecond;

// What the service answers from, once a model is loaded.
struct ServedEngine {
  decode::v1::Hello hello;
  StreamLimits limits;
  int64_t outbox_bytes = 0;  // bound of what waits for one peer
  std::string tokenizer;     // serialised TokenizerData
  Mailbox* mailbox = nullptr;
  Dispatcher* dispatcher = nullptr;
  SessionEnds* ends = nullptr;  // null: nobody is told
};

// What an honest peer may leave unread for a moment: for each session the answers of all positions
// that it may be ahead, and a whole row; and as much again as slack.
int64_t OutboxBytes(int32_t max_sessions, int32_t max_run_ahead, int32_t vocab_size);

// Decode takes messages as bytes, since gRPC does not tell a message that is no DecodeRequest from
// the end of the stream.
using DecodeServiceBase = decode::v1::DecodeWorker::WithRawCallbackMethod_Decode<
    decode::v1::DecodeWorker::WithCallbackMethod_GetTokenizer<decode::v1::DecodeWorker::Service>>;

// Thread-safe. Must outlive the server, and what `served` points to must outlive both.
class DecodeService final : public DecodeServiceBase {
 public:
  DecodeService();
  ~DecodeService() override;

  // Until this is called, and after Refuse, calls end with UNAVAILABLE.
  void Serve(std::shared_ptr<const ServedEngine> served);
  void Refuse(const absl::Status& why);

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Decode(
      grpc::CallbackServerContext* context) override;
  grpc::ServerWriteReactor<decode::v1::GetTokenizerResponse>* GetTokenizer(
      grpc::CallbackServerContext* context,
      const decode::v1::GetTokenizerRequest* request) override;

 private:
  class DecodeStream;
  class TokenizerStream;
  absl::StatusOr<std::shared_ptr<const ServedEngine>> served() const;

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::shared_ptr<const ServedEngine> served_;
  absl::Status refusal_;
  int64_t next_stream_ = 1;
};

}  // namespace tandem
