// Commands of all shards on their way into frames: gives the handles, cuts frames to size.
//
// Handles rise over the whole stream and are given in blocks of kHandlesPerOpen, so that a handle
// itself says which shard it belongs to: block = handle / kHandlesPerOpen, shard = block mod
// shards.
//
// Commands are swapped in, and swapped back once their frame was written, so that Extends go round
// and nothing is allocated for them.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "services/text/recycled.h"
#include "tandem/decode/v1/decode.pb.h"

namespace tandem::text {

class FramePacker final {
 public:
  static constexpr uint64_t kHandlesPerOpen = 16;  // at least the most choices
  // A frame has at most so many bytes, or one command. The largest command, an Open, has less than
  // 192 KiB too: tokens (64), allowed and banned ids (96), the rest (16).
  static constexpr int64_t kTargetBytes = 192 << 10;

  explicit FramePacker(int32_t num_shards) : num_shards_(static_cast<uint64_t>(num_shards)) {}

  static uint64_t BlockOf(uint64_t handle) { return handle / kHandlesPerOpen; }
  int32_t ShardOf(uint64_t handle) const {
    return static_cast<int32_t>(BlockOf(handle) % num_shards_);
  }
  // Some Open had it, so that an event for it may be real.
  bool Given(uint64_t handle) const { return BlockOf(handle) <= last_block_; }

  // Appends; what they hold then is of no meaning. An Open, and the OpenMores behind it, get the
  // next block of the shard. Returns the Opens' first handles.
  std::vector<uint64_t> Add(int32_t shard, std::span<decode::v1::Command> commands);

  bool empty() const { return waiting_.empty(); }
  // Makes it the next frame: at least one command, and no more than fit. *frame: on the heap, empty
  // or an earlier one of this packer. REQUIRES !empty().
  void Next(decode::v1::DecodeRequest* frame);
  // Forgets what waits.
  void Clear();

 private:
  const uint64_t num_shards_;
  uint64_t last_block_ = 0;
  RecycledQueue<std::unique_ptr<decode::v1::Command>> waiting_;
  std::vector<std::unique_ptr<decode::v1::Command>> spare_;  // with what they hold
};

}  // namespace tandem::text
