// Memory for one completion handler at a time, so that waking a connection from another thread
// allocates nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <new>

namespace tandem {

class HandlerMemory final {
 public:
  HandlerMemory() = default;
  HandlerMemory(const HandlerMemory&) = delete;
  HandlerMemory& operator=(const HandlerMemory&) = delete;

  // Where the place is taken or too small, memory from the heap.
  void* Allocate(size_t bytes) {
    if (bytes <= sizeof(place_) && !taken_.exchange(true, std::memory_order_acquire)) return place_;
    return ::operator new(bytes);
  }
  void Free(void* memory) {
    if (memory == place_) {
      taken_.store(false, std::memory_order_release);
    } else {
      ::operator delete(memory);
    }
  }

 private:
  alignas(std::max_align_t) std::byte place_[192];
  std::atomic<bool> taken_{false};
};

// It as the allocator that Asio takes with a handler. The memory must outlive the handler.
template <typename T>
struct HandlerAllocator {
  using value_type = T;
  explicit HandlerAllocator(HandlerMemory* memory) : memory(memory) {}
  template <typename U>
  HandlerAllocator(const HandlerAllocator<U>& other) : memory(other.memory) {}
  T* allocate(size_t count) { return static_cast<T*>(memory->Allocate(count * sizeof(T))); }
  void deallocate(T* pointer, size_t) { memory->Free(pointer); }
  bool operator==(const HandlerAllocator& other) const { return memory == other.memory; }

  HandlerMemory* memory;
};

}  // namespace tandem
