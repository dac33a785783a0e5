#include "services/worker/stream_outbox.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/status.h"
#include "services/common/decode_codec.h"
#include "services/common/prompt_logprobs_codec.h"

namespace tandem {
namespace {

namespace pb = ::tandem::decode::v1;

// What a frame holds beside events: its load.
constexpr int64_t kLoadBytes = 256;
// A chunk of raw logits, with its message around it.
constexpr int64_t kChunkBytes = int64_t{kChunkValues} * 4 + 128;
constexpr size_t kMaxDetailBytes = 1024;

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <typename... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

bool IsValues(const FetchedEvent& event) { return event.what != FetchCommand::What::kMore; }

// No less than the encoded size: bulk fields are packed and of fixed width, and 256 bytes hold
// every scalar and field header.
int64_t EncodedBound(const Candidates& candidates) {
  const int64_t raw_ranks = candidates.summary.raw_total != 0 ? 4 : 0;
  return 256 + static_cast<int64_t>(candidates.top.size()) * (12 + raw_ranks) +
         static_cast<int64_t>(candidates.perturbed.size()) * (28 + raw_ranks) +
         static_cast<int64_t>(candidates.raw_top.size()) * 8 +
         static_cast<int64_t>(candidates.reported.size()) * 12;
}

int64_t EncodedBound(const EngineEvent& event) {
  return std::visit(
      Overloaded{
          [](const CandidatesEvent& e) { return EncodedBound(e.candidates); },
          [](const FetchedEvent& e) {
            return IsValues(e) ? int64_t{128} + static_cast<int64_t>(e.values.size()) * 4
                               : EncodedBound(e.candidates);
          },
          [](const PromptLogprobsEvent& e) {
            const PromptLogprobs& logprobs = e.logprobs;
            return int64_t{128} +
                   int64_t{logprobs.size()} *
                       (20 + 8 * (int64_t{logprobs.num_raw_top} + int64_t{logprobs.num_reported}));
          },
          [](const ClosedEvent& e) {
            return int64_t{64} + static_cast<int64_t>(std::min(e.detail.size(), kMaxDetailBytes));
          },
          [](const auto&) { return int64_t{64}; }},
      event);
}

void Encode(const CandidatesEvent& event, pb::Event* out) {
  pb::Candidates* message = out->mutable_candidates();
  message->set_handle(event.handle.number);
  message->set_position(event.position);
  message->set_epoch(event.epoch);
  if (event.candidates.summary.drawn >= 0) {
    message->set_drawn(static_cast<uint32_t>(event.candidates.summary.drawn));
  }
  ToProto(event.candidates, message->mutable_lists());
}

void Encode(const EngineEvent& event, pb::Event* out) {
  std::visit(Overloaded{[&](const OpenedEvent& e) {
                          out->mutable_opened()->set_handle(e.handle.number);
                          out->mutable_opened()->set_cached_tokens(e.cached_tokens);
                        },
                        [&](const PrefillEvent& e) {
                          out->mutable_prefill()->set_handle(e.handle.number);
                          out->mutable_prefill()->set_done_tokens(e.done);
                          out->mutable_prefill()->set_total_tokens(e.total);
                          out->mutable_prefill()->set_cached_tokens(e.cached);
                        },
                        [&](const PromptLogprobsEvent& e) {
                          out->mutable_prompt_logprobs()->set_handle(e.handle.number);
                          ToProto(e.logprobs, out->mutable_prompt_logprobs());
                        },
                        [&](const CandidatesEvent& e) { Encode(e, out); },
                        [&](const FetchedEvent& e) {
                          out->mutable_fetched()->set_handle(e.handle.number);
                          out->mutable_fetched()->set_position(e.position);
                          ToProto(e.candidates, out->mutable_fetched()->mutable_more());
                        },
                        [&](const ClosedEvent& e) {
                          out->mutable_closed()->set_handle(e.handle.number);
                          out->mutable_closed()->set_reason(ToProto(e.reason));
                          out->mutable_closed()->set_detail(e.detail.substr(0, kMaxDetailBytes));
                        }},
             event);
}

}  // namespace

StreamOutbox::StreamOutbox(int64_t max_bytes, std::function<void()> wake)
    : max_bytes_(max_bytes), wake_(std::move(wake)) {}

void StreamOutbox::PushHello(const pb::Hello& hello, const std::optional<EngineLoad>& load) {
  {
    std::lock_guard lock(mutex_);
    hello_ = hello;
    load_ = load;
  }
  wake_();
}

bool StreamOutbox::Push(std::vector<EngineEvent> events, const std::optional<EngineLoad>& load) {
  bool fits = true;
  {
    std::lock_guard lock(mutex_);
    if (end_) return true;
    if (load) load_ = load;
    for (EngineEvent& event : events) PushLocked(std::move(event));
    fits = bytes_ <= max_bytes_;
    if (!fits) {
      end_ = ResourceExhausted("the peer does not read: ", bytes_,
                               " bytes wait for it, the limit is ", max_bytes_);
      ClearLocked();
    }
  }
  wake_();
  return fits;
}

void StreamOutbox::PushLocked(EngineEvent event) {
  if (const auto* closed = std::get_if<ClosedEvent>(&event)) {
    std::erase_if(values_, [&](const Values& values) {
      if (values.event.handle != closed->handle) return false;
      bytes_ -= values.bound;
      return true;
    });
  }
  const int64_t bound = EncodedBound(event);
  bytes_ += bound;
  auto* fetched = std::get_if<FetchedEvent>(&event);
  if (fetched != nullptr && IsValues(*fetched)) {
    values_.push_back({std::move(*fetched), bound, 0});
  } else {
    events_.push_back(std::move(event));
  }
}

void StreamOutbox::Beat(const std::optional<EngineLoad>& load) {
  {
    std::lock_guard lock(mutex_);
    if (load) load_ = load;
    beat_ = true;
  }
  wake_();
}

void StreamOutbox::End(const absl::Status& status) {
  {
    std::lock_guard lock(mutex_);
    if (!end_) end_ = status;
  }
  wake_();
}

void StreamOutbox::Abort(const absl::Status& status) {
  {
    std::lock_guard lock(mutex_);
    if (!end_) end_ = status;
    ClearLocked();
  }
  wake_();
}

void StreamOutbox::ClearLocked() {
  hello_.reset();
  events_.clear();
  values_.clear();
  bytes_ = 0;
}

bool StreamOutbox::NextFrame(pb::DecodeResponse* frame) {
  std::lock_guard lock(mutex_);
  const bool anything = hello_ || !events_.empty() || !values_.empty();
  if (!anything && (!beat_ || end_)) return false;
  frame->Clear();
  int64_t room = kMaxFrameBytes - kLoadBytes;
  if (hello_) {
    *frame->add_events()->mutable_hello() = *hello_;
    room -= static_cast<int64_t>(hello_->ByteSizeLong()) + 16;
    hello_.reset();
  }
  const int64_t kept = values_.empty() ? 0 : kChunkBytes;
  while (!events_.empty()) {
    const int64_t bound = EncodedBound(events_.front());
    if (room - kept < bound) break;
    room -= bound;
    bytes_ -= bound;
    Encode(events_.front(), frame->add_events());
    events_.pop_front();
  }
  if (!values_.empty()) AddChunkLocked(frame);
  if (load_) ToProto(*load_, frame->mutable_load());
  beat_ = false;
  return true;
}

void StreamOutbox::AddChunkLocked(pb::DecodeResponse* frame) {
  Values& values = values_.front();
  const int32_t total = static_cast<int32_t>(values.event.values.size());
  const int32_t count = std::min(kChunkValues, total - values.sent);
  pb::Fetched* fetched = frame->add_events()->mutable_fetched();
  fetched->set_handle(values.event.handle.number);
  fetched->set_position(values.event.position);
  pb::Fetched::Values* chunk = fetched->mutable_values();
  chunk->set_row(values.event.what == FetchCommand::What::kRow);
  chunk->set_offset(values.sent);
  chunk->set_total(total);
  const auto first = values.event.values.begin() + values.sent;
  chunk->mutable_values()->Assign(first, first + count);
  values.sent += count;
  if (values.sent < total) return;
  bytes_ -= values.bound;
  values_.pop_front();
}

std::optional<absl::Status> StreamOutbox::ended() const {
  std::lock_guard lock(mutex_);
  if (hello_ || !events_.empty() || !values_.empty()) return std::nullopt;
  return end_;
}

bool StreamOutbox::ending() const {
  std::lock_guard lock(mutex_);
  return end_.has_value();
}

}  // namespace tandem
