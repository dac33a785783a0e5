#include "engine/drafts/draft_budget.h"

#include <gtest/gtest.h>

namespace tandem::test {
namespace {

TEST(DraftBudgetTest, WhereNoDraftIsTakenTheyCostATwoHundredthOfTheTokens) {
  DraftBudget budget;
  double spent = 0;
  for (int32_t i = 0; i < 100'000; ++i) {
    budget.OnDrawn(1, 64);
    if (!budget.Allows(1.5)) continue;
    budget.Spend(1.5);
    spent += 1.5;
  }
  EXPECT_GT(spent, 490);
  EXPECT_LT(spent, 500 + DraftBudget::kFirst + 1.5);
}

TEST(DraftBudgetTest, DraftsThatAreTakenPayForMore) {
  DraftBudget budget;
  int32_t plans = 0;
  for (int32_t i = 0; i < 100; ++i) {
    budget.OnDrawn(1, 1);
    if (!budget.Allows(1.5)) continue;
    ++plans;
    budget.Spend(1.5);
    budget.OnTaken(4);
  }
  EXPECT_EQ(plans, 100);
}

TEST(DraftBudgetTest, OldGainsPayForTwoTokensASessionAtMost) {
  DraftBudget budget;
  for (int32_t i = 0; i < 1000; ++i) budget.OnTaken(8);
  budget.OnDrawn(1, 8);
  int32_t plans = 0;
  for (; budget.Allows(1); ++plans) budget.Spend(1);
  EXPECT_EQ(plans, 16);
}

TEST(DraftBudgetTest, WhatCostsNothingIsAlwaysAllowed) {
  DraftBudget budget;
  budget.Spend(100);
  EXPECT_FALSE(budget.Allows(0.01));
  EXPECT_TRUE(budget.Allows(0));
}

}  // namespace
}  // namespace tandem::test
