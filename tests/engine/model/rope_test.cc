#include "engine/model/rope.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/support/golden.h"

namespace tandem {
namespace {

ModelConfig Config(int32_t rotary_dim, double base) {
  ModelConfig config;
  config.rotary_dim = rotary_dim;
  config.rope_base = base;
  return config;
}

ModelConfig ConfigOf(const nlohmann::json& golden) {
  const nlohmann::json& parameters = golden["parameters"];
  ModelConfig config = Config(golden["rotary_dim"], parameters["rope_theta"]);
  RopeScaling& scaling = config.rope_scaling;
  const std::string type = parameters["rope_type"];
  scaling.kind = type == "linear"   ? RopeScaling::Kind::kLinear
                 : type == "llama3" ? RopeScaling::Kind::kLlama3
                 : type == "yarn"   ? RopeScaling::Kind::kYarn
                                    : RopeScaling::Kind::kNone;
  scaling.factor = parameters.value("factor", scaling.factor);
  scaling.low_freq_factor = parameters.value("low_freq_factor", scaling.low_freq_factor);
  scaling.high_freq_factor = parameters.value("high_freq_factor", scaling.high_freq_factor);
  scaling.original_context = parameters.value("original_max_position_embeddings", 0);
  scaling.beta_fast = parameters.value("beta_fast", scaling.beta_fast);
  scaling.beta_slow = parameters.value("beta_slow", scaling.beta_slow);
  return config;
}

TEST(Rope, FrequenciesEqualTransformersForEveryScaling) {
  const nlohmann::json golden = test::ReadJson("tests/golden/model/rope.json");
  ASSERT_EQ(golden["cases"].size(), 6u);
  for (const nlohmann::json& entry : golden["cases"]) {
    SCOPED_TRACE(entry["parameters"].dump());
    const RopeFrequencies frequencies = ComputeRopeFrequencies(ConfigOf(entry));
    const std::vector<float> wanted = test::Floats(entry["inverse_frequencies"]);
    ASSERT_EQ(frequencies.inverse.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_NEAR(frequencies.inverse[i] / wanted[i], 1.0, 2e-6) << i;  // the oracle works in fp32
    }
    EXPECT_NEAR(frequencies.attention_factor, entry["attention_factor"].get<double>(), 1e-12);
  }
}

TEST(Rope, FrequencyFactorsDivide) {
  ModelConfig config = Config(4, 10000.0);
  config.rope_scaling.freq_factors = {1.0f, 8.0f};
  const RopeFrequencies frequencies = ComputeRopeFrequencies(config);
  EXPECT_EQ(frequencies.inverse[0], 1.0);
  EXPECT_DOUBLE_EQ(frequencies.inverse[1], 0.01 / 8.0);
}

TEST(Rope, TablesHaveCosineAndSineOfPositionTimesFrequency) {
  const RopeFrequencies frequencies = ComputeRopeFrequencies(Config(4, 100.0));  // 1 and 0.1
  std::vector<float> cos(6), sin(6);
  FillRopeTables(frequencies, 5, 3, cos.data(), sin.data());
  for (int row = 0; row < 3; ++row) {
    EXPECT_EQ(cos[2 * row], static_cast<float>(std::cos(5.0 + row)));
    EXPECT_EQ(sin[2 * row + 1], static_cast<float>(std::sin((5.0 + row) * 0.1)));
  }
}

TEST(Rope, ALineDoesNotDependOnWhereTheTableBegins) {
  const RopeFrequencies frequencies = ComputeRopeFrequencies(Config(64, 100000.0));
  std::vector<float> whole_cos(32 * 100), whole_sin(32 * 100), cos(32), sin(32);
  FillRopeTables(frequencies, 0, 100, whole_cos.data(), whole_sin.data());
  FillRopeTables(frequencies, 77, 1, cos.data(), sin.data());
  EXPECT_TRUE(std::equal(cos.begin(), cos.end(), whole_cos.begin() + 77 * 32));
  EXPECT_TRUE(std::equal(sin.begin(), sin.end(), whole_sin.begin() + 77 * 32));
}

// A dynamic scaling below its trained length once gave values of 1e38. Here nothing depends on the
// served length, and no value may pass the attention factor, which stands in the tables and nowhere
// else, whatever the scaling.
TEST(Rope, B095_B097_TablesAreFiniteAndBoundedByTheAttentionFactor) {
  const nlohmann::json golden = test::ReadJson("tests/golden/model/rope.json");
  for (const nlohmann::json& entry : golden["cases"]) {
    for (const double factor : {0.5, 1.0, 2.0, 64.0}) {
      for (const int32_t original_context : {16, 512, 2048, 1 << 20}) {
        ModelConfig config = ConfigOf(entry);
        config.rope_scaling.factor = factor;
        config.rope_scaling.original_context = original_context;
        const RopeFrequencies frequencies = ComputeRopeFrequencies(config);
        EXPECT_GE(frequencies.attention_factor, 1.0);
        std::vector<float> cos(64 * 8), sin(64 * 8);
        for (const int32_t position : {0, 511, 2048, 131072}) {
          FillRopeTables(frequencies, position, 8, cos.data(), sin.data());
          for (size_t i = 0; i < cos.size(); ++i) {
            const double length = std::hypot(cos[i], sin[i]);
            ASSERT_NEAR(length, frequencies.attention_factor, 1e-6 * frequencies.attention_factor)
                << entry["parameters"].dump() << " factor " << factor << " index " << i;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem
