#include "services/common/http/exchange.h"

#include <utility>

#include "engine/base/check.h"

namespace tandem {
namespace {

// A chunk's size is only known once it is taken, so its line is written first, with room for any.
constexpr std::string_view kChunkLine = "00000000\r\n";
constexpr size_t kChunkDigits = 8;
// Memory that a long response leaves behind is given back.
constexpr size_t kKeptBytes = 256 << 10;

}  // namespace

Exchange::Exchange(Shape shape, std::function<bool()> closing, std::weak_ptr<ExchangeOwner> owner)
    : closing_(std::move(closing)), owner_(std::move(owner)), shape_(shape) {}

void Exchange::Watch(std::shared_ptr<HttpExchangeEvents> events) {
  {
    std::lock_guard lock(mutex_);
    if (!gone_) {
      if (!ended_) events_ = std::move(events);
      return;
    }
  }
  events->OnGone();
}

void Exchange::Send(HttpResponse response) {
  {
    std::lock_guard lock(mutex_);
    if (gone_) return;
    TANDEM_CHECK(status_ == 0) << "a request is answered once";
    status_ = response.status;
    shape_.close |= closing_();
    AppendHead(response, {.close = shape_.close, .http_1_0 = shape_.http_1_0}, &pending_);
    if (!shape_.head_only) pending_.append(response.body);
    EndLocked();
  }
  Wake();
}

void Exchange::StartStream(HttpResponse head) {
  std::lock_guard lock(mutex_);
  if (gone_) return;
  TANDEM_CHECK(status_ == 0) << "a request is answered once";
  status_ = head.status;
  chunked_ = !shape_.http_1_0;
  shape_.close |= closing_() || !chunked_;
  const std::string first = std::exchange(head.body, std::string());
  AppendHead(head,
             {.body = chunked_ ? HttpFraming::Body::kChunked : HttpFraming::Body::kUntilClose,
              .close = shape_.close,
              .http_1_0 = shape_.http_1_0},
             &pending_);
  OpenChunkLocked();
  if (!shape_.head_only) pending_.append(first);
}

void Exchange::Write(std::string_view bytes) {
  std::lock_guard lock(mutex_);
  if (gone_) return;
  TANDEM_CHECK(status_ != 0 && !ended_) << "a stream is written to between its start and its end";
  if (shape_.head_only) return;
  OpenChunkLocked();
  pending_.append(bytes);
  above_ |= static_cast<int64_t>(pending_.size()) + taken_ > kDrainMark;
}

void Exchange::Flush() {
  {
    std::lock_guard lock(mutex_);
    if (gone_ || pending_.empty() || flushed_) return;
    flushed_ = true;
  }
  Wake();
}

void Exchange::End() {
  {
    std::lock_guard lock(mutex_);
    if (gone_) return;
    TANDEM_CHECK(status_ != 0 && !ended_) << "a stream is ended once";
    CloseChunkLocked();
    if (chunked_ && !shape_.head_only) pending_.append("0\r\n\r\n");
    EndLocked();
  }
  Wake();
}

void Exchange::EndLocked() {
  ended_ = true;
  flushed_ = true;
}

void Exchange::OpenChunkLocked() {
  if (!chunked_ || shape_.head_only || chunk_ != std::string::npos) return;
  chunk_ = pending_.size();
  pending_.append(kChunkLine);
}

void Exchange::CloseChunkLocked() {
  if (chunk_ == std::string::npos) return;
  size_t size = pending_.size() - chunk_ - kChunkLine.size();
  if (size == 0) {
    pending_.resize(chunk_);  // an empty chunk would be the stream's end
  } else {
    for (size_t i = kChunkDigits; i-- > 0; size >>= 4) {
      pending_[chunk_ + i] = "0123456789abcdef"[size & 15];
    }
    pending_.append("\r\n");
  }
  chunk_ = std::string::npos;
}

void Exchange::Wake() {
  if (const std::shared_ptr<ExchangeOwner> owner = owner_.lock()) owner->Wake();
}

int64_t Exchange::waiting_bytes() const {
  std::lock_guard lock(mutex_);
  return static_cast<int64_t>(pending_.size()) + taken_;
}

bool Exchange::gone() const {
  std::lock_guard lock(mutex_);
  return gone_;
}

bool Exchange::Take(std::string* out, bool* last) {
  std::lock_guard lock(mutex_);
  if (!flushed_) return false;
  flushed_ = false;
  CloseChunkLocked();
  *last = ended_;
  out->swap(pending_);
  if (pending_.capacity() > kKeptBytes) std::string().swap(pending_);
  taken_ = static_cast<int64_t>(out->size());
  return !out->empty() || ended_;
}

void Exchange::OnTaken(int64_t bytes) {
  std::shared_ptr<HttpExchangeEvents> events;
  {
    std::lock_guard lock(mutex_);
    taken_ -= bytes;
    if (!above_ || static_cast<int64_t>(pending_.size()) + taken_ > kDrainMark) return;
    above_ = false;
    events = events_;
  }
  if (events != nullptr) events->OnDrained();
}

void Exchange::OnWhole() {
  std::shared_ptr<HttpExchangeEvents> dropped;
  std::lock_guard lock(mutex_);
  dropped = std::move(events_);
}

void Exchange::OnGone() {
  std::shared_ptr<HttpExchangeEvents> events;
  {
    std::lock_guard lock(mutex_);
    gone_ = true;
    std::string().swap(pending_);
    taken_ = 0;
    events = std::move(events_);
  }
  if (events != nullptr) events->OnGone();
}

bool Exchange::ended() const {
  std::lock_guard lock(mutex_);
  return ended_;
}

bool Exchange::close() const {
  std::lock_guard lock(mutex_);
  return shape_.close;
}

HttpEnd Exchange::end() const {
  std::lock_guard lock(mutex_);
  return {.route = route_,
          .status = gone_ ? 499 : status_,
          .duration = std::chrono::steady_clock::now() - began_};
}

}  // namespace tandem
