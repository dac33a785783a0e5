#include "services/text/frame_packer.h"

#include <utility>

#include "engine/base/check.h"

namespace tandem::text {

std::vector<uint64_t> FramePacker::Add(int32_t shard, std::span<decode::v1::Command> commands) {
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
    if (spare_.empty()) spare_.push_back(std::make_unique<decode::v1::Command>());
    spare_.back()->Swap(&command);
    waiting_.push_back() = std::move(spare_.back());
    spare_.pop_back();
  }
  return first_handles;
}

void FramePacker::Next(decode::v1::DecodeRequest* frame) {
  TANDEM_CHECK(!empty()) << "no command";
  auto& commands = *frame->mutable_commands();
  // Not Clear, which would free what they hold.
  while (!commands.empty()) spare_.emplace_back(commands.ReleaseLast());
  int64_t bytes = 0;
  while (!waiting_.empty()) {
    const int64_t size = static_cast<int64_t>(waiting_.front()->ByteSizeLong()) + 8;
    if (bytes > 0 && bytes + size > kTargetBytes) break;
    bytes += size;
    commands.AddAllocated(waiting_.front().release());
    waiting_.pop_front();
  }
}

void FramePacker::Clear() {
  waiting_.clear();
  spare_.clear();
}

}  // namespace tandem::text
