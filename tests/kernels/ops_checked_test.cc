// CheckFinite: which value of a row is the first that is not finite.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/kernels/backends.h"
#include "tests/kernels/device_data.h"

namespace tandem::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int32_t kWidth = 300;  // more than a block of threads

class CheckFiniteTest : public testing::TestWithParam<Backend> {
 protected:
  // Rows at positions 5, 6, .. of slot 0, the last one idle.
  StepRows Rows(int32_t n) {
    std::vector<int32_t> slot(n, 0), token(n, 1), position(n);
    for (int32_t i = 0; i < n; ++i) position[i] = 5 + i;
    slot[n - 1] = -1;
    token[n - 1] = kIdleToken;
    position[n - 1] = -1;
    return {n, data_.Put(slot), data_.Put(position), data_.Put(token), data_.Put(position)};
  }
  CheckFiniteArgs Args(int32_t n) {
    CheckFiniteArgs args;
    args.rows = Rows(n);
    args.output = CheckedOutput::kGate;
    args.layer = 7;
    args.width = kWidth;
    args.num_lines = n;
    args.first = true;
    args.found = data_.Put(std::vector<NonFinite>(n, {CheckedOutput::kLogits, 1, 2, 3}));
    return args;
  }
  static void ExpectFound(const NonFinite& found, CheckedOutput output, int32_t layer,
                          int32_t position, int32_t index) {
    EXPECT_TRUE(found.output == output && found.layer == layer && found.position == position &&
                found.index == index)
        << std::string(Name(found.output)) << " layer " << found.layer << " position "
        << found.position << " index " << found.index;
  }
  static void ExpectNothing(const NonFinite& found) {
    ExpectFound(found, CheckedOutput::kNone, 0, 0, 0);
  }

  const std::unique_ptr<Ops> ops_ = GetParam().make();
  DeviceData data_{*ops_};
};

TEST_P(CheckFiniteTest, TheFirstIndexOfEachRowIsFoundAndIdleRowsAreNot) {
  constexpr int32_t n = 5;
  std::vector<float> values(n * kWidth, 1.0f);
  values[1 * kWidth + 299] = kNan;
  values[2 * kWidth + 20] = -kInf;
  values[2 * kWidth + 276] = kNan;
  values[3 * kWidth + 0] = std::numeric_limits<float>::max();
  values[4 * kWidth + 1] = kNan;  // idle
  CheckFiniteArgs args = Args(n);
  args.values = data_.Put(values);
  ops_->CheckFinite(args);
  const std::vector<NonFinite> found = data_.Get(args.found, n);
  ExpectNothing(found[0]);
  ExpectFound(found[1], CheckedOutput::kGate, 7, 6, 299);
  ExpectFound(found[2], CheckedOutput::kGate, 7, 7, 20);
  ExpectNothing(found[3]);
  ExpectNothing(found[4]);
}

TEST_P(CheckFiniteTest, ActivationsAreReadInTheirOwnType) {
  std::vector<float> values(3 * kWidth, 1.0f);
  values[kWidth + 133] = kInf;
  CheckFiniteArgs args = Args(3);
  void* const device = data_.Activations(values.size());
  data_.SetActivations(device, values);
  args.values = device;
  args.is_act = true;
  ops_->CheckFinite(args);
  const std::vector<NonFinite> found = data_.Get(args.found, 3);
  ExpectNothing(found[0]);
  ExpectFound(found[1], CheckedOutput::kGate, 7, 6, 133);
}

TEST_P(CheckFiniteTest, WhatWasFoundFirstStays) {
  std::vector<float> values(2 * kWidth, kNan);
  CheckFiniteArgs args = Args(2);
  args.values = data_.Put(values);
  ops_->CheckFinite(args);
  args.first = false;
  args.output = CheckedOutput::kDownProjection;
  ops_->CheckFinite(args);
  ExpectFound(data_.Get(args.found, 2)[0], CheckedOutput::kGate, 7, 5, 0);
}

TEST_P(CheckFiniteTest, LinesBelongToTheRowsThatTheyName) {
  std::vector<float> values(kWidth, 1.0f);
  values[4] = kNan;
  CheckFiniteArgs args = Args(4);
  args.values = data_.Put(values);
  args.num_lines = 1;
  args.line_rows = data_.Put(std::vector<int32_t>{2});
  ops_->CheckFinite(args);
  const std::vector<NonFinite> found = data_.Get(args.found, 4);
  ExpectNothing(found[0]);
  ExpectFound(found[2], CheckedOutput::kGate, 7, 7, 4);
}

TEST_P(CheckFiniteTest, KeysAndValuesAreReadFromTheCacheInEveryFormat) {
  for (const KvFormat format : {KvFormat::kF32, KvFormat::kBF16, KvFormat::kFp8E4M3}) {
    if (!ops_->SupportsAttention({2, 2, 64}, format, 0.0f, 0).ok()) continue;
    SCOPED_TRACE(std::string(Name(format)));
    KvPool kv;
    kv.format = format;
    kv.num_layers = 2;
    kv.num_pages = 3;
    kv.num_kv_heads = 2;
    kv.head_dim = 64;
    kv.max_pages_per_slot = 1;
    kv.page_table = data_.Put(std::vector<int32_t>{2});
    std::vector<uint8_t> bytes(kv.DataBytes());
    // Value 3 of kv head 1 of position 6, layer 1; elsewhere a NaN that no row of the step wrote.
    for (const int64_t element :
         {kv.ElementOffset(1, 2, 1, 1, 6) + 3, kv.ElementOffset(1, 2, 0, 0, 60),
          kv.ElementOffset(0, 2, 0, 0, 6)}) {
      const int64_t size = ElementBytes(format);
      for (int64_t i = 0; i < size; ++i) bytes[element * size + i] = 0xFF;
    }
    kv.data = data_.Put(bytes);
    kv.scales =
        HasScales(format) ? data_.Put(std::vector<float>(kv.ScaleBytes() / 4, 1.0f)) : nullptr;
    CheckFiniteArgs args = Args(3);
    args.output = CheckedOutput::kCache;
    args.kv = &kv;
    args.kv_layer = 1;
    args.width = 2 * 2 * 64;
    ops_->CheckFinite(args);
    const std::vector<NonFinite> found = data_.Get(args.found, 3);
    ExpectNothing(found[0]);
    ExpectFound(found[1], CheckedOutput::kCache, 7, 6, 2 * 64 + 64 + 3);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, CheckFiniteTest, testing::ValuesIn(BackendsAndReference()),
                         BackendName);

}  // namespace
}  // namespace tandem::kernels
