#include "engine/cache/kv_cache.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/planted_bugs.h"
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

KvCache::KvCache(const CacheOptions& options)
    : options_(options),
      index_(static_cast<int32_t>(options.groups.size()), options.hash_seed, options.hash_mask) {
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

// ---- promises ----------------------------------------------------------------------------------

// Pages of the group that a sequence of `pages` pages holds at once.
int32_t KvCache::NeededPages(int32_t group, int32_t pages) const {
  const int32_t window = options_.groups[group].window;
  if (window == 0) return pages;
  return std::min(pages, WindowPages(window, options_.max_rewind, options_.step_tokens));
}

// The lowest row of a sequence with this prompt that is ever written again.
int32_t KvCache::LowestRow(int32_t prompt) const {
  return std::max(0, prompt - options_.max_rewind - 1);
}

// Of the full pages that the choices of a prompt share, those that a rewind can reach.
int32_t KvCache::ReachableSharedPages(int32_t prompt) const {
  const int32_t shared = (prompt - 1) / kPageTokens;
  return shared - std::min(shared, LowestRow(prompt) / kPageTokens);
}

// What the choices beside the first take: of a full group their own pages and one copy of each
// shared page that a rewind can reach.
int64_t KvCache::PagesOfOthers(int32_t group, const Request& request) const {
  const int32_t prompt = static_cast<int32_t>(request.tokens.size());
  int64_t pages = NeededPages(group, PagesFor(request.length));
  if (options_.groups[group].window == 0) {
    pages += ReachableSharedPages(prompt) - (prompt - 1) / kPageTokens;
  }
  return pages * (request.choices - 1);
}

absl::Status KvCache::CanEverAdmit(const Request& request) const {
  for (size_t group = 0; group < pools_.size(); ++group) {
    const int64_t needed =
        NeededPages(group, PagesFor(request.length)) + PagesOfOthers(group, request);
    if (needed > pools_[group].num_pages()) {
      return ResourceExhausted("it needs ", needed, " pages of ", kPageTokens, " tokens (prompt ",
                               request.tokens.size(), ", length ", request.length, ", choices ",
                               request.choices, "): layer group ", group, " has ",
                               pools_[group].num_pages());
    }
  }
  return absl::OkStatus();
}

KvCache::Admission KvCache::Admit(const Request& request, std::vector<PageCopy>* copies) {
  const int32_t prompt = static_cast<int32_t>(request.tokens.size());
  TANDEM_CHECK(prompt >= 1 && prompt <= request.length && request.choices >= 1)
      << "prompt " << prompt << ", length " << request.length << ", choices " << request.choices;
  const bool use_index = request.use_index && options_.prefix_index;
  Hit hit;
  if (use_index) {
    // Of a shorter prompt: a hit leaves the last token out.
    const int64_t looked = std::min<int64_t>(prompt, int64_t{request.most_cached} + 1);
    hit = Find(request.tokens.first(looked), 0, index_.FindRoot(request.salt));
  }
  const int32_t pages = PagesFor(request.length);
  const auto of_first = [&](int32_t group) {
    const bool shares = options_.groups[group].window == 0;
    return NeededPages(group, pages) - (shares ? hit.pages : 0);
  };
  for (size_t group = 0; group < pools_.size(); ++group) {
    const int64_t needed =
        of_first(group) + CostOfHit(group, hit, prompt) + PagesOfOthers(group, request);
    const int64_t available = Planted(Bug::kOvercommit)
                                  ? pools_[group].num_available() + pools_[group].num_reserved()
                                  : pools_[group].num_available();
    if (needed > available) return {};
  }
  counters_.lookups += use_index;
  Admission out;
  out.tables.resize(request.choices);
  for (int32_t choice = 0; choice < request.choices; ++choice) {
    PageTable& table = out.tables[choice];
    table.covered_pages_ = pages;
    table.use_index_ = use_index;
    table.salt_ = request.salt;
    for (size_t group = 0; group < pools_.size(); ++group) {
      PageTable::Group& entry = table.groups_.emplace_back();
      entry.num_reserved = static_cast<int32_t>(
          choice == 0 ? of_first(group) : PagesOfOthers(group, request) / (request.choices - 1));
      pools_[group].Reserve(entry.num_reserved);
    }
  }
  if (hit.pages > 0) Attach(hit, 0, prompt, &out.tables[0], copies);
  out.cached_tokens = hit.pages * kPageTokens;
  return out;
}

bool KvCache::Extend(PageTable* table, int32_t length) {
  const int32_t pages = PagesFor(length);
  if (pages <= table->covered_pages_) return true;
  if (MissingPages(*table, length) > 0) return false;
  for (size_t group = 0; group < pools_.size(); ++group) {
    const int32_t more = NeededPages(group, pages) - NeededPages(group, table->covered_pages_);
    pools_[group].Reserve(more);
    table->groups_[group].num_reserved += more;
  }
  table->covered_pages_ = pages;
  return true;
}

int64_t KvCache::MissingPages(const PageTable& table, int32_t length) const {
  const int32_t pages = PagesFor(length);
  int64_t missing = 0;
  if (pages <= table.covered_pages_) return missing;
  for (size_t group = 0; group < pools_.size(); ++group) {
    const int32_t more = NeededPages(group, pages) - NeededPages(group, table.covered_pages_);
    missing += std::max(0, more - pools_[group].num_available());
  }
  return missing;
}

int64_t KvCache::ReclaimablePages(const PageTable& table) const {
  int64_t pages = 0;
  for (size_t group = 0; group < table.groups_.size(); ++group) {
    const PageTable::Group& entry = table.groups_[group];
    pages += entry.num_reserved + static_cast<int64_t>(entry.spare.size());
    for (int32_t index = 0; index < static_cast<int32_t>(entry.pages.size()); ++index) {
      const int32_t page = entry.pages[index];
      if (page < 0) continue;
      pages += pools_[group].owners(page) == 1
                   ? 1
                   : pools_[group].CopiesOfDrop(page, index >= entry.num_settled);
    }
  }
  return pages;
}

// ---- pages of a table --------------------------------------------------------------------------

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
  if (pools_[group].num_free() == 0) EvictOldest(group);
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

// Drops the entries of a window group below num_below. The table takes as many pages again later:
// what stays in the index is replaced by a promise, which its page, cached now, can keep.
void KvCache::DropBelow(int32_t group, int32_t num_below, PageTable* table) {
  PageTable::Group& entry = table->groups_[group];
  PagePool& pool = pools_[group];
  while (entry.num_dropped < std::min<int32_t>(num_below, entry.pages.size())) {
    const int32_t page = entry.pages[entry.num_dropped];
    if (pool.node(page) >= 0) {
      pool.Drop(page, true);
      pool.Reserve(1);
      ++entry.num_reserved;
    } else {
      entry.spare.push_back(page);
    }
    SetPage(entry.num_dropped++, -1, &entry);
  }
}

void KvCache::SettleBelow(int32_t group, int32_t num_below, PageTable* table) {
  PageTable::Group& entry = table->groups_[group];
  while (entry.num_settled < std::min<int32_t>(num_below, entry.pages.size())) {
    pools_[group].Settle(entry.pages[entry.num_settled++]);
  }
}

// A page of the table's own in place of a shared one; the page that is left had a copy promised.
void KvCache::ReplacePage(int32_t group, int32_t index, int32_t valid, PageTable* table,
                          std::vector<PageCopy>* copies) {
  PageTable::Group& entry = table->groups_[group];
  PagePool& pool = pools_[group];
  TANDEM_CHECK(index >= entry.num_settled) << "page " << index << " is settled";
  const int32_t old = entry.pages[index];
  pool.Drop(old, true);
  pool.Reserve(1);
  ++entry.num_reserved;
  const int32_t page = TakePage(group, table);
  const int32_t num_tokens = std::clamp(valid - index * kPageTokens, 0, kPageTokens) -
                             (Planted(Bug::kCopyOneTokenLess) ? 1 : 0);
  if (num_tokens > 0) copies->push_back({group, old, page, num_tokens});
  SetPage(index, page, &entry);
}

void KvCache::PrepareWrite(int32_t from, int32_t to, int32_t valid, int32_t keep_from,
                           PageTable* table, std::vector<PageCopy>* copies) {
  TANDEM_CHECK(keep_from >= 0 && keep_from <= from && from < to &&
               to <= from + options_.step_tokens && PagesFor(to) <= table->covered_pages_)
      << "[" << from << ", " << to << "), keep " << keep_from << ", " << table->covered_pages_
      << " pages promised";
  const int32_t first = from / kPageTokens;
  for (size_t group = 0; group < pools_.size(); ++group) {
    PageTable::Group& entry = table->groups_[group];
    const PagePool& pool = pools_[group];
    if (const int32_t window = options_.groups[group].window; window > 0) {
      DropBelow(group, std::max(0, keep_from - window + 1) / kPageTokens, table);
    } else {
      SettleBelow(group, keep_from / kPageTokens, table);
    }
    for (int32_t index = first; index < PagesFor(to); ++index) {
      if (index >= static_cast<int32_t>(entry.pages.size())) {
        TANDEM_CHECK(index == static_cast<int32_t>(entry.pages.size()))
            << "page " << index << " after " << entry.pages.size();
        SetPage(index, TakePage(group, table), &entry);
        continue;
      }
      const int32_t page = entry.pages[index];
      TANDEM_CHECK(page >= 0) << "position " << from << " was dropped by the window";
      if (pool.owners(page) > 1) {
        if (!Planted(Bug::kWriteSharedPage)) ReplacePage(group, index, valid, table, copies);
      } else if (pool.node(page) >= 0 && !Planted(Bug::kRewindKeepsIndexed)) {
        Forget(group, page);
      }
    }
  }
  if (static_cast<int32_t>(table->chain_.size()) > first) table->chain_.resize(first);
}

void KvCache::Fork(int32_t num_tokens, PageTable* parent, PageTable* child,
                   std::vector<PageCopy>* copies) {
  const int32_t num_full = num_tokens / kPageTokens;
  const int32_t rest = num_tokens % kPageTokens;
  const int32_t num_settled = LowestRow(num_tokens + 1) / kPageTokens;
  for (size_t group = 0; group < pools_.size(); ++group) {
    const PageTable::Group& source = parent->groups_[group];
    PageTable::Group& entry = child->groups_[group];
    PagePool& pool = pools_[group];
    TANDEM_CHECK(entry.pages.empty()) << "a fork has " << entry.pages.size() << " pages already";
    if (options_.groups[group].window > 0) {
      for (int32_t index = 0; index < num_full; ++index) {
        if (source.pages[index] < 0) {
          SetPage(index, -1, &entry);
          continue;
        }
        const int32_t page = TakePage(group, child);
        copies->push_back({static_cast<int32_t>(group), source.pages[index], page, kPageTokens});
        SetPage(index, page, &entry);
      }
      entry.num_dropped = std::min(source.num_dropped, num_full);
    } else {
      SettleBelow(group, num_settled, parent);
      entry.num_settled = std::min(num_settled, num_full);
      for (int32_t index = 0; index < num_full; ++index) {
        const int32_t page = source.pages[index];
        const bool unsettled = index >= entry.num_settled;
        entry.num_reserved -= pool.CopiesOfShare(page, unsettled);
        TANDEM_CHECK(entry.num_reserved >= 0) << "a fork was promised too few pages";
        pool.Share(page, unsettled);
        SetPage(index, page, &entry);
      }
    }
    if (rest == 0) continue;
    const int32_t page = TakePage(group, child);
    if (!Planted(Bug::kForkForgetsPartialPage)) {
      copies->push_back({static_cast<int32_t>(group), source.pages[num_full], page, rest});
    }
    SetPage(num_full, page, &entry);
  }
  child->chain_ = parent->chain_;
  if (static_cast<int32_t>(child->chain_.size()) > num_full) child->chain_.resize(num_full);
}

// Of one sequence the page that is worth least is evicted first: the last of a full group, since
// those before it do without it; the first of a window group, since a hit reads the last ones.
void KvCache::Release(PageTable* table, Nanos retain_until) {
  for (size_t group = 0; group < table->groups_.size(); ++group) {
    PageTable::Group& entry = table->groups_[group];
    PagePool& pool = pools_[group];
    const int32_t num_pages = static_cast<int32_t>(entry.pages.size());
    for (int32_t i = 0; i < num_pages; ++i) {
      const int32_t index = options_.groups[group].window > 0 ? i : num_pages - 1 - i;
      const int32_t page = entry.pages[index];
      if (page < 0) continue;
      if (retain_until > 0 && pool.node(page) >= 0) pool.Retain(page, retain_until);
      pool.Drop(page, index >= entry.num_settled);
    }
    for (const int32_t page : entry.spare) pool.Drop(page, true);
    pool.Unreserve(entry.num_reserved);
  }
  *table = PageTable();
}

void KvCache::ExpireRetained(Nanos now) {
  for (PagePool& pool : pools_) pool.ExpireRetained(now);
}

// ---- counts ------------------------------------------------------------------------------------

int64_t KvCache::num_free() const {
  int64_t sum = 0;
  for (const PagePool& pool : pools_) sum += pool.num_free() + pool.num_cached();
  return sum;
}

int64_t KvCache::num_cached() const {
  int64_t sum = 0;
  for (const PagePool& pool : pools_) sum += pool.num_cached();
  return sum;
}

int64_t KvCache::num_pages() const {
  int64_t sum = 0;
  for (const PagePool& pool : pools_) sum += pool.num_pages();
  return sum;
}

int64_t KvCache::num_chances() const {
  int64_t sum = counters_.indexed_pages;
  for (const PagePool& pool : pools_) sum += pool.num_releases();
  return sum;
}

CacheCounters KvCache::counters() const {
  CacheCounters counters = counters_;
  counters.collisions = index_.num_collisions();
  return counters;
}

absl::Status KvCache::CheckInvariants(std::span<const PageTable* const> tables) const {
  RETURN_IF_ERROR(index_.CheckInvariants());
  for (size_t group = 0; group < pools_.size(); ++group) {
    const PagePool& pool = pools_[group];
    RETURN_IF_ERROR(pool.CheckInvariants());
    std::vector<int32_t> owners(pool.num_pages(), 0);
    int64_t num_reserved = 0;
    int64_t num_named = 0;
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
      const int32_t node = pool.node(page);
      num_named += node >= 0;
      if (node >= 0 && index_.page(node, static_cast<int32_t>(group)) != page) {
        return Internal("page ", page, " of group ", group, " is not the one that node ", node,
                        " names");
      }
    }
    if (num_named != index_.CountPages(static_cast<int32_t>(group))) {
      return Internal(num_named, " pages of group ", group, " are indexed: the index names ",
                      index_.CountPages(static_cast<int32_t>(group)));
    }
    if (num_reserved != pool.num_reserved()) {
      return Internal("group ", group, " has ", pool.num_reserved(),
                      " pages promised: the tables show ", num_reserved);
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem
