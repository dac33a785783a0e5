// The draw against vectors that a second implementation computed
// (tests/golden/draw/make_vectors.py).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/draw/edit.h"
#include "kernels/draw/noise.h"
#include "kernels/draw/weight.h"
#include "kernels/reference/candidates.h"
#include "tests/kernels/draw/host_slot.h"

namespace tandem::kernels {
namespace {

using Json = nlohmann::json;

Json Vectors() {
  std::ifstream file("tests/golden/draw/vectors.json");
  return Json::parse(file);
}

float Float(const Json& bits) { return BitsFloat(bits.get<uint32_t>()); }

TEST(DrawVectors, NoiseOfWords) {
  const Json vectors = Vectors();
  ASSERT_FALSE(vectors["uniform_and_gumbel"].empty());
  for (const Json& line : vectors["uniform_and_gumbel"]) {
    const uint32_t word = line[0];
    EXPECT_EQ(FloatBits(Uniform(word)), line[1].get<uint32_t>()) << word;
    EXPECT_EQ(FloatBits(GumbelOfWord(word)), line[2].get<uint32_t>()) << word;
  }
}

TEST(DrawVectors, NoiseOfIds) {
  const Json vectors = Vectors();
  ASSERT_FALSE(vectors["gumbel"].empty());
  for (const Json& line : vectors["gumbel"]) {
    const uint64_t seed = std::stoull(line[0].get<std::string>());
    const float noise = Gumbel(seed, line[1].get<uint32_t>(), line[2], line[3]);
    EXPECT_EQ(FloatBits(noise), line[4].get<uint32_t>()) << line;
  }
}

TEST(DrawVectors, ExponentialsAndWeights) {
  const Json vectors = Vectors();
  ASSERT_FALSE(vectors["exp_and_weight"].empty());
  for (const Json& line : vectors["exp_and_weight"]) {
    EXPECT_EQ(FloatBits(Exp(Float(line[0]))), line[1].get<uint32_t>()) << line;
    EXPECT_EQ(DrawWeight(Float(line[0])), line[2].get<uint64_t>()) << line;
  }
}

class DecisionVectors : public testing::Test {
 protected:
  static std::vector<float> Logits(const Json& golden) {
    std::vector<float> logits;
    for (const Json& bits : golden["logits"]) logits.push_back(Float(bits));
    return logits;
  }

  static HostSlot Slot(const Json& golden, int32_t vocab_size) {
    HostSlot slot;
    DrawParams& params = slot.params;
    params.seed = std::stoull(golden["seed"].get<std::string>());
    params.choice = golden["choice"];
    params.greedy = golden["temperature"] == 0.0;
    params.inverse_temperature = Float(golden["inverse_temperature"]);
    params.top_k = golden["top_k"];
    params.top_p_fixed = golden["top_p_fixed"];
    params.min_p_weight = golden["min_p_weight"];
    params.repetition_penalty = Float(golden["repetition_penalty"]);
    params.presence_penalty = Float(golden["presence_penalty"]);
    params.frequency_penalty = Float(golden["frequency_penalty"]);
    params.repetition_window = golden["repetition_window"];
    params.presence_window = golden["presence_window"];
    params.frequency_window = golden["frequency_window"];
    params.prompt_length = golden["prompt_length"];
    params.min_tokens = golden["min_tokens"];
    params.num_top = vocab_size;
    slot.tokens = golden["tokens"].get<std::vector<int32_t>>();
    slot.end_ids = golden["end_ids"].get<std::vector<int32_t>>();
    if (!golden["allowed"].is_null()) {
      slot.allowed_bits = HostSlot::Bits(vocab_size, golden["allowed"].get<std::vector<int32_t>>());
    }
    for (const Json& pair : golden["bias"]) {
      slot.bias_ids.push_back(pair[0]);
      slot.bias_values.push_back(Float(pair[1]));
    }
    return slot;
  }
};

TEST_F(DecisionVectors, OrderAdjustedLogitsNoiseAndTokens) {
  const Json vectors = Vectors();
  ASSERT_GT(vectors["decisions"].size(), 30u);
  for (const Json& golden : vectors["decisions"]) {
    SCOPED_TRACE(golden["name"].get<std::string>());
    const std::vector<float> logits = Logits(golden);
    const int32_t vocab_size = static_cast<int32_t>(logits.size());
    HostSlot slot = Slot(golden, vocab_size);
    slot.params.num_perturbed = vocab_size;
    const SlotState state = slot.State(vocab_size);
    const RowCandidates row = ComputeCandidates(logits, state, 0, slot.row_position());

    EXPECT_EQ(row.summary.first_nonfinite, golden["first_nonfinite"].get<int32_t>());
    EXPECT_EQ(row.summary.drawn, golden["token"].get<int32_t>());
    EXPECT_EQ(DrawFromRow(logits, state, 0, slot.row_position()), golden["token"].get<int32_t>());
    ASSERT_EQ(row.top.size(), golden["order"].size());
    if (row.top.empty()) continue;
    EXPECT_EQ(row.summary.top_k_weight, golden["top_k_weight"].get<uint64_t>());

    size_t kept = 0;
    for (size_t rank = 0; rank < row.top.size(); ++rank) {
      EXPECT_EQ(row.top[rank].id, golden["order"][rank].get<int32_t>()) << rank;
      EXPECT_EQ(FloatBits(row.top[rank].adjusted), golden["adjusted"][rank].get<uint32_t>());
    }
    for (const PerturbedEntry& entry : row.perturbed) {
      const float s = ScaledLogit(entry.adjusted, row.summary.row_max, slot.params);
      const uint64_t weight = golden["weights"][entry.rank].get<uint64_t>();
      EXPECT_EQ(DrawWeight(s), weight);
      EXPECT_EQ(FloatBits(entry.perturbed), golden["perturbed"][entry.rank].get<uint32_t>());
      kept += Keeps(slot.params, row.summary.top_k_weight, entry.rank, entry.mass_above, weight);
    }
    EXPECT_EQ(kept, golden["kept"].get<size_t>());
  }
}

}  // namespace
}  // namespace tandem::kernels
