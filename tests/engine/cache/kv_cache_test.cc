#include "engine/cache/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>

namespace tandem {
namespace {

CacheOptions Options(std::vector<CacheGroup> groups, int32_t max_rewind = 16,
                     int32_t step_tokens = 64) {
  CacheOptions options;
  options.groups = std::move(groups);
  options.max_rewind = max_rewind;
  options.step_tokens = step_tokens;
  return options;
}

// Writes rows [from, to) of a sequence that has no rewind ahead of it.
std::vector<PageCopy> Write(KvCache* cache, PageTable* table, int32_t from, int32_t to) {
  std::vector<PageCopy> copies;
  cache->PrepareWrite(from, to, from, 0, table, &copies);
  return copies;
}

int32_t Reserved(const PageTable& table, int32_t group = 0) {
  return table.groups()[group].num_reserved;
}

TEST(KvCache, ASequenceTakesAPageForEvery64Positions) {
  KvCache cache(Options({{0, 10}}));
  std::vector<PageTable> tables = cache.Admit({.prompt = 100, .length = 200, .choices = 1});
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(Reserved(tables[0]), 4);
  EXPECT_TRUE(Write(&cache, &tables[0], 0, 64).empty());
  EXPECT_EQ(tables[0].groups()[0].pages.size(), 1u);
  Write(&cache, &tables[0], 64, 100);
  Write(&cache, &tables[0], 100, 101);
  EXPECT_EQ(tables[0].groups()[0].pages.size(), 2u);
  EXPECT_EQ(cache.num_free(), 8);
  EXPECT_EQ(Reserved(tables[0]), 2);
  cache.Release(&tables[0]);
  EXPECT_EQ(cache.num_free(), 10);
  EXPECT_EQ(cache.pool(0).num_available(), 10);
}

TEST(KvCache, ARewindKeepsThePages) {
  KvCache cache(Options({{0, 10}}));
  std::vector<PageTable> tables = cache.Admit({.prompt = 100, .length = 128, .choices = 1});
  Write(&cache, &tables[0], 0, 64);
  Write(&cache, &tables[0], 64, 128);
  const std::vector<int32_t> pages = tables[0].groups()[0].pages;
  EXPECT_TRUE(Write(&cache, &tables[0], 60, 70).empty());
  EXPECT_EQ(tables[0].groups()[0].pages, pages);
  cache.Release(&tables[0]);
}

TEST(KvCache, TheWorkedExampleOfTheHeaderHolds) {
  KvCache cache(Options({{0, 8}}));
  std::vector<PageTable> tables = cache.Admit({.prompt = 130, .length = 200, .choices = 2});
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(Reserved(tables[0]), 4 + 1);
  EXPECT_EQ(Reserved(tables[1]), 3);
  cache.Release(&tables[0]);
  cache.Release(&tables[1]);
}

TEST(KvCache, AForkSharesFullPagesAndCopiesThePartialOne) {
  KvCache cache(Options({{0, 20}}));
  std::vector<PageTable> tables = cache.Admit({.prompt = 151, .length = 200, .choices = 2});
  for (int32_t from = 0; from < 150; from += 50) Write(&cache, &tables[0], from, from + 50);
  std::vector<PageCopy> copies;
  cache.Fork(150, &tables[0], &tables[1], &copies);
  const std::vector<int32_t>& leader = tables[0].groups()[0].pages;
  const std::vector<int32_t>& other = tables[1].groups()[0].pages;
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
  cache.Release(&tables[0]);
  EXPECT_EQ(cache.pool(0).owners(other[0]), 1) << "the other choice has it still";
  cache.Release(&tables[1]);
  EXPECT_EQ(cache.num_free(), 20);
}

TEST(KvCache, AForkAtAPageEdgeCopiesNothing) {
  KvCache cache(Options({{0, 20}}));
  std::vector<PageTable> tables = cache.Admit({.prompt = 65, .length = 100, .choices = 3});
  Write(&cache, &tables[0], 0, 64);
  std::vector<PageCopy> copies;
  cache.Fork(64, &tables[0], &tables[1], &copies);
  cache.Fork(64, &tables[0], &tables[2], &copies);
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(cache.num_free(), 19);
  for (PageTable& table : tables) cache.Release(&table);
}

TEST(KvCache, AWriteIntoASharedPageGoesToACopyOfWhatCounts) {
  KvCache cache(Options({{0, 20}}, 100));
  std::vector<PageTable> tables = cache.Admit({.prompt = 129, .length = 200, .choices = 2});
  Write(&cache, &tables[0], 0, 64);
  Write(&cache, &tables[0], 64, 128);
  std::vector<PageCopy> copies;
  cache.Fork(128, &tables[0], &tables[1], &copies);
  const std::vector<int32_t> leader = tables[0].groups()[0].pages;
  // A rewind to 40: 40 tokens of page 0 count.
  copies = Write(&cache, &tables[1], 40, 41);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].from, leader[0]);
  EXPECT_EQ(copies[0].num_tokens, 40);
  // Where it comes to page 1, nothing of that counts any more.
  copies = Write(&cache, &tables[1], 41, 70);
  EXPECT_TRUE(copies.empty());
  EXPECT_NE(tables[1].groups()[0].pages[1], leader[1]);
  EXPECT_EQ(tables[0].groups()[0].pages, leader);
  // The leader is the only owner now, and writes in place.
  EXPECT_TRUE(Write(&cache, &tables[0], 40, 41).empty());
  EXPECT_EQ(tables[0].groups()[0].pages, leader);
  for (PageTable& table : tables) cache.Release(&table);
  EXPECT_EQ(cache.num_free(), 20);
}

