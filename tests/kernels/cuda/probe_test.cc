// That the probes see what they are for.
#include "kernels/cuda/probe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "kernels/cuda/products.h"
#include "tests/kernels/cuda/cuda_arrays.h"

namespace tandem::kernels::cuda {
namespace {

constexpr uint32_t kSeed = 5;

class ProbeTest : public CudaTest {
 protected:
  // How many of y's outputs are not what the sums give.
  template <typename T>
  unsigned long long Differences(const std::vector<float>& sums, const std::vector<T>& y,
                                 ProductOutput output) {
    const auto device_sums = ToDevice(sums);
    const auto device_y = ToDevice(y);
    const auto count = ToDevice(std::vector<unsigned long long>{0});
    LaunchCountDifferences(device_sums.get(), device_y.get(), sums.size(), output, kSeed,
                           count.get(), nullptr);
    return ToHost(static_cast<const unsigned long long*>(count.get()), 1)[0];
  }
};

TEST_F(ProbeTest, OneBitOfOneOutputIsADifference) {
  std::vector<float> sums(10000);
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = 1.0f + static_cast<float>(i) / 256.0f;
  std::vector<float> y = sums;
  EXPECT_EQ(Differences(sums, y, ProductOutput::kF32), 0u);
  y[9876] = std::nextafter(y[9876], 0.0f);
  EXPECT_EQ(Differences(sums, y, ProductOutput::kF32), 1u);
}

TEST_F(ProbeTest, Bf16OutputsAreComparedWithTheRoundedSum) {
  const std::vector<float> sums = {1.0f, 1.0f + 1.0f / 256, 1.0f + 3.0f / 256, -2.0f};
  // Ties go to the even neighbour: 1 and 1 + 4 / 256.
  std::vector<uint16_t> y = {0x3F80, 0x3F80, 0x3F82, 0xC000};
  EXPECT_EQ(Differences(sums, y, ProductOutput::kBf16), 0u);
  y[1] = 0x3F81;
  EXPECT_EQ(Differences(sums, y, ProductOutput::kBf16), 1u);
}

TEST_F(ProbeTest, AddedOutputsAreComparedWithTheSumOnTopOfTheFill) {
  const auto fill = ToDevice(std::vector<float>(5000));
  LaunchFillRandom(fill.get(), 5000, kSeed, nullptr);
  const std::vector<float> before = ToHost(static_cast<const float*>(fill.get()), 5000);
  const std::vector<float> sums(5000, 0.3f);
  std::vector<float> y = before;
  for (float& value : y) value += 0.3f;
  EXPECT_EQ(Differences(sums, y, ProductOutput::kAdd), 0u);
  EXPECT_GT(Differences(sums, before, ProductOutput::kAdd), 4900u);
}

// A planted split of k in two: the sum of two chains. The fill must be such that it shows.
TEST_F(ProbeTest, ASplitOfKShowsInMostOutputs) {
  const int32_t m = 16, n = 256, k = 1024;
  auto products = Products::Make(m);
  ASSERT_TRUE(products.ok()) << products.status();
  // [rows, k] as two matrices [rows, k / 2] behind each other.
  const auto halves = [](const std::vector<uint16_t>& whole) {
    std::vector<uint16_t> out;
    for (int32_t half = 0; half < 2; ++half) {
      for (size_t row = 0; row < whole.size() / k; ++row) {
        const auto begin = whole.begin() + row * k + half * k / 2;
        out.insert(out.end(), begin, begin + k / 2);
      }
    }
    return out;
  };
  const auto fill = [](int32_t rows, uint32_t seed) {
    const auto device = ToDevice(std::vector<uint16_t>(size_t(rows) * k));
    LaunchFillRandom(reinterpret_cast<__nv_bfloat16*>(device.get()), int64_t{rows} * k, seed,
                     nullptr);
    return ToHost(static_cast<const uint16_t*>(device.get()), size_t(rows) * k);
  };
  const auto multiply = [&](const uint16_t* x, const uint16_t* w, int32_t depth,
                            ProductOutput output, float* y) {
    (*products)->RunChain(reinterpret_cast<const __nv_bfloat16*>(x), m,
                          reinterpret_cast<const __nv_bfloat16*>(w), n, depth, nullptr, output, y,
                          nullptr);
  };
  const std::vector<uint16_t> host_x = fill(m, 1), host_w = fill(n, 2);
  const auto x = ToDevice(host_x), w = ToDevice(host_w);
  const auto split_x = ToDevice(halves(host_x)), split_w = ToDevice(halves(host_w));
  const auto whole = ToDevice(std::vector<float>(m * n));
  const auto split = ToDevice(std::vector<float>(m * n));
  multiply(x.get(), w.get(), k, ProductOutput::kF32, whole.get());
  multiply(split_x.get(), split_w.get(), k / 2, ProductOutput::kF32, split.get());
  multiply(split_x.get() + m * k / 2, split_w.get() + n * k / 2, k / 2, ProductOutput::kAdd,
           split.get());
  EXPECT_GT(Differences(ToHost(static_cast<const float*>(whole.get()), m * n),
                        ToHost(static_cast<const float*>(split.get()), m * n), ProductOutput::kF32),
            static_cast<unsigned long long>(m * n / 2));
}

}  // namespace
}  // namespace tandem::kernels::cuda
