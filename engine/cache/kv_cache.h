// Which pages every sequence holds, in every layer group, and which hold tokens that later
// sequences may find. Knows no device memory: what has to be copied and which entries of a page
// table changed is handed to the caller.
//
// A table maps a sequence's positions to pages of tensor.h's kPageTokens. It only grows; how many
// of its tokens count is the caller's knowledge, so that a rewind costs nothing. A page with
// several owners is never written: PrepareWrite first gives the writer a page of its own with the
// tokens that still count. Groups with full attention share pages; a window group never does: what
// a fork or a hit needs of it is copied, which is at most a window.
//
// Reservation: Admit promises, per group, all the pages that a sequence can ever take until it is
// `length` long, also where rewinds (at most max_rewind tokens below the longest it was) end in
// shared pages; so a sequence within its length never waits for a page. Of a window group it is the
// number of pages that the window, the rewind and a step span; pages that leave the window are used
// again by the same sequence.
//
// Worked example, one full group, a prompt of 130 tokens, 2 choices, length 200, max_rewind 16. The
// forks share tokens [0, 129): pages 0 and 1; the partial page is copied. A rewind reaches row
// 130 - 16 - 1 = 113, in page 1. So the leader is promised 4 pages, the other choice 3: pages 2 and
// 3, and its copy of page 1.
//
// The prefix index. IndexPages names a sequence's pages whose tokens are final. Admit and Reuse
// find them: a hit is a number of whole pages from the start, at most floor((prompt - 1) / 64), so
// that a row for the logits remains, and only as far as every group still has all pages that the
// next row, or one that a rewind may reach, reads. A page that is written again (after a rewind)
// leaves the index first, with all that follow it. Pages without an owner are evicted when no other
// is free, the least recently used first, and of one sequence the last page first.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/clock.h"
#include "engine/cache/page_pool.h"
#include "engine/cache/prefix_index.h"

namespace tandem {

// Copy tokens [0, num_tokens) of a page, every layer of the group. Copies are made in the order in
// which they are handed out, and before what is written next: a page may be read by one and then
// written by a later one.
struct PageCopy {
  int32_t group = 0;
  int32_t from = 0;
  int32_t to = 0;
  int32_t num_tokens = 0;
};

// The pages of one sequence. Moves, but is only filled and emptied by its KvCache.
class PageTable final {
 public:
  PageTable() = default;
  PageTable(PageTable&&) = default;
  PageTable& operator=(PageTable&&) = default;
  PageTable(const PageTable&) = delete;
  PageTable& operator=(const PageTable&) = delete;

  struct Group {
    std::vector<int32_t>
        pages;  // page of positions [64 j, 64 j + 64); -1 where the window dropped it
    std::vector<int32_t> spare;  // owned, not in use
    int32_t num_dropped = 0;     // leading entries that are -1
    int32_t num_settled = 0;     // leading entries that are never written again
    int32_t num_reserved = 0;    // promises not yet taken
    // Entries [changed_begin, changed_end) differ from what the caller last saw; empty if equal.
    int32_t changed_begin = 0;
    int32_t changed_end = 0;
  };
  std::span<const Group> groups() const { return groups_; }
  // Pages up to here are promised.
  int32_t covered_pages() const { return covered_pages_; }
  void ClearChanges();
  // All entries count as changed: for a caller that puts the table elsewhere.
  void ChangeAll();

 private:
  friend class KvCache;
  std::vector<Group> groups_;
  int32_t covered_pages_ = 0;
  bool use_index_ = false;
  std::string salt_;
  std::vector<NodeRef> chain_;  // nodes of the leading pages, as far as they are indexed
};

struct CacheGroup {
  int32_t window = 0;  // 0: full attention
  int32_t num_pages = 0;
};

struct CacheOptions {
  std::vector<CacheGroup> groups;
  int32_t max_rewind = 0;   // most tokens that a sequence is cut below the longest it was
  int32_t step_tokens = 0;  // most rows that one PrepareWrite covers
  bool prefix_index = true;
  uint64_t hash_seed = 0;
  uint64_t hash_mask = ~uint64_t{0};
};

struct CacheCounters {
  int64_t lookups = 0;        // admissions that looked
  int64_t reused_pages = 0;   // page positions, counted once over all groups
  int64_t indexed_pages = 0;  // likewise
  int64_t evicted_pages = 0;  // of all groups
  int64_t collisions = 0;
};

class KvCache final {
 public:
  explicit KvCache(const CacheOptions& options);
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  // Pages that a window group needs for one sequence of any length.
  static int32_t WindowPages(int32_t window, int32_t max_rewind, int32_t step_tokens);

