#include "engine/cache/page_pool.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/planted_bugs.h"
#include "engine/base/status.h"

namespace tandem {

PagePool::PagePool(int32_t num_pages) {
  TANDEM_CHECK(num_pages >= 0) << "num_pages " << num_pages;
  pages_.resize(num_pages);
  free_.reserve(num_pages);
  for (int32_t page = num_pages - 1; page >= 0; --page) free_.push_back(page);
}

int32_t PagePool::CopiesOf(const Page& page) {
  return std::min(std::max(0, page.owners - 1), page.unsettled);
}

void PagePool::Reserve(int32_t pages) {
  TANDEM_CHECK(pages >= 0 && (pages <= num_available() || Planted(Bug::kOvercommit)))
      << "reserve " << pages << " of " << num_available();
  num_reserved_ += pages;
}

void PagePool::Unreserve(int32_t pages) {
  TANDEM_CHECK(pages >= 0 && pages <= num_reserved_)
      << "unreserve " << pages << " of " << num_reserved_;
  num_reserved_ -= pages;
  ++num_releases_;
}

int32_t PagePool::Take() {
  TANDEM_CHECK(num_reserved_ > 0 && !free_.empty())
      << num_reserved_ << " reserved, " << free_.size() << " free";
  --num_reserved_;
  const int32_t page = free_.back();
  free_.pop_back();
  pages_[page].owners = 1;
  pages_[page].unsettled = 1;
  return page;
}

int32_t PagePool::CopiesOfDrop(int32_t page, bool unsettled) const {
  Page after = pages_[page];
  --after.owners;
  after.unsettled -= unsettled;
  return CopiesOf(pages_[page]) - CopiesOf(after);
}

int32_t PagePool::CopiesOfShare(int32_t page, bool unsettled) const {
  Page after = pages_[page];
  ++after.owners;
  after.unsettled += unsettled;
  return CopiesOf(after) - CopiesOf(pages_[page]);
}

void PagePool::Share(int32_t page, bool unsettled) {
  TANDEM_CHECK(page >= 0 && page < num_pages() &&
               (pages_[page].owners > 0 || pages_[page].node >= 0))
      << "page " << page;
  const int32_t copies = CopiesOfShare(page, unsettled);
  TANDEM_CHECK(copies <= num_reserved_) << copies << " copies of " << num_reserved_ << " reserved";
  num_reserved_ -= copies;
  num_copies_ += copies;
  Page& entry = pages_[page];
  if (entry.owners == 0) LeaveCached(page);
  ++entry.owners;
  entry.unsettled += unsettled;
}

void PagePool::Settle(int32_t page) {
  Page& entry = pages_[page];
  TANDEM_CHECK(entry.unsettled > 0) << "page " << page << " has no unsettled owner";
  num_copies_ -= CopiesOf(entry);
  --entry.unsettled;
  num_copies_ += CopiesOf(entry);
  ++num_releases_;
}

void PagePool::Drop(int32_t page, bool unsettled) {
  TANDEM_CHECK(page >= 0 && page < num_pages() && pages_[page].owners > 0) << "page " << page;
  Page& entry = pages_[page];
  num_copies_ -= CopiesOf(entry);
  --entry.owners;
  entry.unsettled -= unsettled;
  num_copies_ += CopiesOf(entry);
  ++num_releases_;
  if (entry.owners > 0) return;
  if (entry.node >= 0) {
    EnterCached(page);
  } else {
    free_.push_back(page);
  }
}

void PagePool::SetNode(int32_t page, int32_t node) {
  Page& entry = pages_[page];
  if (entry.owners == 0 && entry.node >= 0 && node < 0) {
    LeaveCached(page);
    free_.push_back(page);
  }
  entry.node = node;
  if (node < 0) entry.retained_until = 0;
}

void PagePool::Retain(int32_t page, Nanos until) {
  Page& entry = pages_[page];
  TANDEM_CHECK(entry.node >= 0) << "page " << page << " is not in the index";
  if (until <= entry.retained_until) return;
  const bool is_cached = entry.owners == 0;
  if (is_cached) LeaveCached(page);
  entry.retained_until = until;
  if (is_cached) EnterCached(page);
}

void PagePool::ExpireRetained(Nanos now) {
  if (Planted(Bug::kRetainForever)) return;
  now_ = now;
  while (!retained_.empty() && retained_.begin()->until <= now) {
    const int32_t page = retained_.begin()->page;
    LeaveCached(page);
    EnterCached(page);
  }
}

int32_t PagePool::Oldest() const {
  if (oldest_ >= 0 || Planted(Bug::kRetainForever)) return oldest_;
  return retained_.empty() ? -1 : retained_.begin()->page;
}

void PagePool::EnterCached(int32_t page) {
  Page& entry = pages_[page];
  ++num_cached_;
  entry.turn = next_turn_++;
  if (entry.retained_until <= now_) entry.retained_until = 0;
  if (entry.retained_until > 0) {
    retained_.insert({entry.retained_until, entry.turn, page});
    return;
  }
  entry.older = newest_;
  entry.newer = -1;
  (newest_ >= 0 ? pages_[newest_].newer : oldest_) = page;
  newest_ = page;
}

void PagePool::LeaveCached(int32_t page) {
  Page& entry = pages_[page];
  --num_cached_;
  if (entry.retained_until > 0) {
    retained_.erase({entry.retained_until, entry.turn, page});
    return;
  }
  (entry.older >= 0 ? pages_[entry.older].newer : oldest_) = entry.newer;
  (entry.newer >= 0 ? pages_[entry.newer].older : newest_) = entry.older;
}

absl::Status PagePool::CheckInvariants() const {
  std::vector<int32_t> times_free(pages_.size(), 0);
  for (const int32_t page : free_) ++times_free[page];
  std::vector<int32_t> times_cached(pages_.size(), 0);
  for (int32_t page = oldest_; page >= 0; page = pages_[page].newer) ++times_cached[page];
  for (const Retained& retained : retained_) ++times_cached[retained.page];
  int64_t num_cached = 0;
  int64_t num_copies = 0;
  for (int32_t page = 0; page < num_pages(); ++page) {
    const Page& entry = pages_[page];
    const bool is_cached = entry.owners == 0 && entry.node >= 0;
    const bool is_free = entry.owners == 0 && entry.node < 0;
    if (entry.owners < 0 || times_free[page] != is_free || times_cached[page] != is_cached) {
      return Internal("page ", page, " has ", entry.owners, " owners, node ", entry.node,
                      " and is ", times_free[page], " times free, ", times_cached[page],
                      " times cached");
    }
    if (entry.unsettled < 0 || entry.unsettled > entry.owners) {
      return Internal("page ", page, " has ", entry.unsettled, " unsettled of ", entry.owners,
                      " owners");
    }
    num_cached += is_cached;
    num_copies += CopiesOf(entry);
  }
  if (num_cached != num_cached_ || num_copies != num_copies_) {
    return Internal(num_cached_, " cached pages and ", num_copies_,
                    " copies are counted: there are ", num_cached, " and ", num_copies);
  }
  if (num_reserved_ < 0 || num_available() < 0) {
    return Internal(num_reserved_, " pages are reserved and ", num_copies_, " are copies of ",
                    num_free(), " free and ", num_cached_, " cached");
  }
  return absl::OkStatus();
}

}  // namespace tandem
