#include "engine/cache/page_pool.h"

#include "engine/base/check.h"
#include "engine/base/status.h"

namespace tandem {

PagePool::PagePool(int32_t num_pages) {
  TANDEM_CHECK(num_pages >= 0) << "num_pages " << num_pages;
  owners_.assign(num_pages, 0);
  free_.reserve(num_pages);
  for (int32_t page = num_pages - 1; page >= 0; --page) free_.push_back(page);
}

void PagePool::Reserve(int32_t pages) {
  TANDEM_CHECK(pages >= 0 && pages <= num_available())
      << "reserve " << pages << " of " << num_available();
  num_reserved_ += pages;
}

void PagePool::Unreserve(int32_t pages) {
  TANDEM_CHECK(pages >= 0 && pages <= num_reserved_)
      << "unreserve " << pages << " of " << num_reserved_;
  num_reserved_ -= pages;
}

int32_t PagePool::Take() {
  TANDEM_CHECK(num_reserved_ > 0 && !free_.empty())
      << num_reserved_ << " reserved, " << free_.size() << " free";
  --num_reserved_;
  const int32_t page = free_.back();
  free_.pop_back();
  owners_[page] = 1;
  return page;
}

void PagePool::Share(int32_t page) {
  TANDEM_CHECK(page >= 0 && page < num_pages() && owners_[page] > 0) << "page " << page;
  ++owners_[page];
}

void PagePool::Drop(int32_t page) {
  TANDEM_CHECK(page >= 0 && page < num_pages() && owners_[page] > 0) << "page " << page;
  if (--owners_[page] == 0) free_.push_back(page);
}

absl::Status PagePool::CheckInvariants() const {
  std::vector<int32_t> times_free(owners_.size(), 0);
  for (const int32_t page : free_) ++times_free[page];
  for (int32_t page = 0; page < num_pages(); ++page) {
    if (owners_[page] < 0 || times_free[page] != (owners_[page] == 0 ? 1 : 0)) {
      return Internal("page ", page, " has ", owners_[page], " owners and is ", times_free[page],
                      " times in the free list");
    }
  }
  if (num_reserved_ < 0 || num_reserved_ > num_free()) {
    return Internal(num_reserved_, " pages are reserved of ", num_free(), " free");
  }
  return absl::OkStatus();
}

}  // namespace tandem
