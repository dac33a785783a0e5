#include "engine/cache/kv_cache.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/status.h"
#include "kernels/tensor.h"

namespace tandem {
namespace {

using kernels::kPageTokens;

int32_t PagesFor(int32_t num_tokens) {
  return static_cast<int32_t>((int64_t{num_tokens} + kPageTokens - 1) / kPageTokens);
}

}  // namespace

void PageTable::ClearChanges() {
  for (Group& group : groups_) group.changed_begin = group.changed_end = 0;
}

void PageTable::ChangeAll() {
  for (Group& group : groups_) {
    group.changed_begin = 0;
    group.changed_end = static_cast<int32_t>(group.pages.size());
  }
}

KvCache::KvCache(const CacheOptions& options) : options_(options) {
  TANDEM_CHECK(options.max_rewind >= 0 && options.step_tokens >= 1)
      << "max_rewind " << options.max_rewind << ", step_tokens " << options.step_tokens;
  for (const CacheGroup& group : options.groups) pools_.emplace_back(group.num_pages);
}

// The lowest row that a rewind leaves to be run again stands max_rewind + 1 below the longest
// length; it sees window - 1 positions before itself, and a step goes step_tokens beyond that
// length. So many positions in a row touch at most that many pages, on any alignment.
int32_t KvCache::WindowPages(int32_t window, int32_t max_rewind, int32_t step_tokens) {
  const int64_t span = int64_t{window} - 1 + max_rewind + 1 + step_tokens;
  return static_cast<int32_t>((span + kPageTokens - 2) / kPageTokens) + 1;
}

// Pages of the group that a sequence of `pages` pages holds at once.
int32_t KvCache::NeededPages(int32_t group, int32_t pages) const {
  const int32_t window = options_.groups[group].window;
  if (window == 0) return pages;
  return std::min(pages, WindowPages(window, options_.max_rewind, options_.step_tokens));
}

// Shared pages that the leader may have to replace by pages of its own.
int32_t KvCache::ExtraOfLeader(int32_t group, const Request& request) const {
  if (request.choices == 1) return 0;
  if (options_.groups[group].window > 0) return NeededPages(group, PagesFor(request.length));
  const int32_t shared = (request.prompt - 1) / kPageTokens;
  const int32_t lowest_row = std::max(0, request.prompt - options_.max_rewind - 1);
  return shared - std::min(shared, lowest_row / kPageTokens);
}

int32_t KvCache::PagesOfOther(int32_t group, const Request& request) const {
  const int32_t pages = NeededPages(group, PagesFor(request.length));
  if (options_.groups[group].window > 0) return pages;
  const int32_t shared = (request.prompt - 1) / kPageTokens;
  return pages - (shared - ExtraOfLeader(group, request));
}

int64_t KvCache::PagesOfRequest(int32_t group, const Request& request) const {
  int64_t pages = NeededPages(group, PagesFor(request.length)) + ExtraOfLeader(group, request);
  if (request.choices > 1) {
    pages += int64_t{request.choices - 1} * PagesOfOther(group, request);
  }
  return pages;
}

absl::Status KvCache::CanEverAdmit(const Request& request) const {
  for (size_t group = 0; group < pools_.size(); ++group) {
    const int64_t needed = PagesOfRequest(group, request);
    if (needed > pools_[group].num_pages()) {
      return ResourceExhausted("it needs ", needed, " pages of ", kPageTokens, " tokens (prompt ",
                               request.prompt, ", length ", request.length, ", choices ",
                               request.choices, "): layer group ", group, " has ",
                               pools_[group].num_pages());
    }
  }
  return absl::OkStatus();
}

std::vector<PageTable> KvCache::Admit(const Request& request) {
  TANDEM_CHECK(request.prompt >= 1 && request.prompt <= request.length && request.choices >= 1)
      << "prompt " << request.prompt << ", length " << request.length << ", choices "
      << request.choices;
  for (size_t group = 0; group < pools_.size(); ++group) {
    if (PagesOfRequest(group, request) > pools_[group].num_available()) return {};
  }
  std::vector<PageTable> tables(request.choices);
  for (int32_t choice = 0; choice < request.choices; ++choice) {
    tables[choice].covered_pages_ = PagesFor(request.length);
    for (size_t group = 0; group < pools_.size(); ++group) {
      PageTable::Group& entry = tables[choice].groups_.emplace_back();
      entry.num_reserved =
          choice == 0 ? NeededPages(group, PagesFor(request.length)) + ExtraOfLeader(group, request)
                      : PagesOfOther(group, request);
      pools_[group].Reserve(entry.num_reserved);
    }
  }
  return tables;
}

bool KvCache::Extend(PageTable* table, int32_t length) {
  const int32_t pages = PagesFor(length);
  if (pages <= table->covered_pages_) return true;
  const auto more = [&](size_t group) {
    return NeededPages(group, pages) - NeededPages(group, table->covered_pages_);
  };
  for (size_t group = 0; group < pools_.size(); ++group) {
    if (more(group) > pools_[group].num_available()) return false;
  }
  for (size_t group = 0; group < pools_.size(); ++group) {
    pools_[group].Reserve(more(group));
    table->groups_[group].num_reserved += more(group);
  }
  table->covered_pages_ = pages;
  return true;
}

int32_t KvCache::TakePage(int32_t group, PageTable* table) {
  PageTable::Group& entry = table->groups_[group];
  if (!entry.spare.empty()) {
    const int32_t page = entry.spare.back();
    entry.spare.pop_back();
    return page;
  }
  TANDEM_CHECK(entry.num_reserved > 0)
      << "a sequence of " << entry.pages.size() << " pages has no promise left in group " << group;
  --entry.num_reserved;
  return pools_[group].Take();
}

void KvCache::SetPage(int32_t index, int32_t page, PageTable::Group* group) {
  if (index == static_cast<int32_t>(group->pages.size())) {
    group->pages.push_back(page);
  } else {
    group->pages[index] = page;
  }
  const bool unchanged = group->changed_begin == group->changed_end;
  group->changed_begin = unchanged ? index : std::min(group->changed_begin, index);
  group->changed_end = unchanged ? index + 1 : std::max(group->changed_end, index + 1);
}

void KvCache::PrepareWrite(int32_t from, int32_t to, int32_t valid, int32_t keep_from,
                           PageTable* table, std::vector<PageCopy>* copies) {
  TANDEM_CHECK(keep_from >= 0 && keep_from <= from && from < to &&
               to <= from + options_.step_tokens && PagesFor(to) <= table->covered_pages_)
      << "[" << from << ", " << to << "), keep " << keep_from << ", " << table->covered_pages_
      << " pages promised";
  for (size_t group = 0; group < pools_.size(); ++group) {
    PageTable::Group& entry = table->groups_[group];
    PagePool& pool = pools_[group];
    if (const int32_t window = options_.groups[group].window; window > 0) {
      const int32_t num_below = std::max(0, keep_from - window + 1) / kPageTokens;
      while (entry.num_dropped < std::min<int32_t>(num_below, entry.pages.size())) {
        const int32_t page = entry.pages[entry.num_dropped];
        if (pool.owners(page) == 1) {
          entry.spare.push_back(page);
        } else {
          pool.Drop(page);
        }
        SetPage(entry.num_dropped++, -1, &entry);
      }
    }
    for (int32_t index = from / kPageTokens; index < PagesFor(to); ++index) {
      const bool is_new = index >= static_cast<int32_t>(entry.pages.size());
      TANDEM_CHECK(!is_new || index == static_cast<int32_t>(entry.pages.size()))
          << "page " << index << " after " << entry.pages.size();
      if (!is_new) {
        const int32_t old = entry.pages[index];
        TANDEM_CHECK(old >= 0) << "position " << from << " was dropped by the window";
        if (pool.owners(old) == 1) continue;
      }
      const int32_t page = TakePage(group, table);
      if (!is_new) {
        const int32_t old = entry.pages[index];
        const int32_t num_tokens = std::clamp(valid - index * kPageTokens, 0, kPageTokens);
        if (num_tokens > 0) {
          copies->push_back({static_cast<int32_t>(group), old, page, num_tokens});
        }
        pool.Drop(old);
      }
      SetPage(index, page, &entry);
    }
  }
}

void KvCache::Fork(int32_t num_tokens, PageTable* parent, PageTable* child,
                   std::vector<PageCopy>* copies) {
  for (size_t group = 0; group < pools_.size(); ++group) {
    const PageTable::Group& source = parent->groups_[group];
    PageTable::Group& entry = child->groups_[group];
    TANDEM_CHECK(entry.pages.empty()) << "a fork has " << entry.pages.size() << " pages already";
    const int32_t num_full = num_tokens / kPageTokens;
    for (int32_t index = 0; index < num_full; ++index) {
      const int32_t page = source.pages[index];
      if (page >= 0) pools_[group].Share(page);
      SetPage(index, page, &entry);
    }
    entry.num_dropped = std::min(source.num_dropped, num_full);
    if (const int32_t rest = num_tokens % kPageTokens; rest > 0) {
      const int32_t page = TakePage(group, child);
      copies->push_back({static_cast<int32_t>(group), source.pages[num_full], page, rest});
      SetPage(num_full, page, &entry);
    }
  }
}

void KvCache::Release(PageTable* table) {
  for (size_t group = 0; group < table->groups_.size(); ++group) {
    PageTable::Group& entry = table->groups_[group];
    for (const int32_t page : entry.pages) {
      if (page >= 0) pools_[group].Drop(page);
    }
    for (const int32_t page : entry.spare) pools_[group].Drop(page);
    pools_[group].Unreserve(entry.num_reserved);
  }
  *table = PageTable();
}

int64_t KvCache::num_free() const {
  int64_t sum = 0;
  for (const PagePool& pool : pools_) sum += pool.num_free();
  return sum;
}

int64_t KvCache::num_pages() const {
  int64_t sum = 0;
  for (const PagePool& pool : pools_) sum += pool.num_pages();
  return sum;
}

absl::Status KvCache::CheckInvariants(std::span<const PageTable* const> tables) const {
  for (size_t group = 0; group < pools_.size(); ++group) {
    const PagePool& pool = pools_[group];
    RETURN_IF_ERROR(pool.CheckInvariants());
    std::vector<int32_t> owners(pool.num_pages(), 0);
    int64_t num_reserved = 0;
    for (const PageTable* table : tables) {
      const PageTable::Group& entry = table->groups()[group];
      for (const int32_t page : entry.pages) {
        if (page >= 0) ++owners[page];
      }
      for (const int32_t page : entry.spare) ++owners[page];
      num_reserved += entry.num_reserved;
    }
    for (int32_t page = 0; page < pool.num_pages(); ++page) {
      if (owners[page] != pool.owners(page)) {
        return Internal("page ", page, " of group ", group, " has ", pool.owners(page),
                        " owners: the tables show ", owners[page]);
      }
    }
    if (num_reserved != pool.num_reserved()) {
      return Internal("group ", group, " has ", pool.num_reserved(),
                      " pages promised: the tables show ", num_reserved);
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem
