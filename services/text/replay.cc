#include "services/text/replay.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace tandem::text {
namespace {

// What a worker says may be long; it is UTF-8, and stays so.
std::string Shortened(absl::string_view text) {
  constexpr size_t kMaxBytes = 300;
  size_t size = std::min(text.size(), kMaxBytes);
  while (size > 0 && size < text.size() && (text[size] & 0xC0) == 0x80) --size;
  return std::string(text.substr(0, size));
}

}  // namespace

void Replay::OnPlaced(uint64_t connection, Nanos now) {
  if (placed_before_) waited_ += now - unplaced_at_;
  placed_before_ = true;
  connection_ = connection;
}

absl::Status Replay::OnUnplaced(Cause cause, const absl::Status& why, int32_t tokens, Nanos now) {
  unplaced_at_ = next_attempt_ = now;
  cause_ = cause;
  reason_ = Shortened(why.message());
  if (cause == Cause::kUnread) {
    // Nothing has failed, and its worker may still have the pages.
    avoid_ = 0;
    return absl::OkStatus();
  }
  if (policy_.tries == 0) return why;
  ++failures_;
  if (history_.size() == kRemembered) history_.erase(history_.begin());
  history_.push_back(reason_);
  // Pages that were taken away will come back where they were; the other causes stay for a while.
  avoid_ = cause == Cause::kPreempted ? 0 : connection_;
  if (cause == Cause::kLost || cause == Cause::kFault) {
    if (tries_ == policy_.tries) return WithHistory(why);
    ++tries_;
  }
  if (tokens > tokens_) {
    pause_ = waited_ = 0;
  } else if (waited_ >= policy_.wait) {
    return WithHistory(why);
  }
  if (tokens <= tokens_ || cause == Cause::kRefused) Pause(now);
  tokens_ = std::max(tokens_, tokens);
  return absl::OkStatus();
}

absl::Status Replay::OnNoPlace(const absl::Status& why, bool busy, Nanos now) {
  if (!placed_before_) return why;
  if (busy) {
    unplaced_at_ = now;
    waited_ = 0;
  } else if (waited_ + (now - unplaced_at_) >= policy_.wait) {
    return WithHistory(why);
  }
  Pause(now);
  return absl::OkStatus();
}

void Replay::Pause(Nanos now) {
  pause_ = std::clamp(2 * pause_, kFirstPause, kLongestPause);
  const Nanos left = std::max<Nanos>(0, policy_.wait - waited_ - (now - unplaced_at_));
  next_attempt_ = now + std::min(pause_, std::max(left, kFirstPause));
}

absl::Status Replay::WithHistory(const absl::Status& why) const {
  // What came last is `why` itself, or stands in the history too where it came from a worker.
  if (failures_ == 0) return why;
  return absl::Status(why.code(),
                      absl::StrCat(Shortened(why.message()), " (", tries_, " of ", policy_.tries,
                                   " tries used; its workers, the last ", history_.size(), " of ",
                                   failures_, ": ", absl::StrJoin(history_, "; "), ")"));
}

}  // namespace tandem::text
