// Memory that operations work on. On the CPU it is host memory; on a GPU it is not, and only Ops may touch it.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/tensor.h"

namespace tandem::kernels {

// Owns one allocation of a backend; freed when it goes. Must not outlive the Ops that made it.
class Buffer final {
 public:
  Buffer() = default;
  Buffer(void* data, int64_t bytes, std::function<void(void*)> release)
      : data_(data), bytes_(bytes), release_(std::move(release)) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    if (this != &other) {
      Reset();
      data_ = std::exchange(other.data_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
      release_ = std::exchange(other.release_, nullptr);
    }
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { Reset(); }

  void* data() const { return data_; }
  template <typename T>
  T* as() const { return static_cast<T*>(data_); }
  int64_t bytes() const { return bytes_; }

 private:
  void Reset() {
    if (data_ != nullptr) release_(data_);
    data_ = nullptr;
  }
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  std::function<void(void*)> release_;
};

// A weight matrix in the form that a backend multiplies: one or more parts stacked along rows (q, k, v; gate, up). How a
// part lies in storage is the backend's own business (see Ops::PrepareWeight).
struct Weight {
  struct Part {
    DType dtype = DType::kF32;
    int32_t first_row = 0;
    int32_t rows = 0;
    int64_t offset = 0;  // bytes into storage
  };
  int32_t rows = 0;
  int32_t cols = 0;
  std::vector<Part> parts;
  Buffer storage;
};

}  // namespace tandem::kernels
