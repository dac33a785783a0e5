// The parts of the draw against vectors that a second implementation computed
// (tests/golden/sampling/README.md). Whole rows: tests/engine/sampling/vectors_test.cc.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "kernels/draw/math.h"
#include "kernels/draw/noise.h"
#include "kernels/draw/philox.h"
#include "kernels/draw/weight.h"

namespace tandem::kernels {
namespace {

using Json = nlohmann::json;

Json Section(const char* name) {
  std::ifstream file("tests/golden/sampling/vectors.json");
  Json section = Json::parse(file).at(name);
  EXPECT_GT(section.size(), 10u);
  return section;
}

float Float(const Json& bits) { return BitsFloat(bits.get<uint32_t>()); }

TEST(DrawVectors, PhiloxBlocks) {
  for (const Json& it : Section("philox")) {
    const Json &c = it["counter"], &k = it["key"];
    const PhiloxBlock block = Philox4x32(c[0], c[1], c[2], c[3], k[0], k[1]);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(block.word[i], it["block"][i].get<uint32_t>()) << it;
  }
}

TEST(DrawVectors, Logarithms) {
  for (const Json& it : Section("log")) {
    EXPECT_EQ(FloatBits(Log(Float(it[0]))), it[1].get<uint32_t>()) << it;
  }
  for (const Json& it : Section("log1p")) {
    EXPECT_EQ(FloatBits(Log1p(Float(it[0]))), it[1].get<uint32_t>()) << it;
  }
}

TEST(DrawVectors, ExponentialsAndWeights) {
  for (const Json& it : Section("exp_and_weight")) {
    EXPECT_EQ(FloatBits(Exp(Float(it[0]))), it[1].get<uint32_t>()) << it;
    EXPECT_EQ(DrawWeight(Float(it[0])), it[2].get<uint64_t>()) << it;
  }
}

TEST(DrawVectors, NoiseOfWords) {
  for (const Json& it : Section("noise_of_words")) {
    const uint32_t word = it[0];
    EXPECT_EQ(FloatBits(Uniform(word)), it[1].get<uint32_t>()) << word;
    EXPECT_EQ(FloatBits(GumbelOfWord(word)), it[2].get<uint32_t>()) << word;
  }
}

TEST(DrawVectors, NoiseOfIds) {
  for (const Json& it : Section("noise_of_ids")) {
    const uint64_t seed = std::stoull(it[0].get<std::string>());
    const float noise = Gumbel(seed, it[1].get<uint32_t>(), it[2], it[3]);
    EXPECT_EQ(FloatBits(noise), it[4].get<uint32_t>()) << it;
  }
}

}  // namespace
}  // namespace tandem::kernels
