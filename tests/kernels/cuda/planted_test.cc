// The planted kernels are what they say: the chain with one accumulator, another sum with two.
#include "tests/kernels/cuda/planted.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/cuda/chain.h"
#include "kernels/reference/dequantize.h"
#include "tests/kernels/cuda/cuda_arrays.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int32_t kM = 11, kN = 576, kK = 1536;

class PlantedProducts : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_EQ(PrepareChain(), cudaSuccess);
    x_ = ToDevice(Random(kM * kK, 1));
    w_ = ToDevice(Random(kN * kK, 2));
    y_ = ToDevice(std::vector<float>(kM * kN));
    LaunchChain(X(), kM, W(), kN, kK, nullptr, ProductOutput::kF32, y_.get(), 1, nullptr);
    chain_ = ToHost(y_.get(), kM * kN);
  }
  static std::vector<uint16_t> Random(int32_t count, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<uint16_t> values(static_cast<size_t>(count));
    for (uint16_t& value : values) value = FloatToBFloat16(normal(random));
    return values;
  }
  const __nv_bfloat16* X() const { return reinterpret_cast<const __nv_bfloat16*>(x_.get()); }
  const __nv_bfloat16* W() const { return reinterpret_cast<const __nv_bfloat16*>(w_.get()); }
  int NumDiffering() {
    const std::vector<float> got = ToHost(y_.get(), kM * kN);
    int count = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i], chain_[i], 1e-2f);
      count += std::memcmp(&got[i], &chain_[i], sizeof(float)) != 0;
    }
    return count;
  }

  DeviceArray<uint16_t> x_, w_;
  DeviceArray<float> y_;
  std::vector<float> chain_;
};

TEST_F(PlantedProducts, WithOneAccumulatorHaveTheBitsOfTheChain) {
  LaunchPlantedProduct(X(), kM, W(), kN, kK, 1, y_.get(), nullptr);
  EXPECT_EQ(NumDiffering(), 0);
}

TEST_F(PlantedProducts, WithTwoAccumulatorsHaveOtherBits) {
  LaunchPlantedProduct(X(), kM, W(), kN, kK, 2, y_.get(), nullptr);
  EXPECT_GT(NumDiffering(), kM * kN / 4);
}

TEST_F(PlantedProducts, BySplitKHaveOtherBits) {
  auto split_k = HeuristicProducts::Make(HeuristicProducts::Wanted::kSplitK);
  ASSERT_TRUE(split_k.ok()) << split_k.status();
  ASSERT_TRUE((*split_k)->Multiply(X(), kM, W(), kN, kK, y_.get(), nullptr))
      << "cuBLASLt offers no algorithm that splits k here: the planted violation is none";
  EXPECT_GT(NumDiffering(), kM * kN / 4);
}

}  // namespace
}  // namespace tandem::kernels::cuda
