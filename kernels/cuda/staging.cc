#include "kernels/cuda/staging.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/check.h"

namespace tandem::kernels::cuda {

absl::StatusOr<std::unique_ptr<Staging>> Staging::Make(int64_t bytes, cudaStream_t stream) {
  std::unique_ptr<Staging> staging(new Staging(bytes, stream));
  if (const cudaError_t error = cudaMallocHost(&staging->ring_, static_cast<size_t>(bytes));
      error != cudaSuccess) {
    return absl::ResourceExhaustedError(absl::StrCat("no pinned memory for copies: ", bytes,
                                                     " bytes: ", cudaGetErrorString(error)));
  }
  for (cudaEvent_t& event : staging->events_) {
    if (const cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
        error != cudaSuccess) {
      return absl::InternalError(absl::StrCat("cudaEventCreate: ", cudaGetErrorString(error)));
    }
  }
  return staging;
}

Staging::~Staging() {
  cudaStreamSynchronize(stream_);
  for (const cudaEvent_t event : events_) {
    if (event != nullptr) cudaEventDestroy(event);
  }
  cudaFreeHost(ring_);
}

void Staging::Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess || !status_.ok()) return;
  status_ = absl::InternalError(
      absl::StrCat("the device is lost: ", what, ": ", cudaGetErrorString(error)));
}

Staging::Piece Staging::Take(int64_t bytes) {
  while (true) {
    const int64_t offset = head_ % bytes_;
    const int64_t room = std::min(bytes_ - offset, bytes_ - (head_ - tail_));
    if (room > 0) {
      const int64_t taken = std::min(bytes, room);
      head_ += taken;
      return {ring_ + offset, taken};
    }
    Reclaim();
  }
}

void Staging::Reclaim() {
  if (open_.empty()) Mark();
  const Open oldest = open_.front();
  Finish(oldest.mark).IgnoreError();
}

void Staging::Upload(void* device, const void* host, int64_t bytes) {
  const char* from = static_cast<const char*>(host);
  char* to = static_cast<char*>(device);
  while (bytes > 0) {
    const Piece piece = Take(bytes);
    std::memcpy(piece.data, from, static_cast<size_t>(piece.bytes));
    Check(cudaMemcpyAsync(to, piece.data, static_cast<size_t>(piece.bytes), cudaMemcpyHostToDevice,
                          stream_),
          "upload");
    from += piece.bytes;
    to += piece.bytes;
    bytes -= piece.bytes;
  }
}

void Staging::Download(void* host, const void* device, int64_t bytes) {
  char* to = static_cast<char*>(host);
  const char* from = static_cast<const char*>(device);
  while (bytes > 0) {
    const Piece piece = Take(bytes);
    Check(cudaMemcpyAsync(piece.data, from, static_cast<size_t>(piece.bytes),
                          cudaMemcpyDeviceToHost, stream_),
          "download");
    waiting_.push_back({to, piece.data, piece.bytes, marks_ + 1});
    from += piece.bytes;
    to += piece.bytes;
    bytes -= piece.bytes;
  }
}

int64_t Staging::Mark() {
  if (static_cast<int>(open_.size()) == kMaxMarks) Reclaim();
  ++marks_;
  Check(cudaGetLastError(), "a launch");
  Check(cudaEventRecord(events_[marks_ % kMaxMarks], stream_), "cudaEventRecord");
  open_.push_back({marks_, head_});
  return marks_;
}

absl::Status Staging::Finish(int64_t mark) {
  KERNELS_REQUIRE(mark > 0 && mark <= marks_, "mark %lld of %lld", static_cast<long long>(mark),
                  static_cast<long long>(marks_));
  while (!open_.empty() && open_.front().mark <= mark) {
    if (status_.ok()) {
      Check(cudaEventSynchronize(events_[open_.front().mark % kMaxMarks]), "a step");
    }
    while (!waiting_.empty() && waiting_.front().mark <= open_.front().mark) {
      const Waiting& waiting = waiting_.front();
      if (status_.ok()) {
        std::memcpy(waiting.host, waiting.from, static_cast<size_t>(waiting.bytes));
      }
      waiting_.pop_front();
    }
    tail_ = open_.front().head;
    open_.pop_front();
  }
  return status_;
}

}  // namespace tandem::kernels::cuda
