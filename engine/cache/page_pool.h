// The pages of one layer group: who owns each, which are free or cached, how many are promised.
// Knows no device memory.
//
// A page is free, used (it has owners: sequences whose tables show it) or cached (no owner, but the
// prefix index names it). Cached pages count as available: whoever takes the last free page evicts
// one first. They stand in the order in which their last owner left or their retention passed;
// those that are retained until some time come after all others, by that time.
//
// Promises. A sequence reserves the pages that it will take. Beside that, every shared page carries
// the copies that its owners may still need: an owner that may write it again (a rewind can reach
// it) is unsettled there; before it writes, it takes a page of its own, and the last owner left
// writes in place. So a page with n owners, r of them unsettled, carries min(n - 1, r) copies. Each
// new owner brings at most one of them, from its own reservation.
//
// Invariants (CheckInvariants):
//   1. free + used + cached = all pages; a page is in the free list exactly once iff it is free;
//   2. 0 <= unsettled <= owners, for every page;
//   3. the copies are the sum over all pages of min(owners - 1, unsettled);
//   4. reserved + copies <= free + cached: every promise can be kept.
#pragma once

#include <compare>
#include <cstdint>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/clock.h"

namespace tandem {

class PagePool final {
 public:
  // REQUIRES num_pages >= 0.
  explicit PagePool(int32_t num_pages);

  int32_t num_pages() const { return static_cast<int32_t>(pages_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t num_cached() const { return num_cached_; }
  int32_t num_reserved() const { return num_reserved_; }
  int32_t num_copies() const { return num_copies_; }
  // Free or cached, and not promised to anyone.
  int32_t num_available() const { return num_free() + num_cached_ - num_reserved_ - num_copies_; }
  // Rises whenever num_available() may have.
  int64_t num_releases() const { return num_releases_; }
  int32_t owners(int32_t page) const { return pages_[page].owners; }
  // Of the prefix index, as SetNode said; -1: it does not name the page.
  int32_t node(int32_t page) const { return pages_[page].node; }

  // Promises pages to the caller, who counts its own promises. REQUIRES
  // 0 <= pages <= num_available().
  void Reserve(int32_t pages);
  // Gives promises back. REQUIRES 0 <= pages <= num_reserved().
  void Unreserve(int32_t pages);
  // Turns one promise of the caller into a page with one owner, unsettled. REQUIRES
  // num_reserved() > 0 and num_free() > 0.
  int32_t Take();

  // Copies that the page would not carry any more if an owner left it.
  int32_t CopiesOfDrop(int32_t page, bool unsettled) const;
  // Copies that a new owner would bring.
  int32_t CopiesOfShare(int32_t page, bool unsettled) const;
  // One more owner, of a used or cached page; as many promises of the caller as CopiesOfShare says
  // become the page's. REQUIRES that the caller has them.
  void Share(int32_t page, bool unsettled);
  // An unsettled owner will not write the page again.
  void Settle(int32_t page);
  // One owner less. Without any the page is cached if the index names it, else free. REQUIRES that
  // the page has one.
  void Drop(int32_t page, bool unsettled);

  // The index names the page by this node, or (-1) does not any more; then a cached page is free.
  void SetNode(int32_t page, int32_t node);
  // The page is evicted after all that are not retained, until ExpireRetained is told of a time
  // that is not before `until`. A later time replaces an earlier one. REQUIRES that the index names
  // it.
  void Retain(int32_t page, Nanos until);
  // now: never falls.
  void ExpireRetained(Nanos now);
  // The cached page to give up first; -1: none is cached.
  int32_t Oldest() const;

  // INTERNAL names the invariant and the page.
  absl::Status CheckInvariants() const;

 private:
  struct Page {
    int32_t owners = 0;
    int32_t unsettled = 0;
    int32_t node = -1;
    int32_t older = -1;  // neighbours in the list of cached pages
    int32_t newer = -1;
    Nanos retained_until = 0;
    int64_t turn = 0;  // rises as pages become cached
  };
  struct Retained {
    Nanos until = 0;
    int64_t turn = 0;
    int32_t page = 0;
    friend auto operator<=>(const Retained&, const Retained&) = default;
  };
  static int32_t CopiesOf(const Page& page);
  void EnterCached(int32_t page);
  void LeaveCached(int32_t page);

  std::vector<Page> pages_;    // [num_pages]
  std::vector<int32_t> free_;  // a stack: the page freed last is taken first
  int32_t oldest_ = -1;        // of the cached pages that are not retained
  int32_t newest_ = -1;
  std::set<Retained> retained_;  // cached and retained
  Nanos now_ = 0;                // of the last ExpireRetained
  int64_t next_turn_ = 1;
  int64_t num_releases_ = 0;
  int32_t num_cached_ = 0;
  int32_t num_reserved_ = 0;
  int32_t num_copies_ = 0;
};

}  // namespace tandem
