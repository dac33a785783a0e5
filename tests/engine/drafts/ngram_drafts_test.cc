#include "engine/drafts/ngram_drafts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/support/allocation_counter.h"

namespace tandem::test {
namespace {

NgramDrafts Reserved(int32_t num_tokens = 1000) {
  NgramDrafts drafts;
  drafts.Reserve(num_tokens);
  return drafts;
}

std::vector<int32_t> Guess(const std::vector<int32_t>& tokens, int32_t count) {
  NgramDrafts drafts = Reserved();
  const NgramDrafts::Match match = drafts.Find(tokens);
  std::vector<int32_t> out;
  if (match.length > 0) NgramDrafts::Continue(tokens, match, count, &out);
  return out;
}

TEST(NgramDraftsTest, WhatFollowedTheLastTokensBeforeIsTheDraft) {
  EXPECT_EQ(Guess({1, 2, 3, 4, 5, 9, 1, 2, 3}, 3), (std::vector<int32_t>{4, 5, 9}));
}

TEST(NgramDraftsTest, OneTokenInCommonIsNoMatch) {
  EXPECT_EQ(Guess({1, 2, 3, 4, 2}, 3), std::vector<int32_t>());
  EXPECT_EQ(Guess({7}, 3), std::vector<int32_t>());
}

TEST(NgramDraftsTest, ALongerMatchGoesBeforeANewerOne) {
  //                 a four-token match      a newer one of two
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 50, 8, 3, 4, 60, 9, 1, 2, 3, 4};
  NgramDrafts drafts = Reserved();
  const NgramDrafts::Match match = drafts.Find(tokens);
  EXPECT_EQ(match.length, 4);
  EXPECT_EQ(tokens[match.next], 50);
}

TEST(NgramDraftsTest, OfEqualMatchesTheMostRecentIsTaken) {
  EXPECT_EQ(Guess({1, 2, 50, 7, 1, 2, 60, 8, 1, 2}, 1), std::vector<int32_t>{60});
}

TEST(NgramDraftsTest, AtTheEndOfTheListTheDraftsRepeatThemselves) {
  EXPECT_EQ(Guess({5, 6, 7, 5, 6, 7}, 7), (std::vector<int32_t>{5, 6, 7, 5, 6, 7, 5}));
  EXPECT_EQ(Guess({4, 4, 4}, 3), (std::vector<int32_t>{4, 4, 4}));
}

TEST(NgramDraftsTest, WhatWasCutIsNoMatchAnyMore) {
  NgramDrafts drafts = Reserved();
  std::vector<int32_t> tokens = {1, 2, 3, 9, 4, 5, 6, 7};
  EXPECT_EQ(drafts.Find(tokens).length, 0);
  tokens.resize(4);
  drafts.Truncate(4);
  tokens.insert(tokens.end(), {8, 5, 6});  // the 5, 6 that was cut must not be found
  EXPECT_EQ(drafts.Find(tokens).length, 0);
  tokens.insert(tokens.end(), {2, 3});
  const NgramDrafts::Match match = drafts.Find(tokens);
  EXPECT_EQ(match.length, 2);
  EXPECT_EQ(match.next, 3);
}

// Against a search of the whole list, with cuts.
TEST(NgramDraftsTest, FindsWhatASearchFinds) {
  std::mt19937 random(5);
  NgramDrafts drafts = Reserved(4000);
  std::vector<int32_t> tokens;
  int32_t found = 0;
  for (int32_t turn = 0; turn < 2000; ++turn) {
    if (random() % 20 == 0 && !tokens.empty()) {
      tokens.resize(tokens.size() - random() % std::min<size_t>(tokens.size(), 8));
      drafts.Truncate(static_cast<int32_t>(tokens.size()));
    }
    tokens.push_back(static_cast<int32_t>(random() % 6));
    NgramDrafts::Match want;
    const int32_t length = static_cast<int32_t>(tokens.size());
    for (int32_t n = std::min(length, 4); n >= 2 && want.length == 0; --n) {
      for (int32_t next = length - 1; next >= n && want.length == 0; --next) {
        if (std::equal(tokens.end() - n, tokens.end(), tokens.begin() + next - n)) want = {n, next};
      }
    }
    const NgramDrafts::Match got = drafts.Find(tokens);
    // A cut takes with it the newer of two places.
    found += got.length == want.length && got.next == want.next;
    if (got.length > 0) {
      EXPECT_TRUE(std::equal(tokens.end() - got.length, tokens.end(),
                             tokens.begin() + got.next - got.length));
      EXPECT_LE(got.length, want.length);
    }
  }
  EXPECT_GT(found, 1800);
}

TEST(NgramDraftsTest, ALongListIsTakenInOverSeveralCalls) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 3 * NgramDrafts::kTokensAtOnce; ++i) tokens.push_back(i);
  const int32_t early = 10, late = 2 * NgramDrafts::kTokensAtOnce + 10;
  tokens.insert(tokens.end(), {late, late + 1, late + 2, late + 3});
  NgramDrafts drafts = Reserved(static_cast<int32_t>(tokens.size()));
  EXPECT_EQ(drafts.Find(tokens).length, 0);
  drafts.Find(tokens);
  EXPECT_EQ(drafts.Find(tokens).next, late + 4);
  tokens.insert(tokens.end(), {early, early + 1, early + 2, early + 3});
  EXPECT_EQ(drafts.Find(tokens).next, early + 4);
}

TEST(NgramDraftsTest, FindAllocatesNothing) {
  NgramDrafts drafts = Reserved(2000);
  std::vector<int32_t> tokens;
  tokens.reserve(2000);
  const int64_t before = AllocatedBytes();
  for (int32_t i = 0; i < 2000; ++i) {
    tokens.push_back(i % 17);
    drafts.Find(tokens);
  }
  EXPECT_EQ(AllocatedBytes(), before);
}

}  // namespace
}  // namespace tandem::test