// The row of a Fetch: everything behind it counts still.
TEST(KvCache, ARowThatIsComputedAgainInASharedPageKeepsWhatFollowsIt) {
  KvCache cache(Options({{0, 20}}, 100));
  std::vector<PageTable> tables = cache.Admit({.prompt = 129, .length = 200, .choices = 2});
  Write(&cache, &tables[0], 0, 64);
  Write(&cache, &tables[0], 64, 128);
  std::vector<PageCopy> copies;
  cache.Fork(128, &tables[0], &tables[1], &copies);
  cache.PrepareWrite(40, 41, 128, 0, &tables[1], &copies);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].num_tokens, 64);
  EXPECT_EQ(tables[1].groups()[0].pages[1], tables[0].groups()[0].pages[1]);
  for (PageTable& table : tables) cache.Release(&table);
}

TEST(KvCache, AWindowGroupUsesItsOwnOldPagesAgain) {
  // 31 + 17 + 16 positions touch 2 pages, one more can touch 3.
  EXPECT_EQ(KvCache::WindowPages(32, 16, 16), 2);
  EXPECT_EQ(KvCache::WindowPages(34, 16, 16), 3);
  KvCache cache(Options({{0, 20}, {32, 2}}, 16, 16));
  std::vector<PageTable> tables = cache.Admit({.prompt = 100, .length = 1000, .choices = 1});
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(Reserved(tables[0], 0), 16);
  EXPECT_EQ(Reserved(tables[0], 1), 2);
  std::vector<PageCopy> copies;
  for (int32_t from = 0; from + 16 <= 1000; from += from == 0 ? 15 : 16) {
    const int32_t lowest_row = std::max(0, from - 16 - 1);
    cache.PrepareWrite(from, from + 16, from, lowest_row, &tables[0], &copies);
    const PageTable::Group& group = tables[0].groups()[1];
    // Everything that row lowest_row can see is held.
    for (int32_t position = std::max(0, lowest_row - 31); position < from + 16; ++position) {
      ASSERT_GE(group.pages[position / 64], 0) << position << " at " << from;
    }
  }
  EXPECT_EQ(cache.pool(1).num_free(), 0);
  EXPECT_EQ(cache.pool(0).num_free(), 20 - 16);
  EXPECT_TRUE(copies.empty());
  cache.Release(&tables[0]);
  EXPECT_EQ(cache.num_free(), 22);
}

TEST(KvCache, B071_WhatCanNeverFitIsSaidWithItsNumbers) {
  KvCache cache(Options({{0, 50}}));
  EXPECT_EQ(cache.CanEverAdmit({.prompt = 10, .length = 64 * 50, .choices = 1}).ToString(), "OK");
  const absl::Status status = cache.CanEverAdmit({.prompt = 10, .length = 3600, .choices = 1});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "it needs 57 pages of 64 tokens (prompt 10, length 3600, choices 1): layer group 0 has "
            "50");
}

// B127: every choice counts, in 64 bits.
TEST(KvCache, B127_ChoicesTimesLengthIsCountedInFull) {
  KvCache cache(Options({{0, 1000}}));
  EXPECT_FALSE(cache.CanEverAdmit({.prompt = 1, .length = 1 << 30, .choices = 1 << 10}).ok());
  EXPECT_TRUE(cache.Admit({.prompt = 1, .length = 64 * 300, .choices = 4}).empty());
  std::vector<PageTable> tables = cache.Admit({.prompt = 1, .length = 64 * 250, .choices = 4});
  EXPECT_EQ(tables.size(), 4u);
  EXPECT_EQ(cache.pool(0).num_available(), 0);
  for (PageTable& table : tables) cache.Release(&table);
}

