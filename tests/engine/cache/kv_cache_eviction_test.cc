// Which pages go first, what goes with them, and retention.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "engine/cache/kv_cache.h"
#include "tests/engine/cache/kv_cache_harness.h"

namespace tandem::test {
namespace {

// Leaves the pages of `tokens` in the cache.
void Leave(KvCache* cache, const std::vector<int32_t>& tokens, Nanos retain_until = 0) {
  PageTable table = Compute(cache, tokens);
  cache->Release(&table, retain_until);
}

// A sequence that takes this many pages and is not in the index.
PageTable TakePages(KvCache* cache, int32_t num_pages) {
  const std::vector<int32_t> tokens(1, -1);
  std::vector<PageCopy> copies;
  KvCache::Admission admission = cache->Admit({tokens, 64 * num_pages, 1, false, ""}, &copies);
  TANDEM_CHECK(admission.tables.size() == 1) << "no " << num_pages << " pages";
  Write(cache, &admission.tables[0], 0, 64 * num_pages, 64 * num_pages);
  return std::move(admission.tables[0]);
}

// How many of the first pages of `tokens` are found.
int32_t Found(KvCache* cache, std::vector<int32_t> tokens) {
  tokens.push_back(-1);
  std::vector<PageCopy> copies;
  KvCache::Admission admission =
      cache->Admit({tokens, static_cast<int32_t>(tokens.size()), 1, true, ""}, &copies);
  TANDEM_CHECK(admission.tables.size() == 1) << "not admitted";
  cache->Release(&admission.tables[0], 0);
  return admission.cached_tokens / 64;
}

TEST(KvCacheEviction, PagesAreEvictedOnlyWhereNoneIsFree) {
  KvCache cache(Options({{0, 6}}));
  Leave(&cache, Tokens(192));
  EXPECT_EQ(cache.num_cached(), 3);
  EXPECT_EQ(cache.num_free(), 6);
  PageTable table = TakePages(&cache, 3);
  EXPECT_EQ(cache.num_cached(), 3);
  EXPECT_EQ(cache.counters().evicted_pages, 0);
  PageTable more = TakePages(&cache, 1);
  EXPECT_EQ(cache.num_cached(), 2);
  EXPECT_EQ(cache.counters().evicted_pages, 1);
  cache.Release(&table, 0);
  cache.Release(&more, 0);
}

TEST(KvCacheEviction, OfOneSequenceTheLastPageGoesFirst) {
  for (int32_t taken = 0; taken <= 4; ++taken) {
    KvCache cache(Options({{0, 5}}));
    Leave(&cache, Tokens(256));
    PageTable table = TakePages(&cache, 1 + taken);
    cache.Release(&table, 0);
    EXPECT_EQ(Found(&cache, Tokens(256)), 4 - taken);
  }
}

TEST(KvCacheEviction, TheLeastRecentlyUsedSequenceGoesFirst) {
  KvCache cache(Options({{0, 7}}));
  Leave(&cache, Tokens(128));
  Leave(&cache, Tokens(128, 1000));
  Leave(&cache, Tokens(128, 2000));
  EXPECT_EQ(Found(&cache, Tokens(128)), 2);  // used again, and the last page of it freed one
  PageTable table = TakePages(&cache, 3);
  cache.Release(&table, 0);
  EXPECT_EQ(Found(&cache, Tokens(128, 1000)), 0);
  EXPECT_EQ(Found(&cache, Tokens(128, 2000)), 2);
  EXPECT_EQ(Found(&cache, Tokens(128)), 2);
}

TEST(KvCacheEviction, AnEvictedPageTakesAllThatFollowItOutOfTheIndex) {
  KvCache cache(Options({{0, 9}}));
  // Both compute the same two pages, of which the index names those of `first`.
  PageTable first = std::move(Admit(&cache, Tokens(128), 128).tables[0]);
  PageTable second = std::move(Admit(&cache, Tokens(256), 256).tables[0]);
  Write(&cache, &first, 0, 128);
  Write(&cache, &second, 0, 256);
  cache.IndexPages(Tokens(128), &first);
  cache.IndexPages(Tokens(192), &second);
  EXPECT_EQ(cache.counters().indexed_pages, 3);
  EXPECT_EQ(cache.pool(0).node(Pages(second)[0]), -1);
  EXPECT_GE(cache.pool(0).node(Pages(second)[2]), 0);
  cache.Release(&first, 0);
  PageTable table = TakePages(&cache, 4);  // page 1 of the first goes
  EXPECT_EQ(cache.pool(0).node(Pages(second)[2]), -1) << "nobody finds it without page 1";
  EXPECT_EQ(cache.num_cached(), 1);
  EXPECT_EQ(Check(cache, {&second, &table}), "OK");
  // The next pages are indexed below pages of its own.
  cache.IndexPages(Tokens(256), &second);
  EXPECT_EQ(cache.pool(0).node(Pages(second)[0]), -1) << "page 0 of the first is there still";
  for (int32_t i = 1; i < 4; ++i) EXPECT_GE(cache.pool(0).node(Pages(second)[i]), 0) << i;
  EXPECT_EQ(Check(cache, {&second, &table}), "OK");
  cache.Release(&table, 0);
  EXPECT_EQ(Found(&cache, Tokens(256)), 4);
  cache.Release(&second, 0);
}

TEST(KvCacheEviction, ASequenceIsIndexedFromTheStartAfterItsWholePrefixWasEvicted) {
  KvCache cache(Options({{0, 9}}));
  PageTable first = std::move(Admit(&cache, Tokens(128), 128).tables[0]);
  PageTable second = std::move(Admit(&cache, Tokens(256), 256).tables[0]);
  Write(&cache, &first, 0, 128);
  Write(&cache, &second, 0, 256);
  cache.IndexPages(Tokens(128), &first);
  cache.IndexPages(Tokens(192), &second);
  cache.Release(&first, 0);
  PageTable table = TakePages(&cache, 5);
  EXPECT_EQ(cache.num_cached(), 0);
  cache.IndexPages(Tokens(256), &second);
  for (int32_t i = 0; i < 4; ++i) EXPECT_GE(cache.pool(0).node(Pages(second)[i]), 0) << i;
  cache.Release(&table, 0);
  EXPECT_EQ(Found(&cache, Tokens(256)), 4);
  cache.Release(&second, 0);
}

TEST(KvCacheEviction, B081_AnEvictedPageIsNotFoundUnderItsOldTokens) {
  KvCache cache(Options({{0, 3}}));
  PageTable table = Compute(&cache, Tokens(192));
  const std::vector<int32_t> old = Pages(table);
  cache.Release(&table, 0);
  table = TakePages(&cache, 2);
  for (const int32_t page : Pages(table)) EXPECT_EQ(cache.pool(0).node(page), -1);
  cache.Release(&table, 0);
  for (const int32_t page : {old[1], old[2]}) EXPECT_EQ(cache.pool(0).node(page), -1);
  EXPECT_EQ(cache.pool(0).num_free(), 2);
  EXPECT_EQ(CachedTokens(&cache, Tokens(192)), 64);
  // The same pages under other tokens.
  Leave(&cache, Tokens(192, 1000));
  EXPECT_EQ(CachedTokens(&cache, Tokens(192)), 0);
  EXPECT_EQ(CachedTokens(&cache, Tokens(192, 1000)), 128);
}

// Many prompts with forks through a small pool: after each, everything is available again.
TEST(KvCacheEviction, B089_AfterQuiescenceAllPagesAreAvailable) {
  KvCache cache(Options({{0, 12}, {64, 12}}));
  for (int32_t i = 0; i < 500; ++i) {
    const std::vector<int32_t> prompt = Tokens(129 + i % 64, i % 7 * 1000);
    KvCache::Admission admission = Admit(&cache, prompt, 256, 2);
    ASSERT_EQ(admission.tables.size(), 2u);
    const int32_t shared = static_cast<int32_t>(prompt.size()) - 1;
    Write(&cache, &admission.tables[0], admission.cached_tokens, shared, shared - 16);
    std::vector<PageCopy> copies;
    cache.Fork(shared, &admission.tables[0], &admission.tables[1], &copies);
    Write(&cache, &admission.tables[1], shared - 16, shared, shared - 16);
    Write(&cache, &admission.tables[1], shared, 256, 256);
    cache.IndexPages(std::span(prompt).first(shared), &admission.tables[0]);
    for (PageTable& table : admission.tables) cache.Release(&table, 0);
    ASSERT_EQ(cache.num_free(), cache.num_pages());
    for (const int32_t group : {0, 1}) ASSERT_EQ(cache.pool(group).num_available(), 12);
    ASSERT_EQ(Check(cache, {}), "OK");
  }
  EXPECT_GT(cache.counters().evicted_pages, 0);
  PageTable all = TakePages(&cache, 12);
  EXPECT_EQ(cache.num_cached(), cache.pool(1).num_cached());
  cache.Release(&all, 0);
}

// Every node has a page of the full group, and every root has a node: there are never more nodes
// than twice the pages, and their places are used again.
TEST(KvCacheEviction, TheIndexGrowsNoLargerThanThePool) {
  KvCache cache(Options({{0, 10}}));
  int32_t largest = 0;
  for (int32_t i = 0; i < 300; ++i) {
    PageTable table = Compute(&cache, Tokens(256, i * 1000), std::to_string(i));
    for (const int32_t page : Pages(table)) largest = std::max(largest, cache.pool(0).node(page));
    cache.Release(&table, 0);
  }
  EXPECT_LT(largest, 2 * 10);
}

TEST(KvCacheEviction, RetainedPagesGoAfterAllOthers) {
  KvCache cache(Options({{0, 5}}));
  Leave(&cache, Tokens(128), 100);
  Leave(&cache, Tokens(128, 1000));
  PageTable table = TakePages(&cache, 3);
  EXPECT_EQ(cache.num_cached(), 2);
  cache.Release(&table, 0);
  EXPECT_EQ(Found(&cache, Tokens(128)), 2);
  EXPECT_EQ(Found(&cache, Tokens(128, 1000)), 0);
}

TEST(KvCacheEviction, RetentionIsNoPromiseWhereNothingElseIsLeft) {
  KvCache cache(Options({{0, 2}}));
  Leave(&cache, Tokens(128), 100);
  EXPECT_EQ(cache.pool(0).num_available(), 2);
  PageTable table = TakePages(&cache, 2);
  EXPECT_EQ(cache.num_cached(), 0);
  cache.Release(&table, 0);
}

TEST(KvCacheEviction, RetainedPagesAreLikeOthersAfterTheirTime) {
  for (const Nanos now : {99, 100}) {
    KvCache cache(Options({{0, 5}}));
    Leave(&cache, Tokens(128), 100);
    cache.ExpireRetained(now);
    Leave(&cache, Tokens(128, 1000));
    PageTable table = TakePages(&cache, 3);
    cache.Release(&table, 0);
    EXPECT_EQ(Found(&cache, Tokens(128)), now < 100 ? 2 : 0);
  }
}

TEST(KvCacheEviction, ThePagesOfALiveSequenceAreRetainedForWhoeverLeavesThem) {
  KvCache cache(Options({{0, 7}}));
  PageTable first = Compute(&cache, Tokens(128));
  PageTable second = Compute(&cache, Tokens(129));
  cache.Release(&first, 100);
  EXPECT_EQ(cache.num_cached(), 0) << "the second has them";
  cache.Release(&second, 0);
  Leave(&cache, Tokens(128, 1000));
  PageTable table = TakePages(&cache, 5);
  cache.Release(&table, 0);
  EXPECT_EQ(Found(&cache, Tokens(128)), 2);
}

// Else the first that goes, the first page of the sequence, takes all others with it.
TEST(KvCacheEviction, OfOneRetainedSequenceTheLastPageGoesFirst) {
  for (int32_t taken = 0; taken <= 4; ++taken) {
    KvCache cache(Options({{0, 5}}));
    Leave(&cache, Tokens(256), 100);
    PageTable table = TakePages(&cache, 1 + taken);
    cache.Release(&table, 0);
    EXPECT_EQ(Found(&cache, Tokens(256)), 4 - taken);
  }
}

TEST(KvCacheEviction, OfOneSequenceWhoseRetentionPassedTheLastPageGoesFirst) {
  for (int32_t taken = 0; taken <= 4; ++taken) {
    KvCache cache(Options({{0, 5}}));
    Leave(&cache, Tokens(256), 100);
    cache.ExpireRetained(100);
    PageTable table = TakePages(&cache, 1 + taken);
    cache.Release(&table, 0);
    EXPECT_EQ(Found(&cache, Tokens(256)), 4 - taken);
  }
}

}  // namespace
}  // namespace tandem::test
