// Memory, rows and pages: what the operations promise beside arithmetic.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/kernels/backends.h"
#include "tests/kernels/device_data.h"

namespace tandem::kernels {
namespace {

class OpsMemoryTest : public testing::TestWithParam<Backend> {
 protected:
  const std::unique_ptr<Ops> ops_ = GetParam().make();
  DeviceData data_{*ops_};
  RandomData random_{9};
};

TEST_P(OpsMemoryTest, AllocationsAreZeroedAndAligned) {
  for (const int64_t bytes : {1, 4, 255, 256, 257, 100000, 5000000}) {
    absl::StatusOr<Buffer> buffer = ops_->Allocate(bytes, "a test");
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 256, 0u) << bytes;
    EXPECT_EQ(data_.Get(buffer->as<uint8_t>(), bytes), std::vector<uint8_t>(bytes)) << bytes;
  }
}

TEST_P(OpsMemoryTest, AllocationsBeyondTheMachineNameTheirPurpose) {
  const absl::StatusOr<Buffer> buffer = ops_->Allocate(int64_t{1} << 60, "the moon");
  EXPECT_EQ(buffer.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(buffer.status().ToString().find("the moon"), std::string::npos);
}

TEST_P(OpsMemoryTest, WeightsOfANonFloatTypeAreRefusedByName) {
  const std::vector<int32_t> values(32);
  const HostMatrix matrix{values.data(), DType::kI32, 1, 32};
  const absl::StatusOr<Weight> weight = ops_->PrepareWeight({&matrix, 1}, "blk.0.weird");
  EXPECT_EQ(weight.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(weight.status().ToString().find("blk.0.weird"), std::string::npos);
  EXPECT_NE(weight.status().ToString().find("I32"), std::string::npos);
}

TEST_P(OpsMemoryTest, TwoMarksMayBeOpen) {
  const int64_t first = ops_->Mark();
  const int64_t second = ops_->Mark();
  EXPECT_TRUE(ops_->Finish(first).ok());
  EXPECT_TRUE(ops_->Finish(second).ok());
}

TEST_P(OpsMemoryTest, RowsTakeTheirTokensFromTheSlots) {
  SlotState slots;
  slots.num_slots = 3;
  slots.context_length = 4;
  slots.vocab_size = 100;
  slots.tokens = data_.Put(std::vector<int32_t>{10, 11, 12, 13, 20, 21, kIdleToken, 0, 0, 0, 0, 0});
  slots.num_tokens = data_.Put(std::vector<int32_t>{4, 3, 0});
  const std::vector<int32_t> slot = {0, 0, 0, 1, 1, 2, -1, -1};
  const std::vector<int32_t> position = {0, 2, -1, 1, -1, -1, -1, 3};
  const StepRows rows{8, data_.Put(slot), data_.Put(position),
                      data_.Put(std::vector<int32_t>(8, 77)),
                      data_.Put(std::vector<int32_t>(8, 77))};
  ops_->PrepareRows(rows, slots);
  EXPECT_EQ(data_.Get(rows.token, 8),
            (std::vector<int32_t>{10, 12, 13, 21, kIdleToken, kIdleToken, kIdleToken, kIdleToken}));
  const std::vector<int32_t> positions = data_.Get(rows.row_position, 8);
  EXPECT_EQ(std::vector<int32_t>(positions.begin(), positions.begin() + 4),
            (std::vector<int32_t>{0, 2, 3, 1}));
  EXPECT_EQ(positions[6], -1);
  EXPECT_EQ(positions[7], -1);
}

TEST_P(OpsMemoryTest, CopyPageTakesTheFirstTokensOfEveryLayerSideAndHead) {
  for (const KvFormat format :
       {KvFormat::kF32, KvFormat::kBF16, KvFormat::kFp8E4M3, KvFormat::kInt8}) {
    if (!ops_->SupportsAttention({2, 2, 64}, format, 0.0f, 0).ok()) continue;
    for (const int32_t num_tokens : {1, 17, 64}) {
      KvPool kv;
      kv.format = format;
      kv.num_layers = 2;
      kv.num_pages = 4;
      kv.num_kv_heads = 2;
      kv.head_dim = 64;
      std::vector<uint8_t> bytes(kv.DataBytes());
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random_.Below(256));
      std::vector<float> scales = random_.Normals(kv.ScaleBytes() / sizeof(float), 1.0f);
      kv.data = data_.Put(bytes);
      kv.scales = HasScales(format) ? data_.Put(scales) : nullptr;
      ops_->CopyPage(kv, 1, 3, num_tokens);
      for (int32_t layer = 0; layer < 2; ++layer) {
        for (int32_t side = 0; side < 2; ++side) {
          for (int32_t head = 0; head < 2; ++head) {
            for (int32_t token = 0; token < num_tokens; ++token) {
              const int64_t from = kv.ElementOffset(layer, 1, side, head, token);
              const int64_t to = kv.ElementOffset(layer, 3, side, head, token);
              const int64_t element = ElementBytes(format);
              std::copy_n(bytes.begin() + from * element, 64 * element,
                          bytes.begin() + to * element);
              if (HasScales(format)) scales[to / 64] = scales[from / 64];
            }
          }
        }
      }
      EXPECT_EQ(data_.Get(static_cast<uint8_t*>(kv.data), bytes.size()), bytes)
          << Name(format) << " " << num_tokens;
      if (HasScales(format)) {
        EXPECT_EQ(data_.Get(kv.scales, scales.size()), scales) << Name(format);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, OpsMemoryTest, testing::ValuesIn(BackendsAndReference()),
                         BackendName);

}  // namespace
}  // namespace tandem::kernels
