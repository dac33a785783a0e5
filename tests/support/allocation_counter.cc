#include "tests/support/allocation_counter.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<int64_t> allocated_bytes{0};
std::atomic<int64_t> live_bytes{0};

void Free(void* memory) noexcept {
  live_bytes.fetch_sub(static_cast<int64_t>(malloc_usable_size(memory)), std::memory_order_relaxed);
  std::free(memory);
}
}  // namespace

void* operator new(size_t size, const std::nothrow_t&) noexcept {
  allocated_bytes.fetch_add(static_cast<int64_t>(size), std::memory_order_relaxed);
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) return nullptr;
  live_bytes.fetch_add(static_cast<int64_t>(malloc_usable_size(memory)), std::memory_order_relaxed);
  return memory;
}
void* operator new(size_t size) {
  void* memory = operator new(size, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new[](size_t size) { return operator new(size); }
void* operator new[](size_t size, const std::nothrow_t& nothrow) noexcept {
  return operator new(size, nothrow);
}
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete[](void* memory) noexcept { Free(memory); }
void operator delete(void* memory, size_t) noexcept { Free(memory); }
void operator delete[](void* memory, size_t) noexcept { Free(memory); }

namespace tandem::test {

int64_t LiveBytes() { return live_bytes.load(std::memory_order_relaxed); }
int64_t AllocatedBytes() { return allocated_bytes.load(std::memory_order_relaxed); }

}  // namespace tandem::test