TEST(KvCache, AnAdmittedSequenceNeverLacksAPageWhateverOthersDo) {
  KvCache cache(Options({{0, 8}}));
  std::vector<PageTable> first = cache.Admit({.prompt = 1, .length = 64 * 5, .choices = 1});
  EXPECT_TRUE(cache.Admit({.prompt = 1, .length = 64 * 4, .choices = 1}).empty());
  std::vector<PageTable> second = cache.Admit({.prompt = 1, .length = 64 * 3, .choices = 1});
  ASSERT_EQ(second.size(), 1u);
  for (int32_t from = 0; from < 64 * 3; from += 64) Write(&cache, &second[0], from, from + 64);
  EXPECT_FALSE(cache.Extend(&second[0], 64 * 3 + 1));
  for (int32_t from = 0; from < 64 * 5; from += 64) Write(&cache, &first[0], from, from + 64);
  cache.Release(&first[0]);
  EXPECT_TRUE(cache.Extend(&second[0], 64 * 3 + 1));
  Write(&cache, &second[0], 64 * 3, 64 * 3 + 1);
  cache.Release(&second[0]);
  EXPECT_EQ(cache.pool(0).num_available(), 8);
}

TEST(KvCacheDeath, WritesBeyondThePromiseAreCaught) {
  KvCache cache(Options({{0, 8}}));
  std::vector<PageTable> tables = cache.Admit({.prompt = 1, .length = 64, .choices = 1});
  EXPECT_DEATH(Write(&cache, &tables[0], 64, 65), "1 pages promised");
  cache.Release(&tables[0]);
}

TEST(KvCache, ChangesOfATableAreReportedOnce) {
  KvCache cache(Options({{0, 8}}));
  std::vector<PageTable> tables = cache.Admit({.prompt = 1, .length = 512, .choices = 1});
  Write(&cache, &tables[0], 0, 64);
  Write(&cache, &tables[0], 64, 65);
  EXPECT_EQ(tables[0].groups()[0].changed_begin, 0);
  EXPECT_EQ(tables[0].groups()[0].changed_end, 2);
  tables[0].ClearChanges();
  Write(&cache, &tables[0], 65, 128);
  EXPECT_EQ(tables[0].groups()[0].changed_begin, tables[0].groups()[0].changed_end);
  Write(&cache, &tables[0], 128, 129);
  EXPECT_EQ(tables[0].groups()[0].changed_begin, 2);
  cache.Release(&tables[0]);
}

// Sequences as lists of written values: what is read through the table must be what the sequence
// wrote, whoever else wrote in between.
class Simulation final {
 public:
  Simulation(const CacheOptions& options, uint32_t seed)
      : options_(options), cache_(options), random_(seed) {}

  void Step() {
    const int32_t what = Below(10);
    if (what == 0) {
      Admit();
    } else if (!sequences_.empty()) {
      auto it = sequences_.begin();
      std::advance(it, Below(static_cast<int32_t>(sequences_.size())));
      if (what == 1 && OneIn(3)) {
        cache_.Release(&it->second.table);
        sequences_.erase(it);
      } else {
        Write(&it->second);
      }
    }
    std::vector<const PageTable*> tables;
    for (const auto& [id, sequence] : sequences_) tables.push_back(&sequence.table);
    ASSERT_EQ(cache_.CheckInvariants(tables).ToString(), "OK");
  }

  void Finish() {
    for (auto& [id, sequence] : sequences_) cache_.Release(&sequence.table);
    EXPECT_EQ(cache_.num_free(), cache_.num_pages());
  }
  int32_t num_copies() const { return num_copies_; }

 private:
  struct Sequence {
    PageTable table;
    std::vector<int64_t> values;
    int32_t limit = 0;
    int32_t longest = 0;
  };

  int32_t Below(int32_t n) { return static_cast<int32_t>(random_() % uint32_t(n)); }
  bool OneIn(int32_t n) { return Below(n) == 0; }
  int64_t& Cell(int32_t group, int32_t page, int32_t in_page) {
    return memory_[(int64_t{group} << 40) | (int64_t{page} << 8) | in_page];
  }

