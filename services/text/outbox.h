// What waits to be written to one client: bounded, because deltas of a choice that wait are joined
// into one, and because its session is paused while too many bytes wait.
//
// Of each choice mostly one delta and at most one Finished wait, of the request one Started and one
// Progress (the last). A delta takes no more once it is so large that its client might refuse it,
// and one of the echo none of the output. Where deltas carry token ids, the text that an end from
// outside gives out has none and stays a delta of its own, so that whoever goes on behind the
// tokens can tell it.
//
// Not thread-safe.
#pragma once

#include <cstdint>

#include "services/text/recycled.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::text {

class Outbox final {
 public:
  // Above `pause_bytes` the session is to be paused, below half of it to go on.
  static constexpr int64_t kPauseBytes = 64 << 10;
  explicit Outbox(int64_t pause_bytes = kPauseBytes) : pause_bytes_(pause_bytes) {}

  // Takes its content; what it holds then is of no meaning.
  void Add(v1::GenerateResponse* message);
  // The next to be written; what *message held is used again. False: empty.
  bool Take(v1::GenerateResponse* message);
  void Clear();

  bool empty() const { return messages_.empty(); }
  int64_t bytes() const { return bytes_; }
  // behind: bytes that have left the outbox and still wait for the client; they count like its own.
  bool full(int64_t behind = 0) const { return bytes_ + behind > pause_bytes_; }
  bool drained(int64_t behind = 0) const { return bytes_ + behind <= pause_bytes_ / 2; }

 private:
  // A joined delta that has one of these is full.
  static constexpr int kJoinedLogprobs = 512;
  static constexpr size_t kJoinedBytes = 256 << 10;

  // Joins a delta or replaces a progress. False: it stands alone.
  bool Merge(v1::GenerateResponse* message);

  const int64_t pause_bytes_;
  RecycledVector<v1::GenerateResponse> messages_;  // a few
  int64_t bytes_ = 0;  // serialised size, about: that of the parts as they were added
};

}  // namespace tandem::text