  // A request of `choices` sequences that share a prompt and may each grow to `length`. REQUIRES
  // 1 <= tokens.size() <= length, choices >= 1.
  struct Request {
    std::span<const int32_t> tokens;  // the prompt
    int32_t length = 0;
    int32_t choices = 1;
    bool use_index = false;
    std::string salt;
    int32_t most_cached = std::numeric_limits<int32_t>::max();  // tokens that may be found
  };
  // OK, or RESOURCE_EXHAUSTED with what is needed and what there is: it can never be admitted.
  absl::Status CanEverAdmit(const Request& request) const;
  // Promises the pages of every choice: one table each, the first of which computes the prompt.
  // tables is empty where they are not available now. Else the first table holds the pages of
  // tokens [0, cached_tokens) already, once the copies are made.
  struct Admission {
    std::vector<PageTable> tables;
    int32_t cached_tokens = 0;
  };
  Admission Admit(const Request& request, std::vector<PageCopy>* copies);
  // The same later, for a table whose pages end at token `computed`, a whole number of pages: adds
  // what was indexed in the meantime. Returns how many tokens of the prompt the table then holds.
  int32_t Reuse(std::span<const int32_t> prompt, int32_t computed, PageTable* table,
                std::vector<PageCopy>* copies);
  // Extends the promises of a table to `length`. False: the pages are not available.
  bool Extend(PageTable* table, int32_t length);
  // Pages that Extend lacks, over all groups; 0: it would succeed.
  int64_t MissingPages(const PageTable& table, int32_t length) const;
  // Pages that Release would make available, over all groups.
  int64_t ReclaimablePages(const PageTable& table) const;

  // Makes [from, to) writable: takes pages, replaces shared ones (copying what counts below
  // `valid`), drops what lies below the window of row keep_from, takes what is written out of the
  // index. No row below keep_from is written later. Appends the copies to be made before the write.
  // REQUIRES keep_from <= from < to <= from + step_tokens and to within the promised length.
  void PrepareWrite(int32_t from, int32_t to, int32_t valid, int32_t keep_from, PageTable* table,
                    std::vector<PageCopy>* copies);
  // Gives child, which has no pages yet, tokens [0, num_tokens) of parent: full pages are shared
  // (copied in window groups), the partial page is copied. REQUIRES both of one Admit, and
  // num_tokens one less than its tokens.
  void Fork(int32_t num_tokens, PageTable* parent, PageTable* child, std::vector<PageCopy>* copies);
  // Puts the pages of tokens [0, tokens.size()), which are final, into the index.
  void IndexPages(std::span<const int32_t> tokens, PageTable* table);
  // Gives back pages and promises; the table is empty after it. Its indexed pages are retained
  // until `retain_until` (0: not).
  void Release(PageTable* table, Nanos retain_until);
  // Retained pages whose time has passed are like any other.
  void ExpireRetained(Nanos now);

  int64_t num_free() const;    // pages of all groups that are free or cached
  int64_t num_cached() const;  // of all groups
  int64_t num_pages() const;   // of all groups
  // Rises whenever an admission that failed might not fail any more.
  int64_t num_chances() const;
  CacheCounters counters() const;
  const PagePool& pool(int32_t group) const { return pools_[group]; }

  // free + used + cached = total, every used page has exactly the owners that the tables show,
  // every promise belongs to a table or a shared page, every cached page to the index. tables: all
  // that are not empty. INTERNAL says what does not hold.
  absl::Status CheckInvariants(std::span<const PageTable* const> tables) const;

 private:
  // Pages [0, pages) of a prompt that the index has. first_kept: per group, the first of them that
  // is needed.
  struct Hit {
    int32_t pages = 0;
    std::vector<NodeRef> nodes;       // [pages]
    std::vector<int32_t> first_kept;  // [num_groups]
  };

  // kv_cache.cc
  int32_t NeededPages(int32_t group, int32_t pages) const;
  int32_t LowestRow(int32_t prompt) const;
  int32_t ReachableSharedPages(int32_t prompt) const;
  int64_t PagesOfOthers(int32_t group, const Request& request) const;
  int32_t TakePage(int32_t group, PageTable* table);
  void GiveBack(int32_t group, int32_t index, PageTable* table);
  void DropBelow(int32_t group, int32_t num_below, PageTable* table);
  void SettleBelow(int32_t group, int32_t num_below, PageTable* table);
  void ReplacePage(int32_t group, int32_t index, int32_t valid, PageTable* table,
                   std::vector<PageCopy>* copies);
  static void SetPage(int32_t index, int32_t page, PageTable::Group* group);

  // kv_cache_prefix.cc
  Hit Find(std::span<const int32_t> prompt, int32_t from_page, NodeRef parent) const;
  bool HoldsWindow(const Hit& hit, int32_t from_page, int32_t prompt, int32_t pages,
                   std::vector<int32_t>* first_kept) const;
  int64_t CostOfHit(int32_t group, const Hit& hit, int32_t prompt) const;
  void Attach(const Hit& hit, int32_t from_page, int32_t prompt, PageTable* table,
              std::vector<PageCopy>* copies);
  void Forget(int32_t group, int32_t page);
  void EvictOldest(int32_t group);

  CacheOptions options_;
  std::vector<PagePool> pools_;  // [num_groups]
  PrefixIndex index_;
  CacheCounters counters_;
  std::vector<NamedPage> named_;  // scratch
};

}  // namespace tandem