  void Admit() {
    KvCache::Request request;
    request.prompt = 1 + Below(200);
    request.length = request.prompt + 1 + Below(150);
    request.choices = 1 + Below(3);
    if (!cache_.CanEverAdmit(request).ok()) return;
    std::vector<PageTable> tables = cache_.Admit(request);
    if (tables.empty()) return;
    Sequence leader;
    leader.table = std::move(tables[0]);
    leader.limit = request.length;
    leader.longest = request.prompt;
    while (static_cast<int32_t>(leader.values.size()) < request.prompt - 1) {
      const int32_t from = static_cast<int32_t>(leader.values.size());
      Rows(from, std::min(from + options_.step_tokens, request.prompt - 1), &leader);
    }
    for (int32_t i = 1; i < request.choices; ++i) {
      Sequence other;
      other.table = std::move(tables[i]);
      other.limit = request.length;
      other.longest = request.prompt;
      other.values = leader.values;
      std::vector<PageCopy> copies;
      cache_.Fork(request.prompt - 1, &leader.table, &other.table, &copies);
      Copy(copies);
      sequences_.emplace(next_++, std::move(other));
    }
    sequences_.emplace(next_++, std::move(leader));
  }

  void Write(Sequence* sequence) {
    int32_t length = static_cast<int32_t>(sequence->values.size());
    if (OneIn(6)) {  // a rewind, down to max_rewind below the longest, and one row more
      const int32_t lowest = std::max(0, sequence->longest - options_.max_rewind - 1);
      if (lowest < length) length = lowest + Below(length - lowest);
      sequence->values.resize(length);
    }
    const int32_t to = std::min(length + 1 + Below(options_.step_tokens), sequence->limit);
    if (to > length) Rows(length, to, sequence);
  }

  void Rows(int32_t from, int32_t to, Sequence* sequence) {
    std::vector<PageCopy> copies;
    const int32_t lowest = std::max(0, sequence->longest - options_.max_rewind - 1);
    cache_.PrepareWrite(from, to, from, std::min(from, lowest), &sequence->table, &copies);
    Copy(copies);
    for (int32_t position = from; position < to; ++position) {
      sequence->values.push_back(++value_);
      for (size_t group = 0; group < options_.groups.size(); ++group) {
        const int32_t page = sequence->table.groups()[group].pages[position / 64];
        ASSERT_EQ(cache_.pool(group).owners(page), 1) << "a shared page is written";
        Cell(group, page, position % 64) = value_;
      }
      CheckSeen(position, *sequence);
    }
    sequence->longest = std::max(sequence->longest, to);
  }

  // What the row at `position` sees is what the sequence wrote.
  void CheckSeen(int32_t position, const Sequence& sequence) {
    for (size_t group = 0; group < options_.groups.size(); ++group) {
      const int32_t window = options_.groups[group].window;
      const int32_t first = window > 0 ? std::max(0, position - window + 1) : 0;
      for (int32_t seen = first; seen <= position; seen += OneIn(4) ? 1 : 7) {
        const int32_t page = sequence.table.groups()[group].pages[seen / 64];
        ASSERT_GE(page, 0);
        ASSERT_EQ(Cell(group, page, seen % 64), sequence.values[seen]) << seen;
      }
    }
  }

  void Copy(const std::vector<PageCopy>& copies) {
    num_copies_ += static_cast<int32_t>(copies.size());
    for (const PageCopy& copy : copies) {
      for (int32_t i = 0; i < copy.num_tokens; ++i) {
        Cell(copy.group, copy.to, i) = Cell(copy.group, copy.from, i);
      }
      for (int32_t i = copy.num_tokens; i < 64; ++i) Cell(copy.group, copy.to, i) = -1;
    }
  }

  const CacheOptions options_;
  KvCache cache_;
  std::mt19937 random_;
  std::map<int32_t, Sequence> sequences_;
  std::map<int64_t, int64_t> memory_;
  int32_t next_ = 0;
  int64_t value_ = 0;
  int32_t num_copies_ = 0;
};

TEST(KvCache, EverySequenceReadsWhatItWroteUnderRandomForksRewindsAndReleases) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Simulation simulation(
        Options({{0, 40}, {48, 40}}, 1 + int32_t(seed) * 7, 5 + int32_t(seed) * 3), seed);
    for (int step = 0; step < 400 && !testing::Test::HasFailure(); ++step) simulation.Step();
    EXPECT_GT(simulation.num_copies(), 0);
    simulation.Finish();
  }
}

}  // namespace
}  // namespace tandem
