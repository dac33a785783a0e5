// Whole rows of the published vectors (tests/golden/sampling/README.md): by the text tier from the
// row and from lists, and by a worker's kernels.
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/draw/weight.h"
#include "tests/engine/sampling/random_rows.h"
#include "tests/engine/sampling/worker_lists.h"

namespace tandem::test {
namespace {

using nlohmann::json;

float Float(const json& bits) { return kernels::BitsFloat(bits.get<uint32_t>()); }

std::vector<float> Floats(const json& bits) {
  std::vector<float> out;
  for (const json& it : bits) out.push_back(Float(it));
  return out;
}

SamplingParameters ParametersOf(const json& it) {
  SamplingParameters p;
  const auto read = [&](const char* name, auto* field) {
    if (it.contains(name)) it.at(name).get_to(*field);
  };
  p.seed = std::stoull(it.at("seed").get<std::string>());
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
  read("want_raw", &p.want_raw);
  read("num_raw_top", &p.num_raw_top);
  read("report_ids", &p.report_ids);
  read("num_top", &p.num_top);
  read("num_perturbed", &p.num_perturbed);
  return p;
}

RandomCase CaseOf(const json& it) {
  RandomCase out;
  out.logits = Floats(it.at("logits"));
  out.vocab_size = static_cast<int32_t>(out.logits.size());
  for (const json& run : it.at("history")) {
    out.tokens.insert(out.tokens.end(), run[1].get<size_t>(), run[0].get<int32_t>());
  }
  out.prompt_length = it.at("prompt_length");
  out.choice = it.at("choice");
  out.parameters = ParametersOf(it.at("parameters"));
  if (!it.at("undefined_ids").empty()) {
    out.defined_bits.assign((out.logits.size() + 31) / 32, ~0u);
    for (const int32_t id : it.at("undefined_ids")) {
      out.defined_bits[id / 32] &= ~(1u << (id % 32));
    }
  }
  return out;
}

std::vector<kernels::RawEntry> RawEntries(const json& entries) {
  std::vector<kernels::RawEntry> out;
  for (const json& it : entries) out.push_back({it[0], Float(it[1]), it[2]});
  return out;
}

// What a worker has to send for a case of kind "token".
Candidates ListsOf(const json& it, bool want_raw) {
  const json &row = it.at("row"), &lists = it.at("lists");
  Candidates out;
  for (const json& entry : lists.at("top")) {
    out.top.push_back({entry[0], Float(entry[1]), Float(entry[2]), -1});
  }
  for (const json& entry : lists.at("perturbed")) {
    out.perturbed.push_back(
        {entry[0], Float(entry[1]), Float(entry[2]), Float(entry[3]), entry[4], -1, entry[5]});
  }
  kernels::RowSummary& summary = out.summary;
  summary.first_nonfinite = -1;
  summary.num_in_row = static_cast<int32_t>(row.at("order").size());
  summary.row_max = Float(row.at("row_max"));
  summary.next_perturbed = Float(lists.at("next_perturbed"));
  summary.total_weight = row.at("total_weight");
  summary.top_k_weight = row.at("top_k_weight");
  summary.drawn = lists.at("token");
  if (want_raw) {
    const json& raw = lists.at("raw");
    summary.raw_max = Float(raw.at("raw_max"));
    summary.raw_total = raw.at("raw_total");
    out.raw_top = RawEntries(raw.at("raw_top"));
    out.reported = RawEntries(raw.at("reported"));
    for (size_t i = 0; i < out.top.size(); ++i) out.top[i].raw_rank = raw.at("top_raw_ranks")[i];
    for (size_t i = 0; i < out.perturbed.size(); ++i) {
      out.perturbed[i].raw_rank = raw.at("perturbed_raw_ranks")[i];
    }
  }
  summary.num_top = static_cast<int32_t>(out.top.size());
  summary.num_perturbed = static_cast<int32_t>(out.perturbed.size());
  summary.num_raw_top = static_cast<int32_t>(out.raw_top.size());
  summary.num_reported = static_cast<int32_t>(out.reported.size());
  return out;
}

class SamplingVectors : public testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file("tests/golden/sampling/vectors.json");
    ASSERT_TRUE(file.good());
    const json vectors = json::parse(file);
    ASSERT_EQ(vectors.at("format"), 1);
    cases_ = vectors.at("cases");
    ASSERT_GT(cases_.size(), 200u);
  }

