// Promises, forks and writes; hits, windows and eviction have files of their own.
#include "engine/cache/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/engine/cache/kv_cache_harness.h"

namespace tandem::test {
namespace {

TEST(KvCache, ASequenceTakesAPageForEvery64Positions) {
  KvCache cache(Options({{0, 10}}));
  std::vector<PageTable> tables = Admit(&cache, Tokens(100), 200).tables;
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(Reserved(tables[0]), 4);
  EXPECT_TRUE(Write(&cache, &tables[0], 0, 64).empty());
  EXPECT_EQ(Pages(tables[0]).size(), 1u);
  Write(&cache, &tables[0], 64, 101);
  EXPECT_EQ(Pages(tables[0]).size(), 2u);
  EXPECT_EQ(cache.num_free(), 8);
  EXPECT_EQ(Reserved(tables[0]), 2);
  cache.Release(&tables[0], 0);
  EXPECT_TRUE(tables[0].groups().empty());
  EXPECT_EQ(cache.num_free(), 10);
  EXPECT_EQ(cache.pool(0).num_available(), 10);
}

TEST(KvCache, ARewindKeepsThePages) {
  KvCache cache(Options({{0, 10}}));
  std::vector<PageTable> tables = Admit(&cache, Tokens(100), 128).tables;
  Write(&cache, &tables[0], 0, 128);
  const std::vector<int32_t> pages = Pages(tables[0]);
  EXPECT_TRUE(Write(&cache, &tables[0], 60, 70).empty());
  EXPECT_EQ(Pages(tables[0]), pages);
  cache.Release(&tables[0], 0);
}

TEST(KvCache, TheWorkedExampleOfTheHeaderHolds) {
  KvCache cache(Options({{0, 7}}));
  std::vector<PageTable> tables = Admit(&cache, Tokens(130), 200, 2).tables;
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(Reserved(tables[0]), 4);
  EXPECT_EQ(Reserved(tables[1]), 3);
  Write(&cache, &tables[0], 0, 129, 130 - 16 - 1);
  std::vector<PageCopy> copies;
  cache.Fork(129, &tables[0], &tables[1], &copies);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].num_tokens, 1);
  EXPECT_EQ(cache.pool(0).num_copies(), 1) << "page 1; a rewind never comes to page 0";
  EXPECT_EQ(Reserved(tables[0]), 1);
  EXPECT_EQ(Reserved(tables[1]), 1);
  // Each to its length, after a rewind to the lowest row: all 7 pages.
  for (PageTable& table : tables) {
    cache.PrepareWrite(113, 129, 113, 113, &table, &copies);
    Write(&cache, &table, 129, 200, 113);
  }
  ASSERT_EQ(copies.size(), 2u) << "the last owner of page 1 writes in place";
  EXPECT_EQ(copies[1].num_tokens, 113 - 64);
  EXPECT_EQ(cache.num_free(), 0);
  EXPECT_EQ(Check(cache, {&tables[0], &tables[1]}), "OK");
  for (PageTable& table : tables) cache.Release(&table, 0);
}

TEST(KvCache, AForkSharesFullPagesAndCopiesThePartialOne) {
  KvCache cache(Options({{0, 20}}));
  std::vector<PageTable> tables = Admit(&cache, Tokens(151), 200, 2).tables;
  Write(&cache, &tables[0], 0, 150);
  std::vector<PageCopy> copies;
  cache.Fork(150, &tables[0], &tables[1], &copies);
  const std::vector<int32_t>& leader = Pages(tables[0]);
  const std::vector<int32_t>& other = Pages(tables[1]);
  ASSERT_EQ(other.size(), 3u);
  EXPECT_EQ(other[0], leader[0]);
  EXPECT_EQ(other[1], leader[1]);
  EXPECT_NE(other[2], leader[2]);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].from, leader[2]);
  EXPECT_EQ(copies[0].to, other[2]);
  EXPECT_EQ(copies[0].num_tokens, 150 - 128);
  EXPECT_EQ(cache.pool(0).owners(leader[0]), 2);
  EXPECT_EQ(cache.num_free(), 20 - 4);
  // Either writes on without touching a shared page.
  EXPECT_TRUE(Write(&cache, &tables[0], 150, 151).empty());
  EXPECT_TRUE(Write(&cache, &tables[1], 150, 151).empty());
  cache.Release(&tables[0], 0);
  EXPECT_EQ(cache.pool(0).owners(other[0]), 1) << "the other choice has it still";
  cache.Release(&tables[1], 0);
  EXPECT_EQ(cache.num_free(), 20);
}

