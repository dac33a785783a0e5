#include "engine/drafts/draft_length.h"

#include <gtest/gtest.h>

#include <vector>

namespace tandem::test {
namespace {

const std::vector<double> kFree(8, 0.0);
const std::vector<double> kDear = {1, 2, 3, 4, 5, 6, 7, 8};  // a row costs a token

TEST(DraftLengthTest, GrowsWhereDraftsAreTakenAndShrinksWhereTheyAreNot) {
  // A row costs a fifth of a token.
  const std::vector<double> cost = {0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6};
  DraftLength length;
  const int32_t first = length.Choose(3, cost);
  EXPECT_GE(first, 1);
  for (int32_t i = 0; i < 20; ++i) length.Observe(3, first, first);
  const int32_t grown = length.Choose(3, cost);
  EXPECT_GT(grown, first);
  EXPECT_EQ(grown, 8);
  for (int32_t i = 0; i < 6; ++i) length.Observe(3, 8, 0);
  EXPECT_LT(length.Choose(3, cost), grown);
  for (int32_t i = 0; i < 20; ++i) length.Observe(3, 1, 0);
  EXPECT_EQ(length.Choose(3, cost), 0);
}

TEST(DraftLengthTest, RowsThatCostATokenEachNeverPay) {
  DraftLength length;
  for (int32_t i = 0; i < 20; ++i) length.Observe(4, 8, 8);
  EXPECT_EQ(length.Choose(4, kDear), 0);
}

TEST(DraftLengthTest, FreeRowsPayAsLongAsADraftIsTakenNowAndThen) {
  DraftLength length;
  EXPECT_EQ(length.Choose(2, kFree), 8);
  EXPECT_EQ(length.Choose(2, {}), 0);
}

TEST(DraftLengthTest, MatchesOfEachLengthAreJudgedForThemselves) {
  DraftLength length;
  const std::vector<double> cost = {0.5, 1.0, 1.5};
  for (int32_t i = 0; i < 20; ++i) {
    length.Observe(2, 1, 0);
    length.Observe(4, 3, 3);
  }
  EXPECT_EQ(length.Choose(2, cost), 0);
  EXPECT_EQ(length.Choose(4, cost), 3);
  EXPECT_LT(length.TakeRate(2), 0.2);
  EXPECT_EQ(length.TakeRate(3), 0.625);
  EXPECT_GT(length.TakeRate(4), 0.9);
}

TEST(DraftLengthTest, WhatDoesNotPayIsTriedAgainEverMoreSeldom) {
  DraftLength length;
  std::vector<int32_t> tries;  // chances until each
  int32_t chances = 0;
  while (tries.size() < 8) {
    ++chances;
    if (length.Choose(2, kDear) == 0) continue;
    length.Observe(2, 1, 0);
    tries.push_back(chances);
    chances = 0;
  }
  EXPECT_EQ(tries, (std::vector<int32_t>{64, 128, 256, 512, 1024, 2048, 2048, 2048}));
  length.Observe(2, 1, 1);
  while (length.Choose(2, kDear) == 0) ++chances;
  EXPECT_EQ(chances + 1, 64);
}

}  // namespace
}  // namespace tandem::test
