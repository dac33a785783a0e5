#include "services/text/outbox.h"

#include <algorithm>
#include <utility>

namespace tandem::text {

void Outbox::Add(v1::GenerateResponse message) {
  bytes_ += static_cast<int64_t>(message.ByteSizeLong());
  if (!Merge(message)) messages_.push_back(std::move(message));
}

bool Outbox::Merge(v1::GenerateResponse& message) {
  if (message.has_progress()) {
    for (v1::GenerateResponse& waiting : messages_) {
      if (!waiting.has_progress()) continue;
      bytes_ -= static_cast<int64_t>(waiting.ByteSizeLong());
      waiting = std::move(message);
      return true;
    }
  }
  if (message.has_delta()) {
    v1::Delta& delta = *message.mutable_delta();
    const auto is_of_choice = [&](const v1::GenerateResponse& waiting) {
      return waiting.has_delta() && waiting.delta().choice() == delta.choice();
    };
    const auto last = std::find_if(messages_.rbegin(), messages_.rend(), is_of_choice);
    if (last == messages_.rend()) return false;
    v1::Delta& joined = *last->mutable_delta();
    if (joined.echo() != delta.echo()) return false;
    if (!joined.token_ids().empty() && delta.token_ids().empty()) return false;
    if (joined.logprobs_size() >= kJoinedLogprobs || joined.text().size() >= kJoinedBytes) {
      return false;
    }
    joined.mutable_text()->append(delta.text());
    joined.mutable_token_ids()->MergeFrom(delta.token_ids());
    for (v1::PositionLogprobs& logprobs : *delta.mutable_logprobs()) {
      *joined.add_logprobs() = std::move(logprobs);
    }
    return true;
  }
  return false;
}

std::optional<v1::GenerateResponse> Outbox::Take() {
  if (messages_.empty()) return std::nullopt;
  v1::GenerateResponse message = std::move(messages_.front());
  messages_.pop_front();
  bytes_ = messages_.empty()
               ? 0
               : std::max<int64_t>(0, bytes_ - static_cast<int64_t>(message.ByteSizeLong()));
  return message;
}

void Outbox::Clear() {
  messages_.clear();
  bytes_ = 0;
}

}  // namespace tandem::text
