#include "services/text/frame_packer.h"

#include <utility>

#include "engine/base/check.h"

namespace tandem::text {

std::vector<uint64_t> FramePacker::Add(int32_t shard, std::vector<decode::v1::Command> commands) {
  std::vector<uint64_t> first_handles;
  for (decode::v1::Command& command : commands) {
    if (command.has_open()) {
      const uint64_t turn = static_cast<uint64_t>(shard);
      // The next block after the last one that is this shard's.
      last_block_ += 1 + (turn + 2 * num_shards_ - (last_block_ + 1) % num_shards_) % num_shards_;
      TANDEM_CHECK(command.open().choices() <= static_cast<int32_t>(kHandlesPerOpen))
          << command.open().choices() << " choices";
      first_handles.push_back(last_block_ * kHandlesPerOpen);
      command.mutable_open()->set_first_handle(first_handles.back());
    } else if (command.has_open_more()) {
      TANDEM_CHECK(!first_handles.empty()) << "OpenMore without its Open";
      command.mutable_open_more()->set_first_handle(first_handles.back());
    }
    commands_.push_back(std::move(command));
  }
  return first_handles;
}

decode::v1::DecodeRequest FramePacker::Next() {
  TANDEM_CHECK(!empty()) << "no command";
  decode::v1::DecodeRequest frame;
  int64_t bytes = 0;
  while (!commands_.empty()) {
    const int64_t size = static_cast<int64_t>(commands_.front().ByteSizeLong()) + 8;
    if (bytes > 0 && bytes + size > kTargetBytes) break;
    bytes += size;
    *frame.add_commands() = std::move(commands_.front());
    commands_.pop_front();
  }
  return frame;
}

}  // namespace tandem::text
