// Which pages every sequence holds, in every layer group. Knows no device memory: what has to be
// copied and which entries of a page table changed is handed to the caller.
//
// A table maps a sequence's positions to pages of tensor.h's kPageTokens. It only grows; how many
// of its tokens count is the caller's knowledge, so that a rewind costs nothing. A page with
// several owners (forks of one prompt) is never written: PrepareWrite first gives the writer a page
// of its own with the tokens that still count.
//
// Reservation: Admit promises, per group, all the pages that a sequence can ever take until it is
// `length` long, also where rewinds (at most max_rewind tokens below the length at the fork) end in
// shared pages; so a sequence within its length never waits for a page. Of a window group it is the
// number of pages that the window, the rewind and a step span; pages that leave the window are
// used again by the same sequence.
//
// Worked example, one full group, a prompt of 130 tokens, 2 choices, length 200, max_rewind 16. The
// forks share tokens [0, 129): pages 0 and 1; the partial page is copied. A rewind reaches row
// 130 - 16 - 1 = 113, in page 1. So the leader is promised 4 pages and 1 more for its own page 1;
// the other choice 3, its own pages 1 to 3.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/cache/page_pool.h"

namespace tandem {

// Copy tokens [0, num_tokens) of a page, every layer of the group.
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
    int32_t num_reserved = 0;    // promises not yet taken
    // Entries [changed_begin, changed_end) differ from what the caller last saw; empty if equal.
    int32_t changed_begin = 0;
    int32_t changed_end = 0;
  };
  std::span<const Group> groups() const { return groups_; }
  void ClearChanges();
  // All entries count as changed: for a caller that puts the table elsewhere.
  void ChangeAll();

 private:
  friend class KvCache;
  std::vector<Group> groups_;
  int32_t covered_pages_ = 0;  // pages up to the length that the promises cover
};

struct CacheGroup {
  int32_t window = 0;  // 0: full attention
  int32_t num_pages = 0;
};

struct CacheOptions {
  std::vector<CacheGroup> groups;
  int32_t max_rewind = 0;   // most tokens that a sequence is cut below the longest it was
  int32_t step_tokens = 0;  // most rows that one PrepareWrite covers
};

class KvCache final {
 public:
  explicit KvCache(const CacheOptions& options);
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  // Pages that a window group needs for one sequence of any length.
  static int32_t WindowPages(int32_t window, int32_t max_rewind, int32_t step_tokens);

  // A request of `choices` sequences that share a prompt of `prompt` tokens and may each grow to
  // `length`. REQUIRES 1 <= prompt <= length, choices >= 1.
  struct Request {
    int32_t prompt = 0;
    int32_t length = 0;
    int32_t choices = 1;
  };
  // OK, or RESOURCE_EXHAUSTED with what is needed and what there is: it can never be admitted.
  absl::Status CanEverAdmit(const Request& request) const;
  // Promises the pages of every choice: one table each, the first of which computes the prompt.
  // Empty where they are not available now.
  std::vector<PageTable> Admit(const Request& request);
  // Extends the promises of a table to `length`. False: the pages are not available.
  bool Extend(PageTable* table, int32_t length);

  // Makes [from, to) writable: takes pages, replaces shared ones (copying what counts below
  // `valid`), drops what lies below the window of row keep_from. Appends the copies to be made
  // before the write. REQUIRES keep_from <= from < to <= from + step_tokens and to within the
  // promised length.
  void PrepareWrite(int32_t from, int32_t to, int32_t valid, int32_t keep_from, PageTable* table,
                    std::vector<PageCopy>* copies);
  // Gives child, which has no pages yet, tokens [0, num_tokens) of parent: full pages are shared,
  // the partial page is copied. REQUIRES both of one Admit.
  void Fork(int32_t num_tokens, PageTable* parent, PageTable* child, std::vector<PageCopy>* copies);
  // Gives back pages and promises; the table is empty after it.
  void Release(PageTable* table);

  int64_t num_free() const;   // pages of all groups
  int64_t num_pages() const;  // of all groups
  const PagePool& pool(int32_t group) const { return pools_[group]; }

  // free + used = total, every used page has exactly the owners that the tables show, every promise
  // belongs to a table. tables: all that are not empty. INTERNAL says what does not hold.
  absl::Status CheckInvariants(std::span<const PageTable* const> tables) const;

 private:
  int32_t NeededPages(int32_t group, int32_t pages) const;
  int32_t ExtraOfLeader(int32_t group, const Request& request) const;
  int32_t PagesOfOther(int32_t group, const Request& request) const;
  int64_t PagesOfRequest(int32_t group, const Request& request) const;
  int32_t TakePage(int32_t group, PageTable* table);
  static void SetPage(int32_t index, int32_t page, PageTable::Group* group);

  CacheOptions options_;
  std::vector<PagePool> pools_;  // [num_groups]
};

}  // namespace tandem
