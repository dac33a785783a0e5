// Containers whose elements stay when they are taken out, so that the next ones find the memory
// that these had: what runs once a token allocates nothing once it is warm.
//
// Protobuf's own reuse does not reach that far: Clear of a message frees the one that its oneof
// holds. Reuse keeps it where it is of the kind that comes with every token.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "tandem/decode/v1/decode.pb.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::text {

// Empties a message that is about to become one of any kind: it may hold an empty Extend, or an
// empty Delta.
inline void Reuse(decode::v1::Command* command) {
  if (command->has_extend()) {
    command->mutable_extend()->Clear();
  } else {
    command->Clear();
  }
}
inline void Reuse(v1::GenerateResponse* message) {
  if (message->has_delta()) {
    message->mutable_delta()->Clear();
  } else {
    message->Clear();
  }
}

// A vector that never destroys an element. T has a Reuse.
template <typename T>
class RecycledVector final {
 public:
  // Valid until the next one is added.
  T& emplace_back() {
    if (size_ == items_.size()) items_.emplace_back();
    T& item = items_[size_++];
    Reuse(&item);
    return item;
  }
  // REQUIRES size <= size().
  void truncate(size_t size) { size_ = size; }
  void clear() { size_ = 0; }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return items_[i]; }
  const T& operator[](size_t i) const { return items_[i]; }
  T& front() { return items_.front(); }
  const T& front() const { return items_.front(); }
  T& back() { return items_[size_ - 1]; }
  const T& back() const { return items_[size_ - 1]; }
  T* begin() { return items_.data(); }
  T* end() { return items_.data() + size_; }
  const T* begin() const { return items_.data(); }
  const T* end() const { return items_.data() + size_; }
  std::span<T> span() { return {items_.data(), size_}; }

 private:
  std::vector<T> items_;
  size_t size_ = 0;
};

// A queue in a ring that grows by doubling and never destroys an element.
template <typename T>
class RecycledQueue final {
 public:
  // The new last element, with whatever an earlier one left in it. Valid until the next push.
  T& push_back() {
    if (size_ == ring_.size()) Grow();
    return ring_[Index(size_++)];
  }
  // Each REQUIRES !empty().
  void pop_front() {
    first_ = Index(1);
    --size_;
  }
  T& front() { return ring_[first_]; }
  const T& front() const { return ring_[first_]; }
  T& back() { return ring_[Index(size_ - 1)]; }
  const T& back() const { return ring_[Index(size_ - 1)]; }

  void clear() { size_ = 0; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  size_t Index(size_t offset) const {
    const size_t index = first_ + offset;
    return index < ring_.size() ? index : index - ring_.size();
  }
  void Grow() {
    std::vector<T> larger(ring_.empty() ? 2 : 2 * ring_.size());
    for (size_t i = 0; i < size_; ++i) larger[i] = std::move(ring_[Index(i)]);
    ring_ = std::move(larger);
    first_ = 0;
  }

  std::vector<T> ring_;
  size_t first_ = 0;
  size_t size_ = 0;
};

}  // namespace tandem::text
