#include "services/text/event_frame.h"

#include <algorithm>
#include <utility>

namespace tandem::text {
namespace {

constexpr size_t kFirstBlockBytes = 16 << 10;
// Several times the largest frame, which has 256 KiB.
constexpr size_t kLargestBlockBytes = 1 << 20;

}  // namespace

uint64_t HandleOf(const decode::v1::Event& event) {
  switch (event.event_case()) {
    case decode::v1::Event::kOpened:
      return event.opened().handle();
    case decode::v1::Event::kPrefill:
      return event.prefill().handle();
    case decode::v1::Event::kPromptLogprobs:
      return event.prompt_logprobs().handle();
    case decode::v1::Event::kCandidates:
      return event.candidates().handle();
    case decode::v1::Event::kFetched:
      return event.fetched().handle();
    case decode::v1::Event::kClosed:
      return event.closed().handle();
    case decode::v1::Event::kHello:
    case decode::v1::Event::EVENT_NOT_SET:
      return 0;
  }
  return 0;
}

EventFrame::EventFrame() : block_(kFirstBlockBytes) { MakeArena(); }

void EventFrame::MakeArena() {
  google::protobuf::ArenaOptions options;
  options.initial_block = block_.data();
  options.initial_block_size = block_.size();
  arena_.emplace(options);
  message_ = google::protobuf::Arena::CreateMessage<decode::v1::DecodeResponse>(&*arena_);
}

void EventFrame::Cut(const FramePacker& packer, int32_t num_shards) {
  by_shard_.resize(static_cast<size_t>(num_shards));
  for (const decode::v1::Event& event : message_->events()) {
    if (event.has_hello()) continue;
    by_shard_[static_cast<size_t>(packer.ShardOf(HandleOf(event)))].push_back(&event);
  }
}

void EventFrame::Reset() {
  for (auto& events : by_shard_) events.clear();
  const size_t used = arena_->Reset();
  if (used > block_.size() && block_.size() < kLargestBlockBytes) {
    arena_.reset();  // before its block
    block_.resize(std::min(2 * used, kLargestBlockBytes));
    return MakeArena();
  }
  message_ = google::protobuf::Arena::CreateMessage<decode::v1::DecodeResponse>(&*arena_);
}

std::shared_ptr<EventFrame> EventFramePool::Take() {
  std::unique_ptr<EventFrame> frame;
  {
    std::lock_guard lock(mutex_);
    if (!waiting_.empty()) {
      frame = std::move(waiting_.back());
      waiting_.pop_back();
    }
  }
  if (frame == nullptr) frame = std::make_unique<EventFrame>();
  return {frame.release(), [pool = shared_from_this()](EventFrame* used) {
            pool->Return(std::unique_ptr<EventFrame>(used));
          }};
}

void EventFramePool::Return(std::unique_ptr<EventFrame> frame) {
  frame->Reset();
  std::lock_guard lock(mutex_);
  if (waiting_.size() < kMostWaiting) waiting_.push_back(std::move(frame));
}

}  // namespace tandem::text
