#include "services/text/outbox.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tandem::text {

void Outbox::Add(v1::GenerateResponse* message) {
  bytes_ += static_cast<int64_t>(message->ByteSizeLong());
  if (!Merge(message)) messages_.emplace_back().Swap(message);
}

bool Outbox::Merge(v1::GenerateResponse* message) {
  if (message->has_progress()) {
    for (v1::GenerateResponse& waiting : messages_) {
      if (!waiting.has_progress()) continue;
      bytes_ -= static_cast<int64_t>(waiting.ByteSizeLong());
      waiting.Swap(message);
      return true;
    }
  }
  if (message->has_delta()) {
    v1::Delta& delta = *message->mutable_delta();
    const auto is_of_choice = [&](const v1::GenerateResponse& waiting) {
      return waiting.has_delta() && waiting.delta().choice() == delta.choice();
    };
    const auto none = std::make_reverse_iterator(messages_.begin());
    const auto last = std::find_if(std::make_reverse_iterator(messages_.end()), none, is_of_choice);
    if (last == none) return false;
    v1::Delta& joined = *last->mutable_delta();
    if (joined.echo() != delta.echo()) return false;
    if (!joined.token_ids().empty() && delta.token_ids().empty()) return false;
    if (joined.logprobs_size() >= kJoinedLogprobs || joined.text().size() >= kJoinedBytes) {
      return false;
    }
    joined.mutable_text()->append(delta.text());
    joined.mutable_token_ids()->MergeFrom(delta.token_ids());
    joined.mutable_token_details()->MergeFrom(delta.token_details());
    for (v1::PositionLogprobs& logprobs : *delta.mutable_logprobs()) {
      *joined.add_logprobs() = std::move(logprobs);
    }
    return true;
  }
  return false;
}

bool Outbox::Take(v1::GenerateResponse* message) {
  if (messages_.empty()) return false;
  message->Swap(&messages_.front());
  std::rotate(messages_.begin(), messages_.begin() + 1, messages_.end());
  messages_.truncate(messages_.size() - 1);
  bytes_ = messages_.empty()
               ? 0
               : std::max<int64_t>(0, bytes_ - static_cast<int64_t>(message->ByteSizeLong()));
  return true;
}

void Outbox::Clear() {
  messages_.clear();
  bytes_ = 0;
}

}  // namespace tandem::text
