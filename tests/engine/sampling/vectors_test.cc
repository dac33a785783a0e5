// The published vectors: tests/golden/sampling/vectors.json, made by make_vectors.py beside it.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/sampling/decision.h"

namespace tandem {
namespace {

using nlohmann::json;

SamplingParameters ParametersOf(const json& it) {
  SamplingParameters p;
  const auto read = [&](const char* name, auto* field) {
    if (it.contains(name)) it.at(name).get_to(*field);
  };
  read("seed", &p.seed);
  read("temperature", &p.temperature);
  read("top_k", &p.top_k);
  read("top_p", &p.top_p);
  read("min_p", &p.min_p);
  read("repetition_penalty", &p.repetition_penalty);
  read("repetition_window", &p.repetition_window);
  read("presence_penalty", &p.presence_penalty);
  read("presence_window", &p.presence_window);
  read("frequency_penalty", &p.frequency_penalty);
  read("frequency_window", &p.frequency_window);
  read("min_tokens", &p.min_tokens);
  read("allowed_ids", &p.allowed_ids);
  read("banned_ids", &p.banned_ids);
  read("end_ids", &p.end_ids);
  read("logit_bias", &p.logit_bias);
  return p;
}

TEST(SamplingVectors, EveryVectorIsDecidedAsPublishedFromTheRowAndFromTheLists) {
  std::ifstream file("tests/golden/sampling/vectors.json");
  ASSERT_TRUE(file.good());
  const json vectors = json::parse(file);
  ASSERT_GT(vectors.at("cases").size(), 300u);
  for (const json& it : vectors.at("cases")) {
    SCOPED_TRACE(it.at("name").get<std::string>());
    const std::vector<float> logits = it.at("logits");
    const std::vector<int32_t> tokens = it.at("tokens");
    const int32_t vocab_size = static_cast<int32_t>(logits.size());
    const SamplingParameters parameters = ParametersOf(it.at("parameters"));
    ASSERT_EQ(Validate(parameters, vocab_size).ToString(), "OK");
    const Decider decider(parameters, it.at("choice"), it.at("prompt_length"), tokens, vocab_size,
                          {});
    const Decision full = decider.DecideFromRow(logits);
    EXPECT_EQ(full.token, it.at("token").get<int32_t>());
    EXPECT_EQ(full.kind, full.token < 0 ? Decision::Kind::kNoToken : Decision::Kind::kToken);
    const Decision listed = decider.DecideFromCandidates(decider.CandidatesFromRow(logits));
    if (listed.kind != Decision::Kind::kUndecided) {
      EXPECT_EQ(listed.token, full.token) << listed.why;
    }
  }
}

}  // namespace
}  // namespace tandem
