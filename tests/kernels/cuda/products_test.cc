// Products on the GPU: how exact the chain is, and that nothing but a row and the weights decides
// its bits.
#include "kernels/cuda/products.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/chain.h"
#include "kernels/cuda/launch.h"
#include "kernels/reference/dequantize.h"
#include "tests/kernels/cuda/cuda_arrays.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int32_t kMaxRows = 300;
constexpr int32_t kRowCounts[] = {1, 2, 7, 8, 9, 16, 17, 64, 65, 300};
constexpr int32_t kWidths[] = {1, 37, 131, 5000};  // the last fills every multiprocessor
constexpr int32_t kDepths[] = {16, 64, 144, 576, 1536};
constexpr ProductOutput kOutputs[] = {ProductOutput::kBf16, ProductOutput::kF32,
                                      ProductOutput::kAdd};

// Normal values, one in 64 of them 32 times as large, as bf16.
std::vector<uint16_t> RandomBf16(size_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<uint16_t> values(count);
  for (uint16_t& value : values) {
    value = FloatToBFloat16(normal(random) * (random() % 64 == 0 ? 32.0f : 1.0f));
  }
  return values;
}

std::vector<float> RandomFloats(size_t count, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, 8.0f);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// Inputs of a product, on both sides. [m, k], [n, k], [n], [m, n].
struct Case {
  Case(int32_t m, int32_t n, int32_t k)
      : m(m),
        n(n),
        k(k),
        random(m * 31 + n * 7 + k),
        host_x(RandomBf16(size_t(m) * k, random)),
        host_w(RandomBf16(size_t(n) * k, random)),
        host_bias(RandomFloats(n, random)),
        host_y(RandomFloats(size_t(m) * n, random)),
        x(ToDevice(host_x)),
        w(ToDevice(host_w)),
        bias(ToDevice(host_bias)),
        y(ToDevice(host_y)) {}

  const __nv_bfloat16* X(int32_t row = 0) const {
    return reinterpret_cast<const __nv_bfloat16*>(x.get()) + int64_t{row} * k;
  }
  const __nv_bfloat16* W() const { return reinterpret_cast<const __nv_bfloat16*>(w.get()); }

  // y of `rows` rows from `first` on, as raw bits, by Run or RunChain. Before the product, y has
  // the lines of host_y.
  std::vector<uint32_t> Bits(Products& products, bool chain, int32_t first, int32_t rows,
                             bool with_bias, ProductOutput output) {
    const size_t count = size_t(rows) * n;
    EXPECT_EQ(cudaMemcpy(y.get(), host_y.data() + size_t(first) * n, count * sizeof(float),
                         cudaMemcpyHostToDevice),
              cudaSuccess);
    const float* b = with_bias ? bias.get() : nullptr;
    if (chain) {
      products.RunChain(X(first), rows, W(), n, k, b, output, y.get(), nullptr);
    } else {
      products.Run(X(first), rows, W(), n, k, b, output, y.get(), nullptr);
    }
    if (output == ProductOutput::kBf16) {
      const auto halves = ToHost(reinterpret_cast<const uint16_t*>(y.get()), count);
      return {halves.begin(), halves.end()};
    }
    return ToHost(reinterpret_cast<const uint32_t*>(y.get()), count);
  }

  int32_t m, n, k;
  std::mt19937 random;
  std::vector<uint16_t> host_x, host_w;
  std::vector<float> host_bias, host_y;
  DeviceArray<uint16_t> x, w;
  DeviceArray<float> bias, y;
};

std::string Name(int32_t m, int32_t n, int32_t k, ProductOutput output, bool with_bias) {
  return absl::StrCat("m ", m, ", n ", n, ", k ", k, ", output ", static_cast<int>(output),
                      with_bias ? ", bias" : "");
}

float AsFloat(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

class ProductsTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    auto made = Products::Make(kMaxRows);
    ASSERT_TRUE(made.ok()) << made.status();
    products_ = *std::move(made);
  }
  void Prepare(int32_t n, int32_t k) {
    const absl::Status status = products_->Prepare(n, k);
    ASSERT_TRUE(status.ok()) << status;
  }

  std::unique_ptr<Products> products_;
};

TEST_F(ProductsTest, TheChainIsTheSumInDoubleUpToRoundings) {
  for (const int32_t n : {1, 37, 131}) {
    for (const int32_t k : kDepths) {
      Case data(kMaxRows, n, k);
      for (const int32_t m : kRowCounts) {
        const auto bits = data.Bits(*products_, true, 0, m, true, ProductOutput::kF32);
        double worst = 0.0;  // error over its bound
        for (int32_t i = 0; i < m; ++i) {
          for (int32_t j = 0; j < n; ++j) {
            double sum = data.host_bias[j];
            double magnitude = std::fabs(sum);
            for (int32_t l = 0; l < k; ++l) {
              const double product = double{BFloat16ToFloat(data.host_x[size_t(i) * k + l])} *
                                     BFloat16ToFloat(data.host_w[size_t(j) * k + l]);
              sum += product;
              magnitude += std::fabs(product);
            }
            // A step of 16 loses less than 2^-21 of what it adds up.
            const double bound = (k / 16 + 1) * std::ldexp(magnitude, -21);
            const double error = std::fabs(AsFloat(bits[size_t(i) * n + j]) - sum);
            worst = std::isnan(error) ? INFINITY : std::max(worst, error / bound);
          }
        }
        EXPECT_LT(worst, 1.0) << Name(m, n, k, ProductOutput::kF32, true);
      }
    }
  }
}

