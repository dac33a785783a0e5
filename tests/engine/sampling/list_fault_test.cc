// A worker whose lists differ from what this side computes is found out.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "tests/engine/sampling/random_rows.h"

namespace tandem::test {
namespace {

// A row of 40 ids with every edit, and its lists.
struct Sample {
  RandomCase it;
  Candidates lists;
  Sample() {
    std::mt19937_64 random(3);
    it.vocab_size = 40;
    std::normal_distribution<float> normal(0.0f, 2.0f);
    for (int i = 0; i < 40; ++i) it.logits.push_back(normal(random));
    it.tokens = {1, 2, 3, 3, 4, 5, 5, 5};
    it.prompt_length = 4;
    it.parameters.temperature = 1.0f;
    it.parameters.seed = 11;
    it.parameters.top_k = 15;
    it.parameters.top_p = 0.95f;
    it.parameters.repetition_penalty = 1.2f;
    it.parameters.frequency_penalty = 0.3f;
    it.parameters.logit_bias = {{7, 1.5f}};
    it.parameters.banned_ids = {9};
    it.parameters.want_raw = true;
    it.parameters.num_raw_top = 4;
    it.parameters.report_ids = {6, 30};
    it.parameters.num_top = 10;
    it.parameters.num_perturbed = 6;
    lists = MakeDecider(it).CandidatesFromRow(it.logits);
  }
  Decision Decide() const { return MakeDecider(it).DecideFromCandidates(lists); }
};

// Index of a perturbed entry outside the top list.
size_t OutsideTop(const Candidates& lists) {
  for (size_t i = 0; i < lists.perturbed.size(); ++i) {
    if (lists.perturbed[i].rank >= lists.summary.num_top) return i;
  }
  return lists.perturbed.size();
}

TEST(ListFault, TheListsOfTheRowAreSound) {
  const Sample sample;
  EXPECT_EQ(sample.Decide().kind, Decision::Kind::kToken);
  ASSERT_LT(OutsideTop(sample.lists), sample.lists.perturbed.size()) << "the sample is too easy";
}

TEST(ListFault, EveryChangeOfAnEntryOrATotalIsFound) {
  struct Case {
    const char* what;
    std::function<void(Candidates*)> change;
  };
  const auto up = [](float x) { return std::nextafter(x, 1e30f); };
  const Case cases[] = {
      {"a top id of another token", [](Candidates* c) { c->top[3].id = 9; }},
      {"a negative top id", [](Candidates* c) { c->top[3].id = -1; }},
      {"a top id beyond the vocabulary", [](Candidates* c) { c->top[3].id = 40; }},
      {"a top raw logit one step off", [&](Candidates* c) { c->top[2].raw = up(c->top[2].raw); }},
      {"a top adjusted logit one step off",
       [&](Candidates* c) { c->top[2].adjusted = up(c->top[2].adjusted); }},
      {"a raw logit that is NaN", [](Candidates* c) { c->top[2].raw = NAN; }},
      {"an infinite raw logit", [](Candidates* c) { c->perturbed[1].raw = INFINITY; }},
      {"top entries swapped", [](Candidates* c) { std::swap(c->top[0], c->top[1]); }},
      {"a top entry twice", [](Candidates* c) { c->top[1] = c->top[0]; }},
      {"another row maximum", [&](Candidates* c) { c->summary.row_max = up(c->summary.row_max); }},
      {"a perturbed value one step off",
       [&](Candidates* c) { c->perturbed[2].perturbed = up(c->perturbed[2].perturbed); }},
      {"perturbed entries swapped",
       [](Candidates* c) { std::swap(c->perturbed[0], c->perturbed[1]); }},
      {"a perturbed entry twice", [](Candidates* c) { c->perturbed[1] = c->perturbed[0]; }},
      {"a perturbed rank in the top list off by one",
       [](Candidates* c) {
         for (auto& entry : c->perturbed) {
           if (entry.rank < c->summary.num_top) {
             entry.rank ^= 1;
             return;
           }
         }
       }},
      {"a mass above in the top list off by one",
       [](Candidates* c) {
         for (auto& entry : c->perturbed) {
           if (entry.rank < c->summary.num_top) {
             ++entry.mass_above;
             return;
           }
         }
       }},
      {"a rank outside the top list moved into it",
       [](Candidates* c) { c->perturbed[OutsideTop(*c)].rank = 2; }},
      {"a rank beyond the row", [](Candidates* c) { c->perturbed[OutsideTop(*c)].rank = 39; }},
      {"a negative rank", [](Candidates* c) { c->perturbed[OutsideTop(*c)].rank = -1; }},
      {"a mass above less than the top list's",
       [](Candidates* c) { c->perturbed[OutsideTop(*c)].mass_above = 5; }},
      {"a mass above near the total",
       [](Candidates* c) { c->perturbed[OutsideTop(*c)].mass_above = c->summary.total_weight; }},
      {"a mass that overflows",
       [](Candidates* c) { c->perturbed[OutsideTop(*c)].mass_above = ~uint64_t{0}; }},
      {"a total less than the top list's", [](Candidates* c) { c->summary.total_weight = 1; }},
      {"a total that the rest cannot have",
       [](Candidates* c) { c->summary.total_weight += uint64_t{1} << 45; }},
      {"a top_k weight above the total",
       [](Candidates* c) { c->summary.top_k_weight = c->summary.total_weight + 1; }},
      {"a top_k weight below the top list's", [](Candidates* c) { c->summary.top_k_weight = 1; }},
      {"a next value above the list's last",
       [&](Candidates* c) { c->summary.next_perturbed = up(c->perturbed.back().perturbed); }},
      {"a next value of NaN", [](Candidates* c) { c->summary.next_perturbed = NAN; }},
      {"a perturbed list without its first",
       [](Candidates* c) {
         c->perturbed.erase(c->perturbed.begin());
         --c->summary.num_perturbed;
         c->summary.next_perturbed = -1.0f;
       }},
      {"a list shorter than the summary says", [](Candidates* c) { c->top.pop_back(); }},
      {"no top list",
       [](Candidates* c) {
         c->top.clear();
         c->summary.num_top = 0;
       }},
      {"a negative size", [](Candidates* c) { c->summary.num_perturbed = -1; }},
      {"another number of ids in the row", [](Candidates* c) { ++c->summary.num_in_row; }},
      {"an empty row", [](Candidates* c) { c->summary.num_in_row = 0; }},
      {"a first non-finite id beyond the vocabulary",
       [](Candidates* c) { c->summary.first_nonfinite = 40; }},
      {"a raw list out of order", [](Candidates* c) { std::swap(c->raw_top[0], c->raw_top[1]); }},
      {"a missing raw entry", [](Candidates* c) { c->raw_top.pop_back(); }},
      {"a raw id beyond the vocabulary", [](Candidates* c) { c->raw_top[3].id = 4000; }},
      {"a reported id that was not asked for", [](Candidates* c) { c->reported[1].id = 31; }},
      {"a raw rank beyond the vocabulary", [](Candidates* c) { c->top[1].raw_rank = 40; }},
      {"a raw total without its maximum", [](Candidates* c) { c->summary.raw_total = 3; }},
      {"a raw maximum of NaN", [](Candidates* c) { c->summary.raw_max = NAN; }},
  };
  for (const Case& it : cases) {
    Sample sample;
    it.change(&sample.lists);
    const Decision decision = sample.Decide();
    EXPECT_EQ(decision.kind, Decision::Kind::kFault) << it.what;
    EXPECT_FALSE(decision.why.empty()) << it.what;
    EXPECT_EQ(decision.token, -1) << it.what;
  }
}

TEST(ListFault, AHistoryThatDiffersIsFound) {
  Sample sample;
  sample.it.tokens[7] = sample.lists.top[0].id;  // the worker counted another token
  EXPECT_EQ(sample.Decide().kind, Decision::Kind::kFault);
}

TEST(ListFault, AnotherSeedIsFound) {
  Sample sample;
  sample.it.parameters.seed = 12;
  EXPECT_EQ(sample.Decide().kind, Decision::Kind::kFault);
}

TEST(ListFault, AFirstNonFiniteIdEndsTheRequestWithIt) {
  Sample sample;
  sample.lists.summary.first_nonfinite = 17;
  EXPECT_EQ(sample.Decide().kind, Decision::Kind::kNonFinite);
  EXPECT_EQ(sample.Decide().token, 17);
}

// Whatever a broken worker sends, the answer is a token of the row or no token, never a crash.
TEST(ListFault, RandomDamageNeverLeavesTheRow) {
  std::mt19937_64 random(4);
  int32_t num_faults = 0;
  for (int i = 0; i < 20000; ++i) {
    Sample sample;
    for (int hits = 0; hits < 1 + int(random() % 3); ++hits) {
      char* bytes;
      size_t size;
      switch (random() % 3) {
        case 0:
          bytes = reinterpret_cast<char*>(&sample.lists.summary);
          size = sizeof(sample.lists.summary);
          break;
        case 1:
          bytes = reinterpret_cast<char*>(sample.lists.top.data());
          size = sample.lists.top.size() * sizeof(kernels::TopEntry);
          break;
        default:
          bytes = reinterpret_cast<char*>(sample.lists.perturbed.data());
          size = sample.lists.perturbed.size() * sizeof(kernels::PerturbedEntry);
      }
      bytes[random() % size] ^= static_cast<char>(1u << (random() % 8));
    }
    const Decider decider = MakeDecider(sample.it);
    const Decision decision = decider.DecideFromCandidates(sample.lists);
    num_faults += decision.kind == Decision::Kind::kFault;
    if (decision.kind == Decision::Kind::kToken) {
      ASSERT_TRUE(decider.InRow(decision.token));
    }
  }
  EXPECT_GT(num_faults, 10000);
}

}  // namespace
}  // namespace tandem::test