TEST(KvCache, AForkAtAPageEdgeCopiesNothing) {
  KvCache cache(Options({{0, 20}}));
  std::vector<PageTable> tables = Admit(&cache, Tokens(65), 100, 3).tables;
  Write(&cache, &tables[0], 0, 64);
  std::vector<PageCopy> copies;
  cache.Fork(64, &tables[0], &tables[1], &copies);
  cache.Fork(64, &tables[0], &tables[2], &copies);
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(cache.num_free(), 19);
  for (PageTable& table : tables) cache.Release(&table, 0);
}

TEST(KvCache, AWriteIntoASharedPageGoesToACopyOfWhatCounts) {
  KvCache cache(Options({{0, 20}}, 100));
  std::vector<PageTable> tables = Admit(&cache, Tokens(129), 200, 2).tables;
  Write(&cache, &tables[0], 0, 128);
  std::vector<PageCopy> copies;
  cache.Fork(128, &tables[0], &tables[1], &copies);
  const std::vector<int32_t> leader = Pages(tables[0]);
  // A rewind to 40: 40 tokens of page 0 count.
  copies = Write(&cache, &tables[1], 40, 41);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].from, leader[0]);
  EXPECT_EQ(copies[0].to, Pages(tables[1])[0]);
  EXPECT_EQ(copies[0].num_tokens, 40);
  // Where it comes to page 1, nothing of that counts any more.
  copies = Write(&cache, &tables[1], 41, 70);
  EXPECT_TRUE(copies.empty());
  EXPECT_NE(Pages(tables[1])[1], leader[1]);
  EXPECT_EQ(Pages(tables[0]), leader);
  // The leader is the only owner now, and writes in place.
  EXPECT_TRUE(Write(&cache, &tables[0], 40, 41).empty());
  EXPECT_EQ(Pages(tables[0]), leader);
  for (PageTable& table : tables) cache.Release(&table, 0);
  EXPECT_EQ(cache.num_free(), 20);
}

// The row of a Fetch: everything behind it counts still.
TEST(KvCache, ARowThatIsComputedAgainInASharedPageKeepsWhatFollowsIt) {
  KvCache cache(Options({{0, 20}}, 100));
  std::vector<PageTable> tables = Admit(&cache, Tokens(129), 200, 2).tables;
  Write(&cache, &tables[0], 0, 128);
  std::vector<PageCopy> copies;
  cache.Fork(128, &tables[0], &tables[1], &copies);
  cache.PrepareWrite(40, 41, 128, 0, &tables[1], &copies);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].num_tokens, 64);
  EXPECT_EQ(Pages(tables[1])[1], Pages(tables[0])[1]);
  for (PageTable& table : tables) cache.Release(&table, 0);
}

