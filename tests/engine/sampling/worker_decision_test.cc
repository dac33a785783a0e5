// The decision from the lists that a worker's kernels make is the decision from the whole row, or
// none; and where it is none, the wider lists that are fetched then, or the row, decide the same.
//
// TANDEM_EXHAUSTIVE adds 10,000 rows of 49,152 ids and 1,000 of 262,144 (minutes).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_ops.h"
#include "tests/engine/sampling/random_rows.h"
#include "tests/engine/sampling/worker_lists.h"

namespace tandem::test {
namespace {

// How many cases came to which end.
struct Shares {
  int64_t from_lists = 0;   // the lists of the asked sizes decided
  int64_t fetched = 0;      // wider lists did
  int64_t from_row = 0;     // none did
  int64_t fetches = 0;      // in all
  int64_t no_token = 0;     // of from_lists: no id is inside the row
  int64_t non_finite = 0;   // of from_lists
  int64_t beyond_best = 0;  // of all: the token has not the largest logit
  int64_t total() const { return from_lists + fetched + from_row; }
};

std::ostream& operator<<(std::ostream& out, const Shares& it) {
  return out << it.total() << " cases: from lists " << it.from_lists << " (empty rows "
             << it.no_token << ", not finite " << it.non_finite << "), after a fetch " << it.fetched
             << ", from the row " << it.from_row << "; " << it.fetches
             << " fetches; not the largest logit " << it.beyond_best;
}

class WorkerDecision : public testing::Test {
 protected:
  static constexpr int32_t kMaxRows = 64;

  // num_cases in steps of `rows` that share a vocabulary of `vocab_size`, 0: of 1 to 1,024 ids.
  void DecideCases(uint64_t base, int64_t num_cases, int32_t rows, int32_t vocab_size) {
    for (int64_t begin = 0; begin < num_cases && !HasFailure(); begin += rows) {
      const uint64_t vocabulary_seed = SeedOf(base, static_cast<uint64_t>(begin));
      const int32_t size = vocab_size > 0 ? vocab_size : RandomVocabSize(vocabulary_seed, 1024);
      const RandomVocabulary vocabulary = MakeRandomVocabulary(vocabulary_seed, size);
      std::vector<RandomCase> cases;
      std::vector<std::string> names;
      for (int64_t i = 0; i < std::min<int64_t>(rows, num_cases - begin); ++i) {
        const uint64_t seed = SeedOf(vocabulary_seed, static_cast<uint64_t>(i));
        cases.push_back(MakeRandomCase(seed, vocabulary));
        names.push_back(Reproducer(vocabulary_seed, size, seed));
      }
      DecideStep(names, &cases);
    }
  }

  const Shares& shares() const { return shares_; }

 private:
  struct Open {  // a case that is not decided yet
    size_t index;
    const Decider decider;
    const Decision full;
  };

  void DecideStep(const std::vector<std::string>& names, std::vector<RandomCase>* cases) {
    std::vector<Open> open;
    for (size_t i = 0; i < cases->size(); ++i) {
      const RandomCase& it = (*cases)[i];
      ASSERT_EQ(Validate(it.parameters, it.vocab_size).ToString(), "OK") << names[i];
      Decider decider = MakeDecider(it);
      Decision full = decider.DecideFromRow(it.logits);
      CountEnd(it, full);
      open.push_back({i, std::move(decider), std::move(full)});
    }
    for (int64_t* decided = &shares_.from_lists; !open.empty(); decided = &shares_.fetched) {
      std::vector<const RandomCase*> asked;
      for (const Open& it : open) asked.push_back(&(*cases)[it.index]);
      const std::vector<Candidates> lists = lists_.Make(asked);
      std::vector<Open> still_open;
      for (size_t i = 0; i < open.size(); ++i) {
        const Open& it = open[i];
        const Decision listed = it.decider.DecideFromCandidates(lists[i]);
        ASSERT_NE(listed.kind, Decision::Kind::kFault) << listed.why << ": " << names[it.index];
        if (listed.kind == Decision::Kind::kUndecided) {
          ASSERT_EQ(lists[i].summary.drawn, -1) << names[it.index];
          if (Widen(&(*cases)[it.index].parameters)) {
            still_open.push_back({it.index, it.decider, it.full});
            ++shares_.fetches;
          } else {
            ++shares_.from_row;
          }
          continue;
        }
        ++*decided;
        ASSERT_EQ(listed.kind, it.full.kind) << names[it.index];
        ASSERT_EQ(listed.token, it.full.token) << names[it.index];
        const bool draws = listed.kind == Decision::Kind::kToken;
        ASSERT_EQ(lists[i].summary.drawn, draws ? listed.token : -1) << names[it.index];
      }
      open.clear();
      for (Open& it : still_open) open.push_back(std::move(it));
    }
  }

  void CountEnd(const RandomCase& it, const Decision& full) {
    shares_.no_token += full.kind == Decision::Kind::kNoToken;
    shares_.non_finite += full.kind == Decision::Kind::kNonFinite;
    if (full.kind != Decision::Kind::kToken) return;
    const auto best = std::max_element(it.logits.begin(), it.logits.end());
    shares_.beyond_best += full.token != best - it.logits.begin();
  }

  const std::unique_ptr<kernels::Ops> ops_ = *kernels::MakeCpuOps({.num_threads = 1});
  WorkerLists lists_{kMaxRows, *ops_};
  Shares shares_;
};

TEST_F(WorkerDecision, EqualsTheWholeRowsForAMillionCasesOfSmallVocabularies) {
  DecideCases(1, 1000000, kMaxRows, 0);
  std::cout << shares() << "\n";
  EXPECT_EQ(shares().total(), 1000000);
  EXPECT_GT(shares().from_lists, 950000);
  // Every way to a decision is walked often. Lists of 1,024 hold every row, so that no case needs
  // its row.
  EXPECT_GT(shares().fetched, 5000);
  EXPECT_EQ(shares().from_row, 0);
  EXPECT_GT(shares().no_token, 1000);
  EXPECT_GT(shares().non_finite, 1000);
  EXPECT_GT(shares().beyond_best, 300000);
}

TEST_F(WorkerDecision, EqualsTheWholeRowsForLargeVocabularies) {
  const bool exhaustive = std::getenv("TANDEM_EXHAUSTIVE") != nullptr;
  DecideCases(2, exhaustive ? 10000 : 48, 8, 49152);
  std::cout << "49,152 ids: " << shares() << "\n";
  EXPECT_GT(shares().from_lists, shares().total() * 9 / 10);
}

TEST_F(WorkerDecision, EqualsTheWholeRowsForTheLargestVocabulary) {
  const bool exhaustive = std::getenv("TANDEM_EXHAUSTIVE") != nullptr;
  DecideCases(3, exhaustive ? 1000 : 8, 4, 262144);
  std::cout << "262,144 ids: " << shares() << "\n";
  EXPECT_GT(shares().from_lists, shares().total() * 7 / 10);
}

}  // namespace
}  // namespace tandem::test
