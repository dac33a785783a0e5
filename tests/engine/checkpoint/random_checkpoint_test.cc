#include "engine/checkpoint/random_checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/random_weight.h"

namespace tandem {
namespace {

float Value(uint16_t bf16) {
  const uint32_t bits = uint32_t{bf16} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

TEST(RandomCheckpoint, EveryShapeIsAWholeModel) {
  for (const std::string& name : RandomShapes()) {
    SCOPED_TRACE(name);
    const auto checkpoint = OpenCheckpoint("random:" + name);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    const ModelConfig& config = (*checkpoint)->config();
    EXPECT_EQ(config.attention.num_heads % config.attention.num_kv_heads, 0);
    for (const TensorRole role : {TensorRole::kQ, TensorRole::kK, TensorRole::kV, TensorRole::kO,
                                  TensorRole::kGate, TensorRole::kUp, TensorRole::kDown}) {
      const auto matrix = (*checkpoint)->Matrix(role, config.num_layers - 1);
      ASSERT_TRUE(matrix.ok()) << matrix.status();
      EXPECT_EQ(matrix->cols % 16, 0);
      EXPECT_GT(matrix->deviation, 0.0f);
    }
    const auto tokenizer = (*checkpoint)->Tokenizer();
    ASSERT_TRUE(tokenizer.ok());
    EXPECT_EQ(static_cast<int32_t>(tokenizer->tokens.size()), config.vocab_size);
  }
}

TEST(RandomCheckpoint, AnUnknownNameIsRefusedWithThoseThereAre) {
  const auto checkpoint = OpenCheckpoint("random:gpt-5");
  EXPECT_EQ(checkpoint.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(checkpoint.status().message().find("llama3-8b"), std::string::npos);
}

// Other values would be another model under the same fingerprint.
TEST(RandomCheckpoint, TheValuesAreThoseOfTheDefinition) {
  EXPECT_EQ(kernels::RandomWeight(1, 0, 1.0f), 0xc025);
  EXPECT_EQ(kernels::RandomWeight(1, 1, 1.0f), 0xbdd6);
  EXPECT_EQ(kernels::RandomWeight(2, int64_t{1} << 33, 0.5f), 0xbe91);
}

TEST(RandomCheckpoint, ValuesHaveTheDeviationThatTheirMatrixSays) {
  const kernels::HostMatrix matrix{nullptr, kernels::DType::kBF16, 100, 1000, 77, 0.25f};
  double sum = 0.0, squares = 0.0;
  for (const uint16_t bits : kernels::DrawMatrix(matrix)) {
    sum += Value(bits);
    squares += double{Value(bits)} * Value(bits);
  }
  EXPECT_NEAR(sum / 100000, 0.0, 0.005);
  EXPECT_NEAR(std::sqrt(squares / 100000), 0.25, 0.005);
}

TEST(RandomCheckpoint, TwoMatricesOfAModelDiffer) {
  const auto checkpoint = OpenCheckpoint("random:tiny");
  ASSERT_TRUE(checkpoint.ok());
  const auto first = (*checkpoint)->Matrix(TensorRole::kQ, 0);
  const auto second = (*checkpoint)->Matrix(TensorRole::kQ, 1);
  EXPECT_NE(first->seed, second->seed);
}

}  // namespace
}  // namespace tandem
