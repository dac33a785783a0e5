// How far a peer may write ahead of the engine: the bytes of frames that were read and whose
// commands are not applied yet.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

namespace tandem {

class ReadWindow final {
 public:
  // resume is called, without a lock held, by the Refund that lets reading go on.
  ReadWindow(int64_t limit_bytes, std::function<void()> resume)
      : limit_(limit_bytes), resume_(std::move(resume)) {}
  ReadWindow(const ReadWindow&) = delete;
  ReadWindow& operator=(const ReadWindow&) = delete;

  // Counts a frame that was read. True: read the next one. False: wait for resume, which comes
  // exactly once.
  bool Charge(int64_t bytes) {
    std::lock_guard lock(mutex_);
    pending_ += bytes;
    paused_ = pending_ > limit_;
    return !paused_;
  }
  // The frame was applied.
  void Refund(int64_t bytes) {
    {
      std::lock_guard lock(mutex_);
      pending_ -= bytes;
      if (!paused_ || pending_ > limit_) return;
      paused_ = false;
    }
    resume_();
  }

 private:
  const int64_t limit_;
  const std::function<void()> resume_;
  std::mutex mutex_;
  // Guarded by mutex_.
  int64_t pending_ = 0;
  bool paused_ = false;
};

}  // namespace tandem
