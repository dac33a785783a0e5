// One Decode stream as a test drives it, by hand.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "services/common/transport.h"
#include "tandem/decode/v1/decode.grpc.pb.h"

namespace tandem::test {

// Not thread-safe. Everything that waits is bounded by the call's deadline of a minute, after which
// the stream ends with DEADLINE_EXCEEDED.
class DecodeClient final {
 public:
  explicit DecodeClient(const std::string& address, const Keepalive& keepalive = {});
  // Cancels the call if it is open.
  ~DecodeClient();
  DecodeClient(const DecodeClient&) = delete;
  DecodeClient& operator=(const DecodeClient&) = delete;

  // A greedy session of at most 32 new tokens with lists of the default sizes. The message may be
  // changed before Send.
  decode::v1::Open* AddOpen(uint64_t handle, const std::vector<int32_t>& tokens);
  void AddExtend(uint64_t handle, int32_t position, uint32_t epoch,
                 const std::vector<int32_t>& tokens);
  void AddFetchRow(uint64_t handle, int32_t position);
  void AddClose(uint64_t handle);
  decode::v1::DecodeRequest& frame() { return frame_; }
  // Sends what was added. False: the stream is broken.
  bool Send();
  void HalfClose() { stream_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }

  // The next frame; null where the stream has ended.
  std::optional<decode::v1::DecodeResponse> ReadFrame();
  // The next event that `wanted` takes; others, and frames without events, are skipped. Null where
  // the stream has ended.
  std::optional<decode::v1::Event> ReadEvent(
      const std::function<bool(const decode::v1::Event&)>& wanted);
  // Of one handle; null where another of its events, or the end, comes first.
  std::optional<decode::v1::Candidates> ReadCandidates(uint64_t handle);
  std::optional<decode::v1::Closed> ReadClosed(uint64_t handle);
  // All chunks of a row.
  std::vector<float> ReadRow(uint64_t handle);
  // Reads frames until one has a load that `wanted` takes. False: the stream has ended.
  bool WaitForLoad(const std::function<bool(const decode::v1::Load&)>& wanted);
  // Reads to the end of the stream.
  grpc::Status Finish();

  // Opens, then confirms each draw. The tokens; fewer where the session closed early.
  std::vector<int32_t> Generate(uint64_t handle, const std::vector<int32_t>& prompt,
                                int32_t num_tokens);

 private:
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<decode::v1::DecodeWorker::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<decode::v1::DecodeRequest, decode::v1::DecodeResponse>>
      stream_;
  decode::v1::DecodeRequest frame_;
  std::vector<decode::v1::Event> unread_;  // of the last frame, last first
  std::optional<grpc::Status> finished_;
};

}  // namespace tandem::test
