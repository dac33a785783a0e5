// Hits: what is found, what it costs, and what a rewind does to it.
#include <gtest/gtest.h>

#include <utility>

#include "engine/cache/kv_cache.h"
#include "tests/engine/cache/kv_cache_harness.h"

namespace tandem::test {
namespace {

std::vector<int32_t> Concat(std::vector<int32_t> head, const std::vector<int32_t>& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

TEST(KvCachePrefix, AHitIsWholePagesAndLeavesARowForTheLogits) {
  KvCache cache(Options({{0, 20}}));
  PageTable first = Compute(&cache, Tokens(192));
  for (const auto& [prompt, expected] : {std::pair{1, 0},
                                         {63, 0},
                                         {64, 0},
                                         {65, 64},
                                         {128, 64},
                                         {129, 128},
                                         {192, 128},
                                         {193, 192},
                                         {300, 192}}) {
    EXPECT_EQ(CachedTokens(&cache, Tokens(prompt)), expected) << prompt;
  }
  cache.Release(&first, 0);
}

TEST(KvCachePrefix, AHitEndsWhereTheTokensDiffer) {
  KvCache cache(Options({{0, 20}}));
  PageTable first = Compute(&cache, Tokens(192));
  EXPECT_EQ(CachedTokens(&cache, Concat(Tokens(127), {-1, -1, -1})), 64);
  EXPECT_EQ(CachedTokens(&cache, Concat(Tokens(128), Tokens(80))), 128);
  EXPECT_EQ(CachedTokens(&cache, Concat(Tokens(64), Concat(Tokens(64), Tokens(64)))), 64);
  EXPECT_EQ(CachedTokens(&cache, Tokens(192, 64)), 0) << "the tokens of page 1 are no prefix";
  cache.Release(&first, 0);
}

TEST(KvCachePrefix, NoMoreIsFoundThanTheRequestTakes) {
  KvCache cache(Options({{0, 20}}));
  const std::vector<int32_t> prompt = Tokens(200);
  PageTable first = Compute(&cache, prompt);
  for (const auto& [most, expected] :
       {std::pair{0, 0}, {63, 0}, {64, 64}, {127, 64}, {128, 128}, {199, 192}, {500, 192}}) {
    std::vector<PageCopy> copies;
    KvCache::Admission got = cache.Admit({prompt, 200, 1, true, "", most}, &copies);
    EXPECT_EQ(got.cached_tokens, expected) << most;
    cache.Release(&got.tables[0], 0);
  }
  cache.Release(&first, 0);
}

TEST(KvCachePrefix, OnlyFinalTokensAreIndexed) {
  KvCache cache(Options({{0, 20}}));
  PageTable table = std::move(Admit(&cache, Tokens(200), 200).tables[0]);
  Write(&cache, &table, 0, 200);
  cache.IndexPages(Tokens(127), &table);
  EXPECT_EQ(cache.counters().indexed_pages, 1);
  EXPECT_EQ(CachedTokens(&cache, Tokens(193)), 64);
  cache.IndexPages(Tokens(192), &table);
  EXPECT_EQ(cache.counters().indexed_pages, 3);
  EXPECT_EQ(CachedTokens(&cache, Tokens(193)), 192);
  cache.Release(&table, 0);
}

TEST(KvCachePrefix, AnotherSaltFindsNothing) {
  KvCache cache(Options({{0, 20}}));
  PageTable first = Compute(&cache, Tokens(128), "a");
  EXPECT_EQ(CachedTokens(&cache, Tokens(129), "b"), 0);
  EXPECT_EQ(CachedTokens(&cache, Tokens(129), ""), 0);
  EXPECT_EQ(CachedTokens(&cache, Tokens(129), "a"), 128);
  cache.Release(&first, 0);
  EXPECT_EQ(CachedTokens(&cache, Tokens(129), "b"), 0);
}

TEST(KvCachePrefix, ARequestWithoutTheIndexNeitherFindsNorIsFound) {
  KvCache cache(Options({{0, 20}}));
  std::vector<PageCopy> copies;
  const std::vector<int32_t> prompt = Tokens(129);
  PageTable hidden = std::move(cache.Admit({prompt, 129, 1, false, ""}, &copies).tables[0]);
  Write(&cache, &hidden, 0, 129);
  cache.IndexPages(prompt, &hidden);
  EXPECT_EQ(CachedTokens(&cache, prompt), 0);
  PageTable shown = Compute(&cache, prompt);
  KvCache::Admission other = cache.Admit({prompt, 129, 1, false, ""}, &copies);
  EXPECT_EQ(other.cached_tokens, 0);
  cache.Release(&hidden, 0);
  cache.Release(&shown, 0);
  cache.Release(&other.tables[0], 0);
}

TEST(KvCachePrefix, WithoutThePrefixIndexNothingIsFound) {
  CacheOptions options = Options({{0, 20}});
  options.prefix_index = false;
  KvCache cache(options);
  PageTable first = Compute(&cache, Tokens(128));
  EXPECT_EQ(CachedTokens(&cache, Tokens(129)), 0);
  cache.Release(&first, 0);
  EXPECT_EQ(cache.num_cached(), 0);
  EXPECT_EQ(cache.counters().lookups, 0);
}

// Every page of every prompt has the same hash.
TEST(KvCachePrefix, B077_CollisionsNeverGiveAnotherPromptsPages) {
  CacheOptions options = Options({{0, 40}});
  options.hash_mask = 0;
  KvCache cache(options);
  PageTable first = Compute(&cache, Tokens(192));
  PageTable second = Compute(&cache, Tokens(192, 1000));
  EXPECT_EQ(CachedTokens(&cache, Tokens(193, 2000)), 0);
  EXPECT_EQ(CachedTokens(&cache, Concat(Tokens(64), Tokens(129, 1064))), 64);
  KvCache::Admission hit = Admit(&cache, Tokens(193, 1000), 193);
  EXPECT_EQ(hit.cached_tokens, 192);
  EXPECT_EQ(Pages(hit.tables[0]), Pages(second));
  EXPECT_GT(cache.counters().collisions, 0);
  for (PageTable* table : {&first, &second, &hit.tables[0]}) cache.Release(table, 0);
}

TEST(KvCachePrefix, B079_APromptOfToken65IsNotAPromptOfToken321) {
  KvCache cache(Options({{0, 20}}));
  PageTable first = Compute(&cache, std::vector<int32_t>(128, 65));
  EXPECT_EQ(CachedTokens(&cache, std::vector<int32_t>(129, 321)), 0);
  EXPECT_EQ(CachedTokens(&cache, std::vector<int32_t>(129, 65)), 128);
  cache.Release(&first, 0);
}

// Prompt 193, max_rewind 16: the newcomer may write page 2 again, the first, which said nothing
// about its lowest row, all three.
TEST(KvCachePrefix, AHitOfLivePagesSharesThemAndCarriesTheirCopies) {
  KvCache cache(Options({{0, 20}}));
  PageTable first = Compute(&cache, Tokens(193));
  KvCache::Admission hit = Admit(&cache, Tokens(193), 256);
  ASSERT_EQ(hit.cached_tokens, 192);
  PageTable& second = hit.tables[0];
  EXPECT_EQ(Reserved(second), 1);
  EXPECT_EQ(cache.pool(0).num_copies(), 3);
  for (int32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(Pages(second)[i], Pages(first)[i]);
    EXPECT_EQ(cache.pool(0).owners(Pages(first)[i]), 2);
  }
  EXPECT_EQ(Check(cache, {&first, &second}), "OK");
  Write(&cache, &first, 192, 193, 176);
  EXPECT_EQ(cache.pool(0).num_copies(), 1) << "the first has settled pages 0 and 1";
  cache.Release(&first, 0);
  EXPECT_EQ(cache.pool(0).num_copies(), 0);
  cache.Release(&second, 0);
}

TEST(KvCachePrefix, AHitOfCachedPagesTakesThemWithoutCopies) {
  KvCache cache(Options({{0, 5}}));
  PageTable first = Compute(&cache, Tokens(192));
  const std::vector<int32_t> pages = Pages(first);
  cache.Release(&first, 0);
  EXPECT_EQ(cache.num_cached(), 3);
  EXPECT_EQ(cache.pool(0).num_available(), 5);
  KvCache::Admission hit = Admit(&cache, Tokens(193), 256);
  ASSERT_EQ(hit.cached_tokens, 192);
  EXPECT_EQ(Pages(hit.tables[0]), pages);
  EXPECT_EQ(cache.num_cached(), 0);
  EXPECT_EQ(cache.pool(0).num_copies(), 0);
  EXPECT_EQ(cache.pool(0).num_available(), 1);
  cache.Release(&hit.tables[0], 0);
}

TEST(KvCachePrefix, CachedPagesThatAHitTakesCountAgainstThePromisesOfOthers) {
  KvCache cache(Options({{0, 5}}));
  PageTable first = Compute(&cache, Tokens(192));
  cache.Release(&first, 0);
  KvCache::Admission other = Admit(&cache, Tokens(1, -1), 128);
  EXPECT_EQ(cache.pool(0).num_available(), 3);
  ASSERT_TRUE(Admit(&cache, Tokens(193), 256).tables.empty()) << "three cached pages and one more";
  cache.Release(&other.tables[0], 0);
  KvCache::Admission hit = Admit(&cache, Tokens(193), 256);
  EXPECT_EQ(hit.cached_tokens, 192);
  cache.Release(&hit.tables[0], 0);
}

TEST(KvCachePrefix, AHitIsAdmittedOnlyIfItsCopiesCanBePromised) {
  const CacheOptions options = Options({{0, 7}}, 200);
  KvCache cache(options);
  PageTable first = Compute(&cache, Tokens(193));
  EXPECT_EQ(cache.pool(0).num_available(), 3);
  // One page of its own and three copies.
  ASSERT_TRUE(Admit(&cache, Tokens(193), 193).tables.empty());
  cache.Release(&first, 0);
  KvCache::Admission hit = Admit(&cache, Tokens(193), 193);
  EXPECT_EQ(hit.cached_tokens, 192);
  EXPECT_EQ(cache.pool(0).num_available(), 3);
  cache.Release(&hit.tables[0], 0);
}

TEST(KvCachePrefix, ChoicesOfAHitShareItsPages) {
  KvCache cache(Options({{0, 20}}));
  PageTable first = Compute(&cache, Tokens(129));
  KvCache::Admission hit = Admit(&cache, Tokens(129), 192, 3);
  ASSERT_EQ(hit.cached_tokens, 128);
  std::vector<PageCopy> copies;
  for (int32_t i = 1; i < 3; ++i) cache.Fork(128, &hit.tables[0], &hit.tables[i], &copies);
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(cache.pool(0).owners(Pages(first)[0]), 4);
  // All write page 1 again: as many copies as others are left.
  std::vector<const PageTable*> tables = {&first};
  for (PageTable& table : hit.tables) tables.push_back(&table);
  for (int32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(Write(&cache, &hit.tables[i], 112, 192, 112).size(), 1u);
    EXPECT_EQ(Check(cache, tables), "OK");
  }
  EXPECT_TRUE(Write(&cache, &first, 112, 129, 112).empty());
  cache.Release(&first, 0);
  for (PageTable& table : hit.tables) cache.Release(&table, 0);
  EXPECT_EQ(cache.pool(0).num_available(), 20);
}

// A pool of exactly what both need. first: by the sequence that computed the pages.
TEST(KvCachePrefix, EitherOwnerOfAHitRewindsFirstAndTheOtherWritesInPlace) {
  for (const bool first_rewinds_first : {true, false}) {
    KvCache cache(Options({{0, 3 + 3}}, 200));
    PageTable first = Compute(&cache, Tokens(129));
    KvCache::Admission hit = Admit(&cache, Tokens(129), 192);
    ASSERT_EQ(hit.cached_tokens, 128);
    PageTable& second = hit.tables[0];
    EXPECT_EQ(cache.pool(0).num_available(), 0);
    PageTable& early = first_rewinds_first ? first : second;
    PageTable& late = first_rewinds_first ? second : first;
    const std::vector<int32_t> pages(Pages(first).begin(), Pages(first).begin() + 2);
    const std::vector<PageCopy> copies = Write(&cache, &early, 10, 129);
    ASSERT_EQ(copies.size(), 1u);
    EXPECT_EQ(copies[0].from, pages[0]);
    EXPECT_EQ(copies[0].num_tokens, 10);
    EXPECT_EQ(cache.pool(0).node(Pages(early)[0]), -1);
    EXPECT_GE(cache.pool(0).node(pages[0]), 0) << "it is the other's still";
    EXPECT_EQ(Check(cache, {&first, &second}), "OK");
    EXPECT_TRUE(Write(&cache, &late, 10, 129).empty());
    EXPECT_EQ(Pages(late)[0], pages[0]);
    EXPECT_EQ(cache.pool(0).node(pages[0]), -1);
    EXPECT_EQ(cache.pool(0).node(pages[1]), -1) << "what follows is gone too";
    EXPECT_EQ(Check(cache, {&first, &second}), "OK");
    cache.Release(&first, 0);
    cache.Release(&second, 0);
    EXPECT_EQ(cache.pool(0).num_free(), 6);
  }
}

TEST(KvCachePrefix, NothingIsFoundFromWhereTheSoleOwnerWroteAgain) {
  KvCache cache(Options({{0, 20}}, 200));
  PageTable table = Compute(&cache, Tokens(192));
  Write(&cache, &table, 100, 101);
  EXPECT_EQ(CachedTokens(&cache, Tokens(193)), 64);
  Write(&cache, &table, 101, 192);
  cache.Release(&table, 0);
  EXPECT_EQ(CachedTokens(&cache, Tokens(193)), 64);
}

TEST(KvCachePrefix, ARewindWithoutAWriteLeavesTheHit) {
  KvCache cache(Options({{0, 20}}, 200));
  PageTable table = Compute(&cache, Tokens(192));
  cache.IndexPages(Tokens(100), &table);
  EXPECT_EQ(CachedTokens(&cache, Tokens(193)), 192);
  cache.Release(&table, 0);
}

TEST(KvCachePrefix, AHitIsThereStillAfterOneOfTwoOwnersWroteAgain) {
  KvCache cache(Options({{0, 20}}, 200));
  PageTable first = Compute(&cache, Tokens(192));
  PageTable second = Compute(&cache, Tokens(193));
  Write(&cache, &first, 10, 11);
  EXPECT_EQ(CachedTokens(&cache, Tokens(193)), 192);
  Write(&cache, &second, 10, 11);
  EXPECT_EQ(CachedTokens(&cache, Tokens(193)), 0);
  cache.Release(&first, 0);
  cache.Release(&second, 0);
}

TEST(KvCachePrefix, WhatWasWrittenAgainIsIndexedAnew) {
  KvCache cache(Options({{0, 20}}, 200));
  PageTable table = Compute(&cache, Tokens(192));
  const std::vector<int32_t> other = Concat(Tokens(100), Tokens(92, 5000));
  Write(&cache, &table, 100, 192);
  cache.IndexPages(other, &table);
  EXPECT_EQ(CachedTokens(&cache, Concat(other, {0})), 192);
  EXPECT_EQ(CachedTokens(&cache, Tokens(193)), 64);
  cache.Release(&table, 0);
}

TEST(KvCachePrefix, ReuseAddsWhatWasIndexedSinceTheAdmission) {
  KvCache cache(Options({{0, 20}}));
  PageTable late = std::move(Admit(&cache, Tokens(200), 256).tables[0]);
  Write(&cache, &late, 0, 64);
  cache.IndexPages(Tokens(64), &late);
  PageTable early = Compute(&cache, Tokens(200));
  const int32_t available = cache.pool(0).num_available();
  std::vector<PageCopy> copies;
  EXPECT_EQ(cache.Reuse(Tokens(200), 64, &late, &copies), 192);
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(Pages(late), std::vector<int32_t>(Pages(early).begin(), Pages(early).begin() + 3));
  EXPECT_EQ(Reserved(late), 1);
  EXPECT_EQ(cache.pool(0).num_copies(), 2) << "pages 1 and 2: both have settled page 0";
  EXPECT_EQ(cache.pool(0).num_available(), available + 1);
  EXPECT_EQ(Check(cache, {&late, &early}), "OK");
  EXPECT_EQ(cache.Reuse(Tokens(200), 192, &late, &copies), 192) << "there is no more";
  cache.Release(&early, 0);
  Write(&cache, &late, 192, 256);
  cache.Release(&late, 0);
}

TEST(KvCachePrefix, ReuseFindsThePromptOfASequenceThatWasAdmittedAtTheSameTime) {
  KvCache cache(Options({{0, 20}}));
  PageTable first = std::move(Admit(&cache, Tokens(129), 129).tables[0]);
  PageTable second = std::move(Admit(&cache, Tokens(129), 129).tables[0]);
  Write(&cache, &first, 0, 129);
  cache.IndexPages(Tokens(129), &first);
  std::vector<PageCopy> copies;
  EXPECT_EQ(cache.Reuse(Tokens(129), 0, &second, &copies), 128);
  EXPECT_EQ(Pages(second)[1], Pages(first)[1]);
  EXPECT_EQ(cache.counters().reused_pages, 2);
  EXPECT_EQ(Check(cache, {&first, &second}), "OK");
  cache.Release(&first, 0);
  cache.Release(&second, 0);
}

TEST(KvCachePrefix, ReuseAddsNothingToATableWhosePagesAreNotIndexedYet) {
  KvCache cache(Options({{0, 20}}));
  PageTable late = std::move(Admit(&cache, Tokens(200), 200).tables[0]);
  Write(&cache, &late, 0, 64);
  PageTable early = Compute(&cache, Tokens(200));
  std::vector<PageCopy> copies;
  EXPECT_EQ(cache.Reuse(Tokens(200), 64, &late, &copies), 64);
  cache.IndexPages(Tokens(64), &late);
  EXPECT_EQ(cache.Reuse(Tokens(200), 64, &late, &copies), 192);
  cache.Release(&late, 0);
  cache.Release(&early, 0);
}

TEST(KvCachePrefix, TheCountersCountPositionsOnceOverAllGroups) {
  KvCache cache(Options({{0, 20}, {0, 20}}));
  PageTable first = Compute(&cache, Tokens(128));
  PageTable second = Compute(&cache, Tokens(129));
  const CacheCounters counters = cache.counters();
  EXPECT_EQ(counters.lookups, 2);
  EXPECT_EQ(counters.indexed_pages, 2);
  EXPECT_EQ(counters.reused_pages, 2);
  EXPECT_EQ(counters.evicted_pages, 0);
  cache.Release(&first, 0);
  cache.Release(&second, 0);
}

}  // namespace
}  // namespace tandem::test
