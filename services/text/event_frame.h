// A frame of a worker's events on its way to the shards: parsed once, in memory that is used again,
// and shared by all shards that have an event in it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include <google/protobuf/arena.h>

#include "services/text/frame_packer.h"
#include "tandem/decode/v1/decode.pb.h"

namespace tandem::text {

// The handle that an event is about; 0: none, or an event of an unknown kind.
uint64_t HandleOf(const decode::v1::Event& event);

class EventFrame final {
 public:
  EventFrame();
  EventFrame(const EventFrame&) = delete;
  EventFrame& operator=(const EventFrame&) = delete;

  // To be filled, then cut. Lives in the frame's arena.
  decode::v1::DecodeResponse* mutable_message() { return message_; }
  const decode::v1::DecodeResponse& message() const { return *message_; }
  // Finds each shard's events, all but a Hello.
  void Cut(const FramePacker& packer, int32_t num_shards);
  // In order; empty, if the shard has none. REQUIRES Cut.
  std::span<const decode::v1::Event* const> OfShard(int32_t shard) const {
    return by_shard_[static_cast<size_t>(shard)];
  }
  // An empty message again. Takes no memory for the next one, if that needs no more than this.
  void Reset();

 private:
  void MakeArena();

  std::vector<char> block_;  // the arena's first
  std::optional<google::protobuf::Arena> arena_;
  decode::v1::DecodeResponse* message_ = nullptr;
  std::vector<std::vector<const decode::v1::Event*>> by_shard_;
};

// Frames that wait to be used again. They come back by themselves, also when the pool's owner is
// gone. Thread-safe.
class EventFramePool final : public std::enable_shared_from_this<EventFramePool> {
 public:
  // Beyond so many, those that come back are freed.
  static constexpr size_t kMostWaiting = 8;

  std::shared_ptr<EventFrame> Take();

 private:
  void Return(std::unique_ptr<EventFrame> frame);

  std::mutex mutex_;
  std::vector<std::unique_ptr<EventFrame>> waiting_;  // guarded by mutex_
};

}  // namespace tandem::text
