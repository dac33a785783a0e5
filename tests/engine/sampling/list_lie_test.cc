// A worker that lies in any field of what it sends, by any single bit: it is found out, or the
// token is the right one, or none is decided. What cannot be checked without the row is named.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tests/engine/sampling/random_rows.h"

namespace tandem::test {
namespace {

using kernels::PerturbedEntry;
using kernels::RawEntry;
using kernels::RowSummary;
using kernels::TopEntry;

struct Ends {
  int64_t lies = 0;
  int64_t faults = 0;
  int64_t wrong = 0;  // another token than the row's
};

class ListLie : public testing::Test {
 protected:
  void LieAbout(const RandomCase& it) {
    const Decider decider = MakeDecider(it);
    const Decision full = decider.DecideFromRow(it.logits);
    if (full.kind != Decision::Kind::kToken) return;
    Candidates lists = decider.CandidatesFromRow(it.logits);
    const auto try_field = [&](const std::string& name, auto* field) {
      const auto honest = *field;
      for (size_t bit = 0; bit < 8 * sizeof(honest); ++bit) {
        unsigned char bytes[sizeof(honest)];
        std::memcpy(bytes, &honest, sizeof(honest));
        bytes[bit / 8] ^= static_cast<unsigned char>(1u << (bit % 8));
        std::memcpy(field, bytes, sizeof(honest));
        Count(decider.DecideFromCandidates(lists), full, decider, &ends_[name]);
      }
      *field = honest;
    };
    RowSummary& summary = lists.summary;
    try_field("num_top", &summary.num_top);
    try_field("num_perturbed", &summary.num_perturbed);
    try_field("num_in_row", &summary.num_in_row);
    try_field("first_nonfinite", &summary.first_nonfinite);
    try_field("row_max", &summary.row_max);
    try_field("next_perturbed", &summary.next_perturbed);
    try_field("total_weight", &summary.total_weight);
    try_field("top_k_weight", &summary.top_k_weight);
    try_field("num_raw_top", &summary.num_raw_top);
    try_field("num_reported", &summary.num_reported);
    try_field("raw_max", &summary.raw_max);
    try_field("raw_total", &summary.raw_total);
    try_field("drawn", &summary.drawn);
    for (TopEntry& entry : lists.top) {
      try_field("top.id", &entry.id);
      try_field("top.raw", &entry.raw);
      try_field("top.adjusted", &entry.adjusted);
      try_field("top.raw_rank", &entry.raw_rank);
    }
    for (PerturbedEntry& entry : lists.perturbed) {
      try_field("perturbed.id", &entry.id);
      try_field("perturbed.raw", &entry.raw);
      try_field("perturbed.adjusted", &entry.adjusted);
      try_field("perturbed.perturbed", &entry.perturbed);
      try_field("perturbed.rank", &entry.rank);
      try_field("perturbed.raw_rank", &entry.raw_rank);
      try_field("perturbed.mass_above", &entry.mass_above);
    }
    for (RawEntry& entry : lists.raw_top) {
      try_field("raw_top.id", &entry.id);
      try_field("raw_top.raw", &entry.raw);
      try_field("raw_top.raw_rank", &entry.raw_rank);
    }
    for (RawEntry& entry : lists.reported) {
      try_field("reported.id", &entry.id);
      try_field("reported.raw", &entry.raw);
      try_field("reported.raw_rank", &entry.raw_rank);
    }
  }

  std::map<std::string, Ends> ends_;

 private:
  static void Count(const Decision& decision, const Decision& full, const Decider& decider,
                    Ends* ends) {
    ++ends->lies;
    ends->faults += decision.kind == Decision::Kind::kFault;
    if (decision.kind != Decision::Kind::kToken) return;
    ends->wrong += decision.token != full.token;
    EXPECT_TRUE(decider.InRow(decision.token));
  }
};

TEST_F(ListLie, IsCaughtOrHarmless) {
  std::mt19937_64 random(100);
  for (int i = 0; i < 400; ++i) {
    RandomCase it = MakeRandomCase(random, 60);
    it.parameters.num_top = std::min(it.parameters.num_top, 20);
    LieAbout(it);
  }
  // Which of two ids outside the perturbed list a raw logit belongs to, and masses of ids outside
  // the top list within the bounds that the order leaves, cannot be known without the row.
  const auto is_unknowable = [](const std::string& name) {
    return name == "top.id" || name == "perturbed.mass_above" || name == "top_k_weight";
  };
  EXPECT_EQ(ends_.size(), 30u);
  for (const auto& [name, ends] : ends_) {
    EXPECT_GT(ends.lies, 1000) << name;
    if (is_unknowable(name)) {
      EXPECT_LT(ends.wrong * 2000, ends.lies) << name;
    } else {
      EXPECT_EQ(ends.wrong, 0) << name;
    }
  }
  // What is recomputed here is nearly always found out: else the bit was lost in the edit.
  for (const char* name : {"top.raw", "top.adjusted", "top.id", "perturbed.raw", "perturbed.id",
                           "perturbed.adjusted", "perturbed.perturbed", "perturbed.rank"}) {
    EXPECT_GT(ends_[name].faults * 10, ends_[name].lies * 9) << name;
  }
}

}  // namespace
}  // namespace tandem::test