// From the fp32 sums, on the host: one add of the bias, one add to y, one rounding to bf16.
TEST_F(ProductsTest, TheChainsOutputsAreItsSumsWithTheRoundingsOfTheContract) {
  const int32_t m = 17, n = 131, k = 144;
  Case data(m, n, k);
  const auto sums = data.Bits(*products_, true, 0, m, false, ProductOutput::kF32);
  for (const bool with_bias : {false, true}) {
    const auto bf16 = data.Bits(*products_, true, 0, m, with_bias, ProductOutput::kBf16);
    const auto f32 = data.Bits(*products_, true, 0, m, with_bias, ProductOutput::kF32);
    const auto add = data.Bits(*products_, true, 0, m, with_bias, ProductOutput::kAdd);
    for (size_t i = 0; i < sums.size(); ++i) {
      const float sum = with_bias ? AsFloat(sums[i]) + data.host_bias[i % n] : AsFloat(sums[i]);
      ASSERT_EQ(AsFloat(f32[i]), sum) << "output " << i;
      ASSERT_EQ(bf16[i], FloatToBFloat16(sum)) << "output " << i;
      ASSERT_EQ(AsFloat(add[i]), data.host_y[i] + sum) << "output " << i;
    }
  }
}

TEST_F(ProductsTest, RunHasTheBitsOfTheChain) {
  for (const int32_t n : kWidths) {
    for (const int32_t k : kDepths) {
      Prepare(n, k);
      Case data(kMaxRows, n, k);
      for (const int32_t m : kRowCounts) {
        for (const ProductOutput output : kOutputs) {
          for (const bool with_bias : {false, true}) {
            EXPECT_TRUE(data.Bits(*products_, false, 0, m, with_bias, output) ==
                        data.Bits(*products_, true, 0, m, with_bias, output))
                << Name(m, n, k, output, with_bias);
          }
        }
      }
    }
  }
}

TEST_F(ProductsTest, ARowAloneHasTheBitsThatItHasAmong300) {
  for (const int32_t n : {131, 5000}) {
    const int32_t k = 576;
    Prepare(n, k);
    Case data(kMaxRows, n, k);
    for (const ProductOutput output : kOutputs) {
      for (const bool with_bias : {false, true}) {
        const auto all = data.Bits(*products_, false, 0, kMaxRows, with_bias, output);
        for (const int32_t row : {0, 1, 7, 8, 63, 64, 130, 299}) {
          const auto alone = data.Bits(*products_, false, row, 1, with_bias, output);
          EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + size_t(row) * n))
              << Name(row, n, k, output, with_bias);
        }
      }
    }
  }
}

// Fused and separate. Few multiprocessors make the blocks wide.
TEST_F(ProductsTest, AGateInTheChainHasTheBitsOfTheProductThenTheGate) {
  const int32_t k = 144;
  for (const int32_t n : {2, 36, 262, 3072}) {
    Case data(kMaxRows, n, k);
    for (const int32_t m : kRowCounts) {
      for (const GateKind kind : {GateKind::kSilu, GateKind::kGeluTanh, GateKind::kGeluErf}) {
        for (const int32_t multiprocessors : {1, 1000}) {
          const bool with_bias = (m + multiprocessors) % 2 == 0;
          const size_t count = size_t(m) * (n / 2);
          data.Bits(*products_, true, 0, m, with_bias, ProductOutput::kBf16);
          auto* y = reinterpret_cast<__nv_bfloat16*>(data.y.get());
          auto separate = AllocateDevice<uint16_t>(count), fused = AllocateDevice<uint16_t>(count);
          ASSERT_TRUE(separate.ok() && fused.ok());
          LaunchGate(y, m, n / 2, kind, reinterpret_cast<__nv_bfloat16*>(separate->get()), nullptr);
          LaunchGatedChain(data.X(), m, data.W(), n, k, with_bias ? data.bias.get() : nullptr, kind,
                           reinterpret_cast<__nv_bfloat16*>(fused->get()), multiprocessors,
                           nullptr);
          EXPECT_TRUE(ToHost(fused->get(), count) == ToHost(separate->get(), count))
              << Name(m, n, k, ProductOutput::kBf16, with_bias);
        }
      }
    }
  }
}

TEST_F(ProductsTest, PreparingAShapeAgainChangesNothing) {
  Prepare(131, 576);
  Prepare(131, 576);
  Case data(9, 131, 576);
  EXPECT_TRUE(data.Bits(*products_, false, 0, 9, false, ProductOutput::kF32) ==
              data.Bits(*products_, true, 0, 9, false, ProductOutput::kF32));
}

}  // namespace
}  // namespace tandem::kernels::cuda
