#include "engine/cache/page_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace tandem::test {
namespace {

int32_t TakeOne(PagePool* pool) {
  pool->Reserve(1);
  return pool->Take();
}

// A page that the index names, without an owner.
int32_t CacheOne(PagePool* pool, int32_t node, Nanos retain_until = 0) {
  const int32_t page = TakeOne(pool);
  pool->SetNode(page, node);
  if (retain_until > 0) pool->Retain(page, retain_until);
  pool->Drop(page, true);
  return page;
}

// Gives up cached pages until none is left; returns them in that order.
std::vector<int32_t> EvictAll(PagePool* pool) {
  std::vector<int32_t> order;
  while (pool->Oldest() >= 0) {
    order.push_back(pool->Oldest());
    pool->SetNode(order.back(), -1);
  }
  return order;
}

TEST(PagePool, ATakenPageHasOneOwnerAndIsFreeAfterTheLastDrop) {
  PagePool pool(2);
  pool.Reserve(2);
  const int32_t page = pool.Take();
  EXPECT_EQ(pool.owners(page), 1);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.num_reserved(), 1);
  pool.Share(page, true);
  pool.Drop(page, true);
  EXPECT_EQ(pool.num_free(), 1) << "it has an owner still";
  pool.Drop(page, true);
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

TEST(PagePool, APageCarriesACopyForEachUnsettledOwnerButTheLastOwnerOfAll) {
  for (int32_t owners = 1; owners <= 5; ++owners) {
    for (int32_t unsettled = 1; unsettled <= owners; ++unsettled) {
      PagePool pool(10);
      pool.Reserve(10);
      const int32_t page = pool.Take();
      for (int32_t i = 1; i < owners; ++i) pool.Share(page, i < unsettled);
      EXPECT_EQ(pool.num_copies(), std::min(owners - 1, unsettled)) << owners << " " << unsettled;
      EXPECT_EQ(pool.num_reserved() + pool.num_copies(), 9) << "the owners' promises pay";
      EXPECT_EQ(pool.CheckInvariants().ToString(), "OK");
    }
  }
}

TEST(PagePool, ASettledOwnerBringsACopyOnlyWhereEveryOtherIsUnsettled) {
  PagePool pool(4);
  pool.Reserve(3);
  const int32_t page = pool.Take();
  EXPECT_EQ(pool.CopiesOfShare(page, false), 1) << "the first may write while the other reads";
  pool.Share(page, false);
  EXPECT_EQ(pool.CopiesOfShare(page, false), 0);
  EXPECT_EQ(pool.CopiesOfShare(page, true), 1);
}

TEST(PagePool, TheLastUnsettledOwnerThatSettlesGivesTheCopyBack) {
  PagePool pool(4);
  pool.Reserve(3);
  const int32_t page = pool.Take();
  pool.Share(page, true);
  EXPECT_EQ(pool.num_copies(), 1);
  pool.Settle(page);
  EXPECT_EQ(pool.num_copies(), 1) << "the other may write still";
  pool.Settle(page);
  EXPECT_EQ(pool.num_copies(), 0);
}

TEST(PagePool, TheCopyGoesWithTheOwnerThatLeavesTheOtherAlone) {
  for (const bool settled_leaves : {false, true}) {
    PagePool pool(4);
    pool.Reserve(2);
    const int32_t page = pool.Take();
    pool.Share(page, false);
    EXPECT_EQ(pool.num_available(), 2);
    pool.Drop(page, !settled_leaves);
    EXPECT_EQ(pool.num_copies(), 0);
    EXPECT_EQ(pool.num_available(), 3);
    EXPECT_EQ(pool.CheckInvariants().ToString(), "OK");
  }
}

TEST(PagePool, ANamedPageWithoutOwnersIsCachedAndAvailable) {
  PagePool pool(2);
  const int32_t page = CacheOne(&pool, 5);
  EXPECT_EQ(pool.node(page), 5);
  EXPECT_EQ(pool.num_cached(), 1);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.num_available(), 2);
  pool.SetNode(page, -1);
  EXPECT_EQ(pool.num_cached(), 0);
  EXPECT_EQ(pool.num_free(), 2);
}

TEST(PagePool, AShareOfACachedPageBringsNoCopyButTakesWhatWasAvailable) {
  PagePool pool(2);
  const int32_t page = CacheOne(&pool, 5);
  EXPECT_EQ(pool.CopiesOfShare(page, true), 0);
  pool.Share(page, true);
  EXPECT_EQ(pool.owners(page), 1);
  EXPECT_EQ(pool.num_cached(), 0);
  EXPECT_EQ(pool.num_available(), 1);
}

TEST(PagePool, AnOwnedPageThatIsUnnamedIsFreeOnlyAfterItsOwner) {
  PagePool pool(1);
  const int32_t page = TakeOne(&pool);
  pool.SetNode(page, 3);
  pool.SetNode(page, -1);
  EXPECT_EQ(pool.num_free(), 0);
  pool.Drop(page, true);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.num_cached(), 0);
}

TEST(PagePool, CachedPagesStandInTheOrderInWhichTheirLastOwnerLeft) {
  PagePool pool(4);
  const int32_t a = CacheOne(&pool, 1);
  const int32_t b = CacheOne(&pool, 2);
  const int32_t c = CacheOne(&pool, 3);
  pool.Share(a, true);
  pool.Drop(a, true);
  EXPECT_EQ(EvictAll(&pool), (std::vector<int32_t>{b, c, a}));
}

TEST(PagePool, APageLeavesTheMiddleOfTheOrder) {
  PagePool pool(4);
  const int32_t a = CacheOne(&pool, 1);
  const int32_t b = CacheOne(&pool, 2);
  const int32_t c = CacheOne(&pool, 3);
  pool.Share(b, true);
  EXPECT_EQ(pool.CheckInvariants().ToString(), "OK");
  EXPECT_EQ(EvictAll(&pool), (std::vector<int32_t>{a, c}));
}

TEST(PagePool, RetainedPagesComeAfterAllOthersByTheirTimes) {
  PagePool pool(4);
  const int32_t late = CacheOne(&pool, 1, 200);
  const int32_t early = CacheOne(&pool, 2, 100);
  const int32_t plain = CacheOne(&pool, 3);
  EXPECT_EQ(EvictAll(&pool), (std::vector<int32_t>{plain, early, late}));
}

TEST(PagePool, ALaterTimeReplacesAnEarlierOneAndNotTheOtherWayRound) {
  PagePool pool(4);
  const int32_t a = CacheOne(&pool, 1, 100);
  const int32_t b = CacheOne(&pool, 2, 200);
  pool.Retain(a, 300);
  pool.Retain(b, 50);
  pool.ExpireRetained(199);
  const int32_t plain = CacheOne(&pool, 3);
  EXPECT_EQ(EvictAll(&pool), (std::vector<int32_t>{plain, b, a}));
}

TEST(PagePool, ARetentionEndsAtItsTime) {
  PagePool pool(4);
  const int32_t retained = CacheOne(&pool, 1, 100);
  pool.ExpireRetained(99);
  const int32_t first = CacheOne(&pool, 2);
  EXPECT_EQ(pool.Oldest(), first);
  pool.ExpireRetained(100);
  const int32_t second = CacheOne(&pool, 3);
  EXPECT_EQ(EvictAll(&pool), (std::vector<int32_t>{first, retained, second}));
}

TEST(PagePool, ARetentionEndsWithTheName) {
  PagePool pool(2);
  const int32_t page = CacheOne(&pool, 1, 100);
  pool.SetNode(page, -1);
  EXPECT_EQ(CacheOne(&pool, 2), page);
  const int32_t other = CacheOne(&pool, 3);
  EXPECT_EQ(EvictAll(&pool), (std::vector<int32_t>{page, other}));
}

TEST(PagePool, ARetentionThatPassedWhileThePageWasInUseCountsNoMore) {
  PagePool pool(2);
  const int32_t page = CacheOne(&pool, 1, 100);
  pool.Share(page, true);
  pool.ExpireRetained(200);
  pool.Drop(page, true);
  const int32_t later = CacheOne(&pool, 2);
  EXPECT_EQ(EvictAll(&pool), (std::vector<int32_t>{page, later}));
}

TEST(PagePoolDeath, MistakesOfTheCallerAreCaught) {
  PagePool pool(2);
  EXPECT_DEATH(pool.Take(), "0 reserved, 2 free");
  EXPECT_DEATH(pool.Reserve(3), "reserve 3 of 2");
  EXPECT_DEATH(pool.Unreserve(1), "unreserve 1 of 0");
  EXPECT_DEATH(pool.Drop(0, true), "page 0");
  EXPECT_DEATH(pool.Share(7, true), "page 7");
  EXPECT_DEATH(pool.Share(0, true), "page 0") << "it is free";
  EXPECT_DEATH(pool.Settle(0), "page 0 has no unsettled owner");
  EXPECT_DEATH(pool.Retain(0, 5), "page 0 is not in the index");
  const int32_t page = TakeOne(&pool);
  EXPECT_DEATH(pool.Share(page, true), "1 copies of 0 reserved");
  pool.Drop(page, true);
  EXPECT_DEATH(pool.Drop(page, true), "page");
}

