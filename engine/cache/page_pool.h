// The pages of one layer group: how many own each, which are free, how many of the free ones are
// promised. Knows no device memory.
//
// Invariants (CheckInvariants):
//   1. a page is in the free list exactly once iff it has no owner;
//   2. 0 <= reserved <= free: every promise can be kept.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace tandem {

class PagePool final {
 public:
  // REQUIRES num_pages >= 0.
  explicit PagePool(int32_t num_pages);

  int32_t num_pages() const { return static_cast<int32_t>(owners_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t num_reserved() const { return num_reserved_; }
  // Free and not promised to anyone.
  int32_t num_available() const { return num_free() - num_reserved_; }
  int32_t owners(int32_t page) const { return owners_[page]; }

  // Promises pages to the caller, who counts its own promises. REQUIRES
  // 0 <= pages <= num_available().
  void Reserve(int32_t pages);
  // Gives promises back. REQUIRES 0 <= pages <= num_reserved().
  void Unreserve(int32_t pages);
  // Turns one promise of the caller into a page with one owner. REQUIRES num_reserved() > 0.
  int32_t Take();
  // One more owner. REQUIRES that the page has one.
  void Share(int32_t page);
  // One owner less; without any the page is free. REQUIRES that the page has one.
  void Drop(int32_t page);

  // INTERNAL names the invariant and the page.
  absl::Status CheckInvariants() const;

 private:
  std::vector<int32_t> owners_;  // [num_pages]
  std::vector<int32_t> free_;    // a stack: the page freed last is taken first
  int32_t num_reserved_ = 0;
};

}  // namespace tandem
