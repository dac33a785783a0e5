#include "kernels/cpu/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

namespace tandem::kernels::cpu {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

TEST(CpuMemory, IsZeroAndAlignedAtEverySize) {
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{4097}, kHugePage - 1, kHugePage,
                              kHugePage + 1, 5 * kHugePage}) {
    absl::StatusOr<Buffer> buffer = AllocateZeroed(bytes, "test");
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(buffer->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 256, 0u);
    const uint8_t* data = buffer->as<uint8_t>();
    EXPECT_TRUE(std::all_of(data, data + bytes, [](uint8_t byte) { return byte == 0; }));
  }
}

TEST(CpuMemory, LargeBuffersStartAtAHugePage) {
  absl::StatusOr<Buffer> buffer = AllocateZeroed(3 * kHugePage + 5, "test");
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % kHugePage, 0u);
  buffer->as<uint8_t>()[3 * kHugePage + 4] = 1;  // the last byte is there
}

TEST(CpuMemory, MoreThanTheMachineHasIsRefusedByName) {
  const absl::StatusOr<Buffer> buffer = AllocateZeroed(int64_t{1} << 60, "the cache of the moon");
  EXPECT_EQ(buffer.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(buffer.status().message().find("the cache of the moon"), absl::string_view::npos);
  EXPECT_NE(buffer.status().message().find("1152921504606846976"), absl::string_view::npos);
}

}  // namespace
}  // namespace tandem::kernels::cpu