// A pool of exactly what is promised. Whichever of the choices rewinds first, and whether or not
// another has left before, each finds its pages.
TEST(KvCache, EveryOrderOfRewindsAndReleasesFindsItsPages) {
  std::vector<int32_t> order = {0, 1, 2};
  do {
    for (int32_t releases = 0; releases < 8; ++releases) {
      const CacheOptions options = Options({{0, 3 + 2 * 3}}, 150);
      KvCache cache(options);
      std::vector<PageTable> tables = Admit(&cache, Tokens(129), 192, 3).tables;
      ASSERT_EQ(tables.size(), 3u);
      EXPECT_EQ(cache.pool(0).num_available(), 0);
      Write(&cache, &tables[0], 0, 128);
      std::vector<PageCopy> copies;
      for (int32_t i = 1; i < 3; ++i) cache.Fork(128, &tables[0], &tables[i], &copies);
      for (const int32_t i : order) {
        if ((releases >> i & 1) != 0) {
          cache.Release(&tables[i], 0);
        } else {
          Write(&cache, &tables[i], 0, 192);
        }
        std::vector<const PageTable*> held;
        for (const PageTable& table : tables) {
          if (!table.groups().empty()) held.push_back(&table);
        }
        ASSERT_EQ(Check(cache, held), "OK");
      }
      for (PageTable& table : tables) cache.Release(&table, 0);
      EXPECT_EQ(cache.pool(0).num_available(), 9);
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(KvCache, AForkThatOutgrowsTheRewindGivesItsCopiesBack) {
  KvCache cache(Options({{0, 20}}));
  std::vector<PageTable> tables = Admit(&cache, Tokens(129), 256, 2).tables;
  Write(&cache, &tables[0], 0, 128);
  std::vector<PageCopy> copies;
  cache.Fork(128, &tables[0], &tables[1], &copies);
  EXPECT_EQ(cache.pool(0).num_copies(), 1);
  Write(&cache, &tables[0], 128, 145, 128);
  EXPECT_EQ(cache.pool(0).num_copies(), 1) << "the other may still write page 1";
  const int32_t available = cache.pool(0).num_available();
  Write(&cache, &tables[1], 128, 145, 128);
  EXPECT_EQ(cache.pool(0).num_copies(), 0);
  EXPECT_EQ(cache.pool(0).num_available(), available + 1);
  EXPECT_EQ(Check(cache, {&tables[0], &tables[1]}), "OK");
  for (PageTable& table : tables) cache.Release(&table, 0);
}

TEST(KvCacheDeath, AWriteIntoAPageThatIsSettledAndSharedIsCaught) {
  KvCache cache(Options({{0, 20}}));
  std::vector<PageTable> tables = Admit(&cache, Tokens(129), 256, 2).tables;
  Write(&cache, &tables[0], 0, 128);
  std::vector<PageCopy> copies;
  cache.Fork(128, &tables[0], &tables[1], &copies);
  EXPECT_DEATH(Write(&cache, &tables[1], 40, 41), "page 0 is settled");
  for (PageTable& table : tables) cache.Release(&table, 0);
}

TEST(KvCache, B071_WhatCanNeverFitIsSaidWithItsNumbers) {
  KvCache cache(Options({{0, 50}}));
  const std::vector<int32_t> prompt = Tokens(10);
  EXPECT_EQ(cache.CanEverAdmit({.tokens = prompt, .length = 64 * 50, .salt = ""}).ToString(), "OK");
  const absl::Status status = cache.CanEverAdmit({.tokens = prompt, .length = 3600, .salt = ""});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "it needs 57 pages of 64 tokens (prompt 10, length 3600, choices 1): layer group 0 has "
            "50");
}

// B127: every choice counts, in 64 bits.
TEST(KvCache, B127_ChoicesTimesLengthIsCountedInFull) {
  KvCache cache(Options({{0, 1000}}));
  const std::vector<int32_t> prompt = Tokens(1);
  EXPECT_FALSE(
      cache.CanEverAdmit({.tokens = prompt, .length = 1 << 30, .choices = 1 << 10, .salt = ""})
          .ok());
  EXPECT_TRUE(Admit(&cache, prompt, 64 * 300, 4).tables.empty());
  std::vector<PageTable> tables = Admit(&cache, prompt, 64 * 250, 4).tables;
  EXPECT_EQ(tables.size(), 4u);
  EXPECT_EQ(cache.pool(0).num_available(), 0);
  for (PageTable& table : tables) cache.Release(&table, 0);
}

TEST(KvCache, AnAdmittedSequenceNeverLacksAPageWhateverOthersDo) {
  KvCache cache(Options({{0, 8}}));
  std::vector<PageTable> first = Admit(&cache, Tokens(1), 64 * 5).tables;
  EXPECT_TRUE(Admit(&cache, Tokens(1), 64 * 4).tables.empty());
  std::vector<PageTable> second = Admit(&cache, Tokens(1), 64 * 3).tables;
  ASSERT_EQ(second.size(), 1u);
  Write(&cache, &second[0], 0, 64 * 3);
  EXPECT_EQ(cache.MissingPages(second[0], 64 * 3), 0);
  EXPECT_EQ(cache.MissingPages(second[0], 64 * 5), 2);
  EXPECT_FALSE(cache.Extend(&second[0], 64 * 3 + 1));
  Write(&cache, &first[0], 0, 64 * 5);
  cache.Release(&first[0], 0);
  EXPECT_TRUE(cache.Extend(&second[0], 64 * 3 + 1));
  EXPECT_EQ(second[0].covered_pages(), 4);
  Write(&cache, &second[0], 64 * 3, 64 * 3 + 1);
  cache.Release(&second[0], 0);
  EXPECT_EQ(cache.pool(0).num_available(), 8);
}

TEST(KvCacheDeath, WritesBeyondThePromiseAreCaught) {
  KvCache cache(Options({{0, 8}}));
  std::vector<PageTable> tables = Admit(&cache, Tokens(1), 64).tables;
  EXPECT_DEATH(Write(&cache, &tables[0], 64, 65), "1 pages promised");
  cache.Release(&tables[0], 0);
}

TEST(KvCache, ReclaimablePagesAreWhatAReleaseMakesAvailable) {
  KvCache cache(Options({{0, 20}}));
  std::vector<PageTable> tables = Admit(&cache, Tokens(100), 300).tables;
  Write(&cache, &tables[0], 0, 100);
  const int64_t reclaimable = cache.ReclaimablePages(tables[0]);
  EXPECT_EQ(reclaimable, 5);
  const int32_t before = cache.pool(0).num_available();
  cache.Release(&tables[0], 0);
  EXPECT_EQ(cache.pool(0).num_available() - before, reclaimable);
}

// The release of a fork gives back the copies of the pages that it leaves to one owner.
TEST(KvCache, ReclaimablePagesIncludeTheCopiesOfSharedPages) {
  KvCache cache(Options({{0, 20}}, 150));
  std::vector<PageTable> tables = Admit(&cache, Tokens(129), 192, 2).tables;
  Write(&cache, &tables[0], 0, 128);
  std::vector<PageCopy> copies;
  cache.Fork(128, &tables[0], &tables[1], &copies);
  const int64_t reclaimable = cache.ReclaimablePages(tables[1]);
  const int32_t before = cache.pool(0).num_available();
  cache.Release(&tables[1], 0);
  EXPECT_EQ(cache.pool(0).num_available() - before, reclaimable);
  cache.Release(&tables[0], 0);
}

TEST(KvCache, ChangesOfATableAreReportedOnce) {
  KvCache cache(Options({{0, 8}}));
  std::vector<PageTable> tables = Admit(&cache, Tokens(1), 512).tables;
  Write(&cache, &tables[0], 0, 65);
  EXPECT_EQ(tables[0].groups()[0].changed_begin, 0);
  EXPECT_EQ(tables[0].groups()[0].changed_end, 2);
  tables[0].ClearChanges();
  Write(&cache, &tables[0], 65, 128);
  EXPECT_EQ(tables[0].groups()[0].changed_begin, tables[0].groups()[0].changed_end);
  Write(&cache, &tables[0], 128, 129);
  EXPECT_EQ(tables[0].groups()[0].changed_begin, 2);
  EXPECT_EQ(tables[0].groups()[0].changed_end, 3);
  tables[0].ClearChanges();
  tables[0].ChangeAll();
  EXPECT_EQ(tables[0].groups()[0].changed_begin, 0);
  EXPECT_EQ(tables[0].groups()[0].changed_end, 3);
  cache.Release(&tables[0], 0);
}

}  // namespace
}  // namespace tandem::test
