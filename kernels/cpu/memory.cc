#include "kernels/cpu/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/check.h"

namespace tandem::kernels::cpu {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr std::align_val_t kAlignment{256};

int64_t PhysicalMemory() {
  return int64_t{sysconf(_SC_PHYS_PAGES)} * int64_t{sysconf(_SC_PAGESIZE)};
}

absl::Status Exhausted(int64_t bytes, std::string_view what) {
  return absl::ResourceExhaustedError(absl::StrCat(std::string(what), ": ", bytes,
                                                   " bytes of memory asked for; the machine has ",
                                                   PhysicalMemory()));
}

absl::StatusOr<Buffer> Map(int64_t bytes, std::string_view what) {
  // One huge page more than needed, so that an aligned part can be kept and the ends given back.
  const int64_t size = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  const int64_t mapped = size + kHugePage;
  void* start = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return Exhausted(bytes, what);
  const uintptr_t address = reinterpret_cast<uintptr_t>(start);
  const uintptr_t aligned = (address + kHugePage - 1) / kHugePage * kHugePage;
  const int64_t before = static_cast<int64_t>(aligned - address);
  if (before > 0) munmap(start, before);
  void* data = reinterpret_cast<void*>(aligned);
  if (before < kHugePage) munmap(reinterpret_cast<void*>(aligned + size), kHugePage - before);
#if defined(MADV_HUGEPAGE)
  madvise(data, size, MADV_HUGEPAGE);  // a wish: where it is refused, small pages serve
#endif
  return Buffer(data, bytes, [size](void* p) { munmap(p, size); });
}

}  // namespace

absl::StatusOr<Buffer> AllocateZeroed(int64_t bytes, std::string_view what) {
  KERNELS_REQUIRE(bytes >= 0, "bytes %lld", static_cast<long long>(bytes));
  if (bytes > PhysicalMemory()) return Exhausted(bytes, what);
  if (bytes >= kHugePage) return Map(bytes, what);
  void* data = ::operator new(bytes > 0 ? bytes : 1, kAlignment, std::nothrow);
  if (data == nullptr) return Exhausted(bytes, what);
  std::memset(data, 0, bytes);
  return Buffer(data, bytes, [](void* p) { ::operator delete(p, kAlignment); });
}

float* Scratch::Floats(int64_t count) {
  const int64_t bytes = count * static_cast<int64_t>(sizeof(float));
  if (buffer_.bytes() < bytes) {
    buffer_ = Buffer();
    absl::StatusOr<Buffer> larger = AllocateZeroed(bytes + bytes / 2, "scratch of an operation");
    KERNELS_REQUIRE(larger.ok(), "%s", larger.status().ToString().c_str());
    buffer_ = *std::move(larger);
  }
  return buffer_.as<float>();
}

}  // namespace tandem::kernels::cpu
