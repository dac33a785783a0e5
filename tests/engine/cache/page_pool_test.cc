#include "engine/cache/page_pool.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace tandem {
namespace {

TEST(PagePool, ATakenPageHasOneOwnerAndIsFreeAfterTheLastDrop) {
  PagePool pool(2);
  pool.Reserve(1);
  const int32_t page = pool.Take();
  EXPECT_EQ(pool.owners(page), 1);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.num_reserved(), 0);
  pool.Share(page);
  pool.Drop(page);
  EXPECT_EQ(pool.num_free(), 1) << "it has an owner still";
  pool.Drop(page);
  EXPECT_EQ(pool.num_free(), 2);
}

TEST(PagePool, WhatIsPromisedIsNotAvailable) {
  PagePool pool(3);
  pool.Reserve(2);
  EXPECT_EQ(pool.num_available(), 1);
  EXPECT_EQ(pool.num_free(), 3);
  pool.Unreserve(1);
  EXPECT_EQ(pool.num_available(), 2);
}

TEST(PagePoolDeath, MistakesOfTheCallerAreCaught) {
  PagePool pool(2);
  EXPECT_DEATH(pool.Take(), "0 reserved, 2 free");
  EXPECT_DEATH(pool.Reserve(3), "reserve 3 of 2");
  EXPECT_DEATH(pool.Unreserve(1), "unreserve 1 of 0");
  EXPECT_DEATH(pool.Drop(0), "page 0");
  EXPECT_DEATH(pool.Share(7), "page 7");
  pool.Reserve(1);
  const int32_t page = pool.Take();
  pool.Drop(page);
  EXPECT_DEATH(pool.Drop(page), "page");
}

TEST(PagePool, OwnersAndFreePagesAddUpUnderRandomUse) {
  std::mt19937 random(5);
  PagePool pool(20);
  std::vector<int32_t> held;  // one entry per owner
  int32_t promised = 0;
  for (int step = 0; step < 20000; ++step) {
    const uint32_t what = random() % 5;
    if (what == 0 && pool.num_available() > 0) {
      pool.Reserve(1);
      ++promised;
    } else if (what == 1 && promised > 0) {
      held.push_back(pool.Take());
      --promised;
    } else if (what == 2 && promised > 0) {
      pool.Unreserve(1);
      --promised;
    } else if (what == 3 && !held.empty() && held.size() < 60) {
      held.push_back(held[random() % held.size()]);
      pool.Share(held.back());
    } else if (what == 4 && !held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      pool.Drop(held.back());
      held.pop_back();
    }
    ASSERT_EQ(pool.CheckInvariants().ToString(), "OK");
    std::vector<int32_t> owners(20, 0);
    for (const int32_t page : held) ++owners[page];
    int32_t num_free = 0;
    for (int32_t page = 0; page < 20; ++page) {
      ASSERT_EQ(pool.owners(page), owners[page]);
      num_free += owners[page] == 0;
    }
    ASSERT_EQ(pool.num_free(), num_free);
    ASSERT_EQ(pool.num_reserved(), promised);
  }
}

}  // namespace
}  // namespace tandem
