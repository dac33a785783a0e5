// Many sequences through small pools, against a plain model of what the pages hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>

#include "engine/cache/kv_cache.h"
#include "tests/engine/cache/kv_cache_harness.h"

namespace tandem::test {
namespace {

// What a row leaves in the cache depends on all tokens up to it, and on the salt.
uint64_t Mix(uint64_t history, int32_t token) {
  uint64_t x = (history ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15u;
  x ^= x >> 32;
  return x * 0xD6E8FEB86659FD93u | 1;
}

// Every cell of every page holds the history of the row that wrote it, or 0. What is read through a
// table must be the sequence's own history, whoever else wrote, was evicted or found in between.
class Simulation final {
 public:
  Simulation(const CacheOptions& options, uint32_t seed)
      : options_(options), cache_(options), random_(seed) {
    for (const CacheGroup& group : options.groups) memory_.emplace_back(group.num_pages * 64, 0);
    // Documents with common beginnings.
    for (int32_t document = 0; document < kDocuments; ++document) {
      for (int32_t i = 0; i < kLongest; ++i) {
        documents_[document].push_back(i < 50 * document ? documents_[0][i] : Below(1000));
      }
    }
  }

  void Step() {
    const int32_t what = Below(20);
    if (what >= 17) {
      Admit();
      if (OneIn(2)) Admit();
    } else if (what == 1) {
      cache_.ExpireRetained(++now_);
    } else if (!sequences_.empty()) {
      auto it = sequences_.begin();
      std::advance(it, Below(static_cast<int32_t>(sequences_.size())));
      Sequence* sequence = &it->second;
      const bool is_done = sequence->written == sequence->promised;
      if (is_done || (what == 3 && OneIn(4))) {
        Release(it->first);
      } else if (what == 4) {
        Extend(sequence);
      } else if (!sequence->is_waiting) {
        if (what == 5) WriteOneRowAgain(sequence);
        if (what == 6 && sequence->followers.empty()) Rewind(sequence);
        if (what > 6) Advance(sequence);
        if (OneIn(2)) Index(sequence);
      }
    }
    Check();
  }

  void Finish() {
    while (!sequences_.empty()) Release(sequences_.begin()->first);
    Check();
    EXPECT_EQ(cache_.num_free(), cache_.num_pages());
    for (size_t group = 0; group < options_.groups.size(); ++group) {
      EXPECT_EQ(cache_.pool(group).num_available(), options_.groups[group].num_pages);
    }
  }

  struct Seen {
    int64_t hits = 0, reuses = 0, copies = 0, evicted = 0, collisions = 0, most_alive = 0;
    bool refused_extension = false;
  };
  Seen seen() const {
    Seen seen = seen_;
    seen.evicted = cache_.counters().evicted_pages;
    seen.collisions = cache_.counters().collisions;
    return seen;
  }

 private:
  static constexpr int32_t kDocuments = 4;
  static constexpr int32_t kLongest = 2000;

  struct Text {
    std::vector<int32_t> tokens;
    std::vector<uint64_t> history;  // of every token
    uint64_t salt = 0;
    int32_t document = 0;
  };
  struct Sequence : Text {
    PageTable table;
    int32_t prompt = 0;
    int32_t promised = 0;            // its length
    int32_t longest = 0;             // that it ever was
    int32_t written = 0;             // rows that count
    bool is_waiting = false;         // for the fork
    std::vector<int32_t> followers;  // that wait for this one
  };

  int32_t Below(int32_t n) { return static_cast<int32_t>(random_() % uint32_t(n)); }
  bool OneIn(int32_t n) { return Below(n) == 0; }
  uint64_t& Cell(size_t group, int32_t page, int32_t position) {
    return memory_[group][page * 64 + position % 64];
  }
  int32_t LowestRow(const Sequence& sequence) const {
    return std::max(0, sequence.longest - options_.max_rewind - 1);
  }

  static void Append(int32_t token, Text* text) {
    text->history.push_back(Mix(text->history.empty() ? text->salt : text->history.back(), token));
    text->tokens.push_back(token);
  }
  // Mostly as the document goes on.
  void AppendNext(Sequence* sequence) {
    const size_t next = sequence->tokens.size();
    Append(OneIn(40) ? Below(1000) : documents_[sequence->document][next], sequence);
  }

  void Admit() {
    if (last_.tokens.empty() || OneIn(2)) {  // else a prompt that may be on its way still
      last_ = Text();
      last_.document = Below(kDocuments);
      last_.salt = OneIn(4) ? 1 : 2;
      const int32_t prompt = 1 + Below(OneIn(3) ? 60 : 400);
      for (int32_t i = 0; i < prompt; ++i) {
        Append(documents_[last_.document][i] + (i + 5 > prompt && OneIn(3)), &last_);
      }
    }
    Sequence leader;
    static_cast<Text&>(leader) = last_;
    leader.prompt = leader.longest = static_cast<int32_t>(leader.tokens.size());
    leader.promised = leader.prompt + Below(150);
    const KvCache::Request request = {leader.tokens, leader.promised, OneIn(2) ? 1 + Below(4) : 1,
                                      !OneIn(8), std::to_string(leader.salt)};
    std::vector<PageCopy> copies;
    KvCache::Admission admission = cache_.Admit(request, &copies);
    if (admission.tables.empty()) {
      ASSERT_TRUE(copies.empty());
      // An empty worker admits whatever can be admitted at all.
      ASSERT_TRUE(!sequences_.empty() || !cache_.CanEverAdmit(request).ok());
      return;
    }
    ASSERT_TRUE(cache_.CanEverAdmit(request).ok());
    Copy(copies);
    ASSERT_EQ(admission.cached_tokens % 64, 0);
    ASSERT_LT(admission.cached_tokens, leader.prompt);
    seen_.hits += admission.cached_tokens > 0;
    for (int32_t i = 1; i < request.choices; ++i) {
      Sequence follower;
      static_cast<Text&>(follower) = last_;
      follower.table = std::move(admission.tables[i]);
      follower.document = Below(kDocuments);
      follower.prompt = follower.longest = leader.prompt;
      follower.promised = leader.promised;
      follower.is_waiting = true;
      leader.followers.push_back(next_);
      sequences_.emplace(next_++, std::move(follower));
    }
    leader.table = std::move(admission.tables[0]);
    leader.written = admission.cached_tokens;
    Sequence& entered = sequences_.emplace(next_++, std::move(leader)).first->second;
    ForkIfReady(&entered);
  }

  // With the followers of a sequence; and with the leader of a follower that waits, its group.
  void Release(int32_t id) {
    if (sequences_.at(id).is_waiting) {
      for (const auto& [other, sequence] : sequences_) {
        const auto& followers = sequence.followers;
        if (std::find(followers.begin(), followers.end(), id) == followers.end()) continue;
        Release(other);
        return;
      }
    }
    const std::vector<int32_t> followers = sequences_.at(id).followers;
    for (const int32_t gone : followers) {
      cache_.Release(&sequences_.at(gone).table, 0);
      sequences_.erase(gone);
    }
    cache_.Release(&sequences_.at(id).table, OneIn(3) ? now_ + 1 + Below(20) : 0);
    sequences_.erase(id);
  }

  void Extend(Sequence* sequence) {
    const int32_t length = sequence->promised + Below(150);
    if (length > kLongest) return;
    const int64_t missing = cache_.MissingPages(sequence->table, length);
    const bool extended = cache_.Extend(&sequence->table, length);
    ASSERT_EQ(extended, missing == 0);
    if (extended) sequence->promised = length;
    seen_.refused_extension |= !extended;
  }

  void ForkIfReady(Sequence* leader) {
    if (leader->written < leader->prompt - 1) return;
    for (const int32_t id : std::exchange(leader->followers, {})) {
      Sequence& follower = sequences_.at(id);
      std::vector<PageCopy> copies;
      cache_.Fork(leader->prompt - 1, &leader->table, &follower.table, &copies);
      Copy(copies);
      follower.is_waiting = false;
      follower.written = leader->prompt - 1;
    }
  }

  void Advance(Sequence* sequence) {
    if (sequence->written + 1 < sequence->prompt &&
        static_cast<int32_t>(sequence->tokens.size()) >= sequence->prompt &&
        sequence->written % 64 == 0 && !OneIn(4)) {
      cache_.IndexPages(std::span(sequence->tokens).first(sequence->written), &sequence->table);
      std::vector<PageCopy> copies;
      const int32_t found = cache_.Reuse(std::span(sequence->tokens).first(sequence->prompt),
                                         sequence->written, &sequence->table, &copies);
      Copy(copies);
      ASSERT_GE(found, sequence->written);
      ASSERT_LT(found, sequence->prompt);
      seen_.reuses += found > sequence->written;
      sequence->written = found;
    }
    const int32_t most = sequence->followers.empty() ? sequence->promised : sequence->prompt;
    int32_t to = std::min(sequence->written + 1 + Below(options_.step_tokens), most);
    if (to / 64 > sequence->written / 64 && !OneIn(4)) to = to / 64 * 64;
    while (static_cast<int32_t>(sequence->tokens.size()) < to) AppendNext(sequence);
    if (to > sequence->written) Rows(sequence->written, to, sequence);
    ForkIfReady(sequence);
  }

  // To at most max_rewind below the longest; the last row is run again.
  void Rewind(Sequence* sequence) {
    const int32_t length = static_cast<int32_t>(sequence->tokens.size());
    const int32_t lowest = std::max(1, sequence->longest - options_.max_rewind);
    if (lowest >= length) return;
    const int32_t rest = lowest + Below(length - lowest);
    sequence->tokens.resize(rest);
    sequence->history.resize(rest);
    sequence->written = std::min(sequence->written, rest - 1);
  }

  // What follows it counts still.
  void WriteOneRowAgain(Sequence* sequence) {
    const int32_t lowest = LowestRow(*sequence);
    if (lowest >= sequence->written) return;
    const int32_t row = lowest + Below(sequence->written - lowest);
    Rows(row, row + 1, sequence);
  }

  void Index(Sequence* sequence) {
    const int32_t final = std::max(0, sequence->written - (OneIn(2) ? 0 : Below(100)));
    cache_.IndexPages(std::span(sequence->tokens).first(final), &sequence->table);
  }

  void Rows(int32_t from, int32_t to, Sequence* sequence) {
    std::vector<std::vector<int32_t>> before;
    for (const PageTable::Group& group : sequence->table.groups()) before.push_back(group.pages);
    std::vector<PageCopy> copies;
    cache_.PrepareWrite(from, to, sequence->written, std::min(from, LowestRow(*sequence)),
                        &sequence->table, &copies);
    for (size_t group = 0; group < before.size(); ++group) {
      const std::vector<int32_t>& pages = Pages(sequence->table, group);
      for (size_t index = 0; index < pages.size(); ++index) {
        if (pages[index] < 0) continue;
        if (index < before[group].size() && before[group][index] == pages[index]) continue;
        const auto is_target = [&](const PageCopy& copy) {
          return copy.group == static_cast<int32_t>(group) && copy.to == pages[index];
        };
        if (std::any_of(copies.begin(), copies.end(), is_target)) continue;
        for (int32_t i = 0; i < 64; ++i) Cell(group, pages[index], i) = 0;  // a page of no content
      }
    }
    Copy(copies);
    for (size_t group = 0; group < before.size(); ++group) {
      for (int32_t position = from; position < to; ++position) {
        const int32_t page = Pages(sequence->table, group)[position / 64];
        ASSERT_GE(page, 0);
        ASSERT_EQ(cache_.pool(group).owners(page), 1) << "a shared page is written";
        ASSERT_EQ(cache_.pool(group).node(page), -1) << "a page of the index is written";
        Cell(group, page, position) = sequence->history[position];
      }
    }
    sequence->written = std::max(sequence->written, to);
    sequence->longest = std::max(sequence->longest, to);
  }

  // In their order: a page may be the target of one copy and then the source of another.
  void Copy(const std::vector<PageCopy>& copies) {
    seen_.copies += static_cast<int64_t>(copies.size());
    for (const PageCopy& copy : copies) {
      ASSERT_NE(copy.from, copy.to);
      ASSERT_TRUE(copy.num_tokens >= 1 && copy.num_tokens <= 64);
      for (int32_t i = 0; i < 64; ++i) {
        Cell(copy.group, copy.to, i) = i < copy.num_tokens ? Cell(copy.group, copy.from, i) : 0;
      }
    }
  }

  void Check() {
    std::vector<const PageTable*> tables;
    for (const auto& [id, sequence] : sequences_) tables.push_back(&sequence.table);
    ASSERT_EQ(cache_.CheckInvariants(tables).ToString(), "OK");
    seen_.most_alive = std::max<int64_t>(seen_.most_alive, tables.size());
    for (const auto& [id, sequence] : sequences_) {
      if (!sequence.is_waiting) CheckReads(sequence);
    }
  }

  // All that the next row reads, and the lowest that a rewind may lead to.
  void CheckReads(const Sequence& sequence) {
    const int32_t row = std::min(sequence.written, LowestRow(sequence));
    for (size_t group = 0; group < options_.groups.size(); ++group) {
      const int32_t window = options_.groups[group].window;
      const std::vector<int32_t>& pages = Pages(sequence.table, group);
      for (int32_t position = window > 0 ? std::max(0, row - window + 1) : 0;
           position < sequence.written; ++position) {
        const int32_t page = pages[position / 64];
        ASSERT_GE(page, 0) << "position " << position << " of group " << group;
        ASSERT_EQ(Cell(group, page, position), sequence.history[position])
            << "position " << position << " of group " << group;
      }
    }
  }

  const CacheOptions options_;
  KvCache cache_;
  std::mt19937 random_;
  std::vector<int32_t> documents_[kDocuments];
  std::map<int32_t, Sequence> sequences_;
  Text last_;                                  // that was to be admitted
  std::vector<std::vector<uint64_t>> memory_;  // [num_groups][num_pages * 64]
  int32_t next_ = 0;
  Nanos now_ = 0;
  Seen seen_;
};

// Runs 20 seeds, and expects that all that is to be tested did happen.
void RunSeeds(const std::vector<int32_t>& windows, bool prefix_index, uint64_t hash_mask) {
  Simulation::Seen total;
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    CacheOptions options =
        Options({}, 1 + static_cast<int32_t>(seed) * 9, 5 + static_cast<int32_t>(seed) * 7);
    for (const int32_t window : windows) {
      const int32_t num_pages =
          window > 0 ? KvCache::WindowPages(window, options.max_rewind, options.step_tokens) * 4 +
                           static_cast<int32_t>(seed % 5)
                     : 14 + static_cast<int32_t>(seed);
      options.groups.push_back({window, num_pages});
    }
    options.prefix_index = prefix_index;
    options.hash_mask = hash_mask;
    Simulation simulation(options, seed);
    for (int step = 0; step < 2000 && !testing::Test::HasFatalFailure(); ++step) simulation.Step();
    if (testing::Test::HasFatalFailure()) return;
    simulation.Finish();
    const Simulation::Seen seen = simulation.seen();
    total.hits += seen.hits;
    total.reuses += seen.reuses;
    total.copies += seen.copies;
    total.evicted += seen.evicted;
    total.collisions += seen.collisions;
    total.most_alive = std::max(total.most_alive, seen.most_alive);
    total.refused_extension |= seen.refused_extension;
  }
  EXPECT_GT(total.copies, 100);
  EXPECT_GE(total.most_alive, 4);
  EXPECT_TRUE(total.refused_extension);
  EXPECT_EQ(total.hits > 100, prefix_index) << total.hits;
  EXPECT_EQ(total.reuses > 10, prefix_index) << total.reuses;
  EXPECT_EQ(total.evicted > 100, prefix_index) << total.evicted;
  EXPECT_EQ(total.collisions > 0, hash_mask == 0) << total.collisions;
}

TEST(KvCacheRandom, EverySequenceReadsItsOwnHistoryInOneFullGroup) { RunSeeds({0}, true, ~0ull); }

TEST(KvCacheRandom, EverySequenceReadsItsOwnHistoryWithAWindowGroup) {
  RunSeeds({0, 48}, true, ~0ull);
}

TEST(KvCacheRandom, EverySequenceReadsItsOwnHistoryWithManyGroups) {
  RunSeeds({100, 0, 1, 0}, true, ~0ull);
}

TEST(KvCacheRandom, EverySequenceReadsItsOwnHistoryInWindowGroupsAlone) {
  RunSeeds({64, 130}, true, ~0ull);
}

TEST(KvCacheRandom, EverySequenceReadsItsOwnHistoryWithoutTheIndex) {
  RunSeeds({0, 48}, false, ~0ull);
}

TEST(KvCacheRandom, B077_EverySequenceReadsItsOwnHistoryWhereAllHashesCollide) {
  RunSeeds({0, 48}, true, 0);
}

}  // namespace
}  // namespace tandem::test