// Owners with their flags, names and the order of cached pages, kept plainly.
class PoolModel final {
 public:
  static constexpr int32_t kPages = 20;

  explicit PoolModel(uint32_t seed) : random_(seed), pages_(kPages) {}

  void Step() {
    ++now_;
    const int32_t page = static_cast<int32_t>(random_() % kPages);
    Page& entry = pages_[page];
    const bool unsettled = random_() % 2 == 0;
    switch (random_() % 8) {
      case 0:
        if (pool_.num_available() > 0) Promise(1);
        break;
      case 1:
        if (reserved_ > 0) Promise(-1);
        break;
      case 2:
        Take();
        break;
      case 3:
        if ((!entry.unsettled.empty() || entry.node >= 0) && entry.unsettled.size() < 5 &&
            pool_.CopiesOfShare(page, unsettled) <= reserved_ &&
            (!entry.unsettled.empty() || pool_.num_available() > 0)) {
          reserved_ -= pool_.CopiesOfShare(page, unsettled);
          pool_.Share(page, unsettled);
          entry.unsettled.push_back(unsettled);
        }
        break;
      case 4:
      case 5:
        if (!entry.unsettled.empty()) {
          pool_.Drop(page, entry.unsettled.back());
          entry.unsettled.pop_back();
          entry.left_at = now_;
        }
        break;
      case 6:
        if (auto it = std::find(entry.unsettled.begin(), entry.unsettled.end(), true);
            it != entry.unsettled.end()) {
          pool_.Settle(page);
          *it = false;
        }
        break;
      case 7:
        if (!entry.unsettled.empty()) SetNode(page, entry.node < 0 ? page : -1);
        break;
    }
    Compare();
  }

 private:
  struct Page {
    std::vector<bool> unsettled;  // of each owner
    int32_t node = -1;
    int64_t left_at = 0;
  };

  void Promise(int32_t pages) {
    reserved_ += pages;
    pages > 0 ? pool_.Reserve(pages) : pool_.Unreserve(-pages);
  }

  void SetNode(int32_t page, int32_t node) {
    pool_.SetNode(page, node);
    pages_[page].node = node;
  }

  // A promise is always kept.
  void Take() {
    if (reserved_ == 0) return;
    if (pool_.num_free() == 0) SetNode(pool_.Oldest(), -1);
    const int32_t page = pool_.Take();
    --reserved_;
    ASSERT_TRUE(pages_[page].unsettled.empty() && pages_[page].node < 0);
    pages_[page].unsettled.push_back(true);
  }

  void Compare() const {
    ASSERT_EQ(pool_.CheckInvariants().ToString(), "OK");
    int32_t num_free = 0, copies = 0;
    std::map<int64_t, int32_t> cached;
    for (int32_t page = 0; page < kPages; ++page) {
      const Page& entry = pages_[page];
      const int32_t owners = static_cast<int32_t>(entry.unsettled.size());
      ASSERT_EQ(pool_.owners(page), owners);
      ASSERT_EQ(pool_.node(page), entry.node);
      num_free += owners == 0 && entry.node < 0;
      if (owners == 0 && entry.node >= 0) cached.emplace(entry.left_at, page);
      const auto unsettled = std::count(entry.unsettled.begin(), entry.unsettled.end(), true);
      copies += std::min<int32_t>(std::max(0, owners - 1), unsettled);
    }
    ASSERT_EQ(pool_.num_free(), num_free);
    ASSERT_EQ(pool_.num_cached(), static_cast<int32_t>(cached.size()));
    ASSERT_EQ(pool_.num_copies(), copies);
    ASSERT_EQ(pool_.num_reserved(), reserved_);
    ASSERT_GE(pool_.num_available(), 0);
    ASSERT_EQ(pool_.Oldest(), cached.empty() ? -1 : cached.begin()->second);
  }

  std::mt19937 random_;
  PagePool pool_{kPages};
  std::vector<Page> pages_;
  int32_t reserved_ = 0;
  int64_t now_ = 0;
};

TEST(PagePool, OwnersPromisesAndOrderAddUpUnderRandomUse) {
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    PoolModel model(seed);
    for (int step = 0; step < 10000 && !testing::Test::HasFatalFailure(); ++step) model.Step();
  }
}

}  // namespace
}  // namespace tandem::test