  json cases_;
};

TEST_F(SamplingVectors, TheRowDecidesAsPublished) {
  for (const json& it : cases_) {
    SCOPED_TRACE(it.at("name").get<std::string>());
    const RandomCase given = CaseOf(it);
    ASSERT_EQ(Validate(given.parameters, given.vocab_size).ToString(), "OK");
    const Decider decider = MakeDecider(given);
    EXPECT_EQ(decider.position(), it.at("position").get<int32_t>());
    const kernels::DrawParams& params = decider.params();
    EXPECT_EQ(kernels::FloatBits(params.inverse_temperature),
              it.at("inverse_temperature").get<uint32_t>());
    EXPECT_EQ(params.top_p_fixed, it.at("top_p_fixed").get<uint64_t>());
    EXPECT_EQ(params.min_p_weight, it.at("min_p_weight").get<uint64_t>());
    const Decision decision = decider.DecideFromRow(given.logits);
    EXPECT_EQ(decision.token, it.at("token").get<int32_t>());
    EXPECT_EQ(decision.kind, it.at("kind") == "token"      ? Decision::Kind::kToken
                             : it.at("kind") == "no_token" ? Decision::Kind::kNoToken
                                                           : Decision::Kind::kNonFinite);
  }
}

// The whole row as published, by lists that are longer than it.
TEST_F(SamplingVectors, TheRowIsInThePublishedOrder) {
  for (const json& it : cases_) {
    if (it.at("kind") != "token") continue;
    SCOPED_TRACE(it.at("name").get<std::string>());
    RandomCase given = CaseOf(it);
    given.parameters.num_top = kernels::kMaxTop;
    given.parameters.num_perturbed = kernels::kMaxPerturbed;
    const Decider decider = MakeDecider(given);
    const Candidates lists = decider.CandidatesFromRow(given.logits);
    const json& row = it.at("row");
    const size_t size = row.at("order").size();
    ASSERT_EQ(lists.top.size(), size);
    ASSERT_EQ(lists.perturbed.size(), size);
    for (size_t rank = 0; rank < size; ++rank) {
      EXPECT_EQ(lists.top[rank].id, row.at("order")[rank].get<int32_t>());
      EXPECT_EQ(kernels::FloatBits(lists.top[rank].adjusted),
                row.at("adjusted")[rank].get<uint32_t>());
    }
    int32_t kept = 0;
    for (const kernels::PerturbedEntry& entry : lists.perturbed) {
      EXPECT_EQ(kernels::FloatBits(entry.perturbed),
                row.at("perturbed")[entry.rank].get<uint32_t>());
      const uint64_t weight = kernels::DrawWeight(
          kernels::ScaledLogit(entry.adjusted, lists.summary.row_max, decider.params()));
      EXPECT_EQ(weight, row.at("weights")[entry.rank].get<uint64_t>());
      kept += kernels::Keeps(decider.params(), lists.summary.top_k_weight, entry.rank,
                             entry.mass_above, weight);
    }
    EXPECT_EQ(kept, row.at("kept").get<int32_t>());
  }
}

TEST_F(SamplingVectors, ListsAreAsPublishedAndDecideAsPublished) {
  const std::unique_ptr<kernels::Ops> ops = *kernels::MakeCpuOps({.num_threads = 1});
  WorkerLists worker(1, *ops);
  for (const json& it : cases_) {
    SCOPED_TRACE(it.at("name").get<std::string>());
    const RandomCase given = CaseOf(it);
    const RandomCase* const cases[] = {&given};
    const Decider decider = MakeDecider(given);
    const Candidates sorted = decider.CandidatesFromRow(given.logits);
    const Candidates by_worker = worker.Make(cases).front();
    if (it.at("kind") == "token") {
      const Candidates published = ListsOf(it, given.parameters.want_raw);
      EXPECT_EQ(DifferenceOf(sorted, published), "");
      EXPECT_EQ(DifferenceOf(by_worker, published), "");
      EXPECT_EQ(decider.DecideFromCandidates(published).token, published.summary.drawn);
    } else {
      EXPECT_EQ(by_worker.summary.drawn, -1);
      EXPECT_EQ(decider.DecideFromCandidates(by_worker).token, it.at("token").get<int32_t>());
    }
  }
}

}  // namespace
}  // namespace tandem::test
