// Window groups: what they hold, what a fork or a hit copies, and how they limit a hit.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "engine/cache/kv_cache.h"
#include "tests/engine/cache/kv_cache_harness.h"

namespace tandem::test {
namespace {

// Computes all of `tokens` as a prompt, 64 at a time, indexing each page when it is whole: what
// leaves the window stays in the index. Without rewinds ahead.
PageTable ComputeSlowly(KvCache* cache, const std::vector<int32_t>& tokens) {
  const int32_t length = static_cast<int32_t>(tokens.size());
  KvCache::Admission admission = Admit(cache, tokens, length);
  TANDEM_CHECK(admission.tables.size() == 1) << "no pages for " << length << " tokens";
  PageTable table = std::move(admission.tables[0]);
  std::vector<PageCopy> copies;
  for (int32_t from = admission.cached_tokens; from < length; from += 64) {
    const int32_t to = std::min(from + 64, length);
    cache->PrepareWrite(from, to, from, from, &table, &copies);
    cache->IndexPages(std::span(tokens).first(to), &table);
  }
  return table;
}

TEST(KvCacheWindow, AWindowGroupUsesItsOwnOldPagesAgain) {
  // 31 + 17 + 16 positions touch 2 pages, one more can touch 3.
  EXPECT_EQ(KvCache::WindowPages(32, 16, 16), 2);
  EXPECT_EQ(KvCache::WindowPages(34, 16, 16), 3);
  KvCache cache(Options({{0, 20}, {32, 2}}, 16, 16));
  std::vector<PageTable> tables = Admit(&cache, Tokens(100), 1000).tables;
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(Reserved(tables[0], 0), 16);
  EXPECT_EQ(Reserved(tables[0], 1), 2);
  std::vector<PageCopy> copies;
  for (int32_t from = 0; from + 16 <= 1000; from += from == 0 ? 15 : 16) {
    const int32_t lowest_row = std::max(0, from - 16 - 1);
    cache.PrepareWrite(from, from + 16, from, lowest_row, &tables[0], &copies);
    // Everything that row lowest_row can see is held.
    for (int32_t position = std::max(0, lowest_row - 31); position < from + 16; ++position) {
      ASSERT_GE(Pages(tables[0], 1)[position / 64], 0) << position << " at " << from;
    }
  }
  EXPECT_EQ(cache.pool(1).num_free(), 0);
  EXPECT_EQ(cache.pool(0).num_free(), 20 - 16);
  EXPECT_TRUE(copies.empty());
  cache.Release(&tables[0], 0);
  EXPECT_EQ(cache.num_free(), 22);
}

// From every first row, every rewind within the bound, every alignment: never more pages than said.
TEST(KvCacheWindow, WindowPagesSufficeOnEveryAlignment) {
  for (const int32_t window : {1, 2, 63, 64, 65, 128}) {
    for (const int32_t max_rewind : {0, 1, 63, 64, 100}) {
      for (const int32_t step : {1, 2, 64, 130}) {
        int32_t most = 0;
        for (int32_t longest = 1000; longest < 1064; ++longest) {
          const int32_t first = (longest - max_rewind - 1 - window + 1) / 64;
          most = std::max(most, (longest + step - 1) / 64 - first + 1);
        }
        EXPECT_EQ(KvCache::WindowPages(window, max_rewind, step), most)
            << window << " " << max_rewind << " " << step;
      }
    }
  }
}

TEST(KvCacheWindow, AnIndexedPageThatLeavesTheWindowBecomesAPromise) {
  KvCache cache(Options({{0, 20}, {64, 10}}, 0));
  const std::vector<int32_t> tokens = Tokens(384);
  PageTable table = ComputeSlowly(&cache, tokens);
  EXPECT_EQ(table.groups()[1].num_dropped, 4);
  EXPECT_TRUE(table.groups()[1].spare.empty());
  EXPECT_EQ(Reserved(table, 1), 1);
  EXPECT_EQ(cache.pool(1).num_cached(), 4);
  EXPECT_EQ(cache.pool(1).num_available(), 10 - 3);
  EXPECT_EQ(Check(cache, {&table}), "OK");
  cache.Release(&table, 0);
  EXPECT_EQ(cache.pool(1).num_cached(), 6);
}

TEST(KvCacheWindow, AForkCopiesTheWindow) {
  KvCache cache(Options({{0, 20}, {64, 20}}, 16));
  std::vector<PageTable> tables = Admit(&cache, Tokens(300), 400, 2).tables;
  Write(&cache, &tables[0], 0, 299, 300 - 16 - 1);
  std::vector<PageCopy> copies;
  cache.Fork(299, &tables[0], &tables[1], &copies);
  const std::vector<int32_t>& leader = Pages(tables[0], 1);
  const std::vector<int32_t>& other = Pages(tables[1], 1);
  ASSERT_EQ(other.size(), 5u);
  std::erase_if(copies, [](const PageCopy& copy) { return copy.group != 1; });
  ASSERT_EQ(copies.size(), 2u);
  for (const auto& [page, num_tokens] : {std::pair{3, 64}, {4, 299 - 256}}) {
    const PageCopy& copy = copies[page - 3];
    EXPECT_EQ(copy.from, leader[page]);
    EXPECT_EQ(copy.to, other[page]);
    EXPECT_EQ(copy.num_tokens, num_tokens);
    EXPECT_NE(leader[page], other[page]);
  }
  for (int32_t page = 0; page < 3; ++page) EXPECT_EQ(other[page], -1);
  EXPECT_EQ(cache.pool(1).num_copies(), 0);
  EXPECT_EQ(Check(cache, {&tables[0], &tables[1]}), "OK");
  for (PageTable& table : tables) cache.Release(&table, 0);
}

TEST(KvCacheWindow, AHitCopiesTheWindowOfALiveSequence) {
  KvCache cache(Options({{0, 20}, {64, 20}}, 0));
  PageTable first = ComputeSlowly(&cache, Tokens(384));
  std::vector<PageCopy> copies;
  KvCache::Admission hit = Admit(&cache, Tokens(385), 500, 1, "", &copies);
  ASSERT_EQ(hit.cached_tokens, 384);
  PageTable& second = hit.tables[0];
  EXPECT_EQ(Pages(second, 0), Pages(first, 0));
  ASSERT_EQ(copies.size(), 1u) << "row 384 reads from 321 on";
  EXPECT_EQ(copies[0].group, 1);
  EXPECT_EQ(copies[0].from, Pages(first, 1)[5]);
  EXPECT_EQ(copies[0].to, Pages(second, 1)[5]);
  EXPECT_EQ(copies[0].num_tokens, 64);
  EXPECT_EQ(second.groups()[1].num_dropped, 5);
  EXPECT_EQ(cache.pool(1).owners(Pages(first, 1)[5]), 1);
  EXPECT_EQ(Check(cache, {&first, &second}), "OK");
  Write(&cache, &second, 384, 500, 500);
  cache.Release(&first, 0);
  cache.Release(&second, 0);
}

TEST(KvCacheWindow, AHitAlsoNeedsWhatARewindReads) {
  KvCache cache(Options({{0, 20}, {64, 20}}, 100));
  PageTable first = ComputeSlowly(&cache, Tokens(384));
  std::vector<PageCopy> copies;
  KvCache::Admission hit = Admit(&cache, Tokens(385), 500, 1, "", &copies);
  ASSERT_EQ(hit.cached_tokens, 384);
  EXPECT_EQ(copies.size(), 3u) << "row 284 reads from 221 on";
  EXPECT_EQ(hit.tables[0].groups()[1].num_dropped, 3);
  std::vector<PageCopy> more;
  cache.PrepareWrite(284, 348, 284, 284, &hit.tables[0], &more);
  cache.Release(&first, 0);
  cache.Release(&hit.tables[0], 0);
}

// Where no page is free, the cached page itself is taken and leaves the index.
TEST(KvCacheWindow, AHitTakesCachedPagesInPlaceWhereNoneIsFree) {
  KvCache cache(Options({{0, 20}, {64, 3}}, 0));
  PageTable first = ComputeSlowly(&cache, Tokens(384));
  cache.Release(&first, 0);
  EXPECT_EQ(cache.pool(1).num_free(), 0);
  std::vector<PageCopy> copies;
  KvCache::Admission hit = Admit(&cache, Tokens(385), 448, 1, "", &copies);
  ASSERT_EQ(hit.cached_tokens, 384);
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(cache.pool(1).node(Pages(hit.tables[0], 1)[5]), -1);
  EXPECT_EQ(Check(cache, {&hit.tables[0]}), "OK");
  cache.Release(&hit.tables[0], 0);
  EXPECT_EQ(CachedTokens(&cache, Tokens(385)), 320) << "page 5 is gone, page 4 is not";
}

// The pages of the hit are more than are free: copies first, then in place, and no page of the hit
// is evicted for another.
TEST(KvCacheWindow, AHitOfCachedAndLivePagesEvictsNoneOfItsOwn) {
  for (int32_t num_pages = 7; num_pages <= 14; ++num_pages) {
    // Window 200, max_rewind 0, step 64: 6 pages for a sequence; a hit needs 4.
    KvCache cache(Options({{0, 40}, {200, num_pages}}, 0));
    PageTable first = ComputeSlowly(&cache, Tokens(384));
    std::vector<PageCopy> copies;
    KvCache::Admission hit = Admit(&cache, Tokens(385), 640, 1, "", &copies);
    if (hit.tables.empty()) {
      cache.Release(&first, 0);
      hit = Admit(&cache, Tokens(385), 640, 1, "", &copies);
    }
    ASSERT_EQ(hit.tables.size(), 1u);
    PageTable& second = hit.tables[0];
    EXPECT_EQ(hit.cached_tokens, 384);
    for (int32_t page = 2; page < 6; ++page) EXPECT_GE(Pages(second, 1)[page], 0);
    std::vector<const PageTable*> tables = {&second};
    if (!first.groups().empty()) tables.push_back(&first);
    EXPECT_EQ(Check(cache, tables), "OK");
    Write(&cache, &second, 384, 640, 640);
    for (PageTable* table : {&first, &second}) cache.Release(table, 0);
  }
}

// The pool has no more than the window: its old pages go as the sequence grows.
TEST(KvCacheWindow, AWindowThatIsGoneLimitsTheHit) {
  KvCache cache(Options({{0, 20}, {64, 3}}, 0));
  PageTable table = ComputeSlowly(&cache, Tokens(384));
  cache.Release(&table, 0);
  EXPECT_EQ(cache.pool(0).num_cached(), 6);
  EXPECT_EQ(cache.pool(1).num_cached(), 3);
  EXPECT_EQ(CachedTokens(&cache, Tokens(129)), 0) << "page 1 of the window group is gone";
  EXPECT_EQ(CachedTokens(&cache, Tokens(385)), 384);
}

TEST(KvCacheWindow, APageOfAWindowGroupThatIsWrittenAgainLimitsTheHit) {
  KvCache cache(Options({{0, 20}, {64, 20}}, 100));
  PageTable first = ComputeSlowly(&cache, Tokens(384));
  PageTable second = std::move(Admit(&cache, Tokens(385), 385).tables[0]);
  // The full group's page has two owners and stays in the index.
  Write(&cache, &first, 330, 331, 285);
  EXPECT_GE(cache.pool(0).node(Pages(second, 0)[5]), 0);
  EXPECT_EQ(CachedTokens(&cache, Tokens(385)), 320);
  cache.Release(&first, 0);
  cache.Release(&second, 0);
}

TEST(KvCacheWindow, ReuseDropsWhatTheWindowLeavesBehind) {
  KvCache cache(Options({{0, 20}, {64, 20}}, 0));
  PageTable late = std::move(Admit(&cache, Tokens(385), 448).tables[0]);
  std::vector<PageCopy> copies;
  cache.PrepareWrite(0, 64, 0, 0, &late, &copies);
  cache.IndexPages(Tokens(64), &late);
  PageTable early = ComputeSlowly(&cache, Tokens(384));
  EXPECT_EQ(cache.Reuse(Tokens(385), 64, &late, &copies), 384);
  EXPECT_EQ(late.groups()[1].num_dropped, 5);
  EXPECT_EQ(Pages(late, 1).size(), 6u);
  EXPECT_EQ(Check(cache, {&late, &early}), "OK");
  Write(&cache, &late, 384, 448, 448);
  cache.Release(&late, 0);
  cache.Release(&early, 0);
}

// Without a full group nodes may outlive their pages, as long as a later node has one.
TEST(KvCacheWindow, WindowGroupsAloneAreFoundByTheirLastPages) {
  KvCache cache(Options({{64, 3}}, 0));
  PageTable table = ComputeSlowly(&cache, Tokens(384));
  cache.Release(&table, 0);
  EXPECT_EQ(CachedTokens(&cache, Tokens(129)), 0);
  KvCache::Admission hit = Admit(&cache, Tokens(385), 448);
  ASSERT_EQ(hit.cached_tokens, 384);
  Write(&cache, &hit.tables[0], 384, 448, 448);
  cache.IndexPages(Tokens(448), &hit.tables[0]);
  EXPECT_EQ(Check(cache, {&hit.tables[0]}), "OK");
  cache.Release(&hit.tables[0], 0);
  EXPECT_EQ(CachedTokens(&cache, Tokens(449)), 448);
}

// The places of nodes that lost their last page are used again, without a full group too.
TEST(KvCacheWindow, TheIndexOfWindowGroupsAloneDoesNotGrowWithThePromptsSeen) {
  KvCache cache(Options({{64, 6}}, 0));
  int32_t largest = 0;
  for (int32_t i = 0; i < 100; ++i) {
    PageTable table = ComputeSlowly(&cache, Tokens(384, 1000 * i));
    for (const int32_t page : Pages(table)) {
      if (page >= 0) largest = std::max(largest, cache.pool(0).node(page));
    }
    cache.Release(&table, 0);
  }
  EXPECT_LT(largest, 6 * 6 + 6) << "six nodes for each page that is named, and six on their way";
}

TEST(KvCacheWindow, PagesThatLeftTheWindowBeforeTheyWereFinalLeaveNoNodes) {
  KvCache cache(Options({{64, 6}}, 0));
  int32_t largest = 0;
  for (int32_t i = 0; i < 100; ++i) {
    const std::vector<int32_t> tokens = Tokens(384, 1000 * i);
    PageTable table = std::move(Admit(&cache, tokens, 384, 1, std::to_string(i)).tables[0]);
    Write(&cache, &table, 0, 384, 384);
    cache.IndexPages(std::span(tokens).first(192), &table);
    cache.Release(&table, 0);
    table = std::move(Admit(&cache, std::span(tokens).first(64), 64).tables[0]);
    Write(&cache, &table, 0, 64);
    cache.IndexPages(std::span(tokens).first(64), &table);
    largest = std::max(largest, cache.pool(0).node(Pages(table)[0]));
    cache.Release(&table, 0);
  }
  EXPECT_LT(largest, 20);
}

}  // namespace
}  // namespace tandem::test
