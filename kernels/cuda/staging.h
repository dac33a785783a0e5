// Pinned host memory between the caller's memory and the device's, so that copies neither wait nor
// keep the caller's memory: an upload is read before the call returns, a download is written to the
// caller when its mark is finished.
//
// A ring of bytes: what a copy takes is free again once the mark behind it is finished. A copy that
// finds no room is cut, or waits for the oldest mark.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <deque>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::kernels::cuda {

class Staging final {
 public:
  static absl::StatusOr<std::unique_ptr<Staging>> Make(int64_t bytes, cudaStream_t stream);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  void Upload(void* device, const void* host, int64_t bytes);
  void Download(void* host, const void* device, int64_t bytes);
  // The end of what was enqueued; at most kMaxMarks may be open.
  int64_t Mark();
  // Waits for the mark and writes the downloads before it. INTERNAL: the device is lost.
  absl::Status Finish(int64_t mark);

  // Keeps an error of the device, which Finish returns from then on.
  void Check(cudaError_t error, const char* what);

  static constexpr int kMaxMarks = 8;

 private:
  Staging(int64_t bytes, cudaStream_t stream) : bytes_(bytes), stream_(stream) {}
  // A piece of at most `bytes` bytes in one run.
  struct Piece {
    char* data = nullptr;
    int64_t bytes = 0;
  };
  Piece Take(int64_t bytes);
  // Everything up to the oldest open mark is done; makes one where none is open.
  void Reclaim();

  struct Waiting {
    void* host = nullptr;
    const char* from = nullptr;
    int64_t bytes = 0;
    int64_t mark = 0;  // that it comes before
  };
  struct Open {
    int64_t mark = 0;
    int64_t head = 0;  // bytes taken so far when it was made
  };

  const int64_t bytes_;
  const cudaStream_t stream_;
  char* ring_ = nullptr;
  int64_t head_ = 0;  // bytes taken since the start, gaps at the end of the ring included
  int64_t tail_ = 0;  // of those, free again
  int64_t marks_ = 0;
  cudaEvent_t events_[kMaxMarks] = {};
  std::deque<Open> open_;
  std::deque<Waiting> waiting_;
  absl::Status status_;  // of the device; once it is lost it stays so
};

}  // namespace tandem::kernels::cuda
