// The part of KvCache that finds, shares, indexes and evicts pages of common prefixes.
#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/planted_bugs.h"
#include "engine/cache/kv_cache.h"
#include "kernels/tensor.h"

namespace tandem {
namespace {

using kernels::kPageTokens;

PrefixIndex::PageTokens TokensOfPage(std::span<const int32_t> tokens, int32_t index) {
  return PrefixIndex::PageTokens(tokens.data() + int64_t{index} * kPageTokens, kPageTokens);
}

}  // namespace

// Pages [from_page, ...) of the prompt, below `parent`.
KvCache::Hit KvCache::Find(std::span<const int32_t> prompt, int32_t from_page,
                           NodeRef parent) const {
  const int32_t length = static_cast<int32_t>(prompt.size());
  const int32_t most = (Planted(Bug::kHitCoversWholePrompt) ? length : length - 1) / kPageTokens;
  Hit hit;
  hit.pages = from_page;
  while (index_.IsLive(parent) && hit.pages < most) {
    parent = index_.Find(parent, TokensOfPage(prompt, hit.pages));
    if (parent.node < 0) break;
    hit.nodes.push_back(parent);
    ++hit.pages;
  }
  while (hit.pages > from_page &&
         !HoldsWindow(hit, from_page, length, hit.pages, &hit.first_kept)) {
    hit.nodes.pop_back();
    --hit.pages;
  }
  return hit;
}

// Whether the index has, in every group, all that rows from `pages` on read, or from where a rewind
// may begin. Fills first_kept.
bool KvCache::HoldsWindow(const Hit& hit, int32_t from_page, int32_t prompt, int32_t pages,
                          std::vector<int32_t>* first_kept) const {
  first_kept->assign(pools_.size(), 0);
  const int32_t lowest_row = std::min(pages * kPageTokens, LowestRow(prompt));
  for (size_t group = 0; group < pools_.size(); ++group) {
    const int32_t window = options_.groups[group].window;
    if (window == 0) continue;
    const int32_t first = std::max(0, lowest_row - window + 1) / kPageTokens;
    (*first_kept)[group] = first;
    for (int32_t index = std::max(from_page, first); index < pages; ++index) {
      if (index_.page(hit.nodes[index - from_page].node, group) < 0) return false;
    }
  }
  return true;
}

// Pages that an admission needs for the pages that it shares: those that are cached now are taken
// from what is available, others may have to be copied.
int64_t KvCache::CostOfHit(int32_t group, const Hit& hit, int32_t prompt) const {
  if (options_.groups[group].window > 0) return 0;
  const PagePool& pool = pools_[group];
  const int32_t num_settled = LowestRow(prompt) / kPageTokens;
  int64_t cost = 0;
  for (int32_t index = 0; index < hit.pages; ++index) {
    const int32_t page = index_.page(hit.nodes[index].node, group);
    cost += pool.owners(page) == 0 ? 1 : pool.CopiesOfShare(page, index >= num_settled);
  }
  return cost;
}

// Gives the table, whose pages end at from_page, the pages of the hit. Full groups share them. A
// window group copies them: cached ones first, while free pages last, and then by taking them out
// of the index, so that no page is evicted that is still to be copied.
void KvCache::Attach(const Hit& hit, int32_t from_page, int32_t prompt, PageTable* table,
                     std::vector<PageCopy>* copies) {
  const int32_t num_settled = LowestRow(prompt) / kPageTokens;
  for (size_t group = 0; group < pools_.size(); ++group) {
    PageTable::Group& entry = table->groups_[group];
    PagePool& pool = pools_[group];
    const auto page_of = [&](int32_t index) {
      return index_.page(hit.nodes[index - from_page].node, group);
    };
    if (options_.groups[group].window == 0) {
      SettleBelow(group, num_settled, table);
      entry.num_settled = std::max(entry.num_settled, std::min(num_settled, hit.pages));
      for (int32_t index = from_page; index < hit.pages; ++index) {
        const bool unsettled = index >= entry.num_settled;
        pool.Reserve(pool.CopiesOfShare(page_of(index), unsettled));
        pool.Share(page_of(index), unsettled);
        SetPage(index, page_of(index), &entry);
      }
      continue;
    }
    const int32_t first = std::max(from_page, hit.first_kept[group]);
    DropBelow(group, hit.first_kept[group], table);
    for (int32_t index = from_page; index < hit.pages; ++index) SetPage(index, -1, &entry);
    if (entry.num_dropped == from_page) entry.num_dropped = first;
    for (const bool cached : {true, false}) {
      for (int32_t index = first; index < hit.pages; ++index) {
        const int32_t source = page_of(index);
        if (source < 0 || (pool.owners(source) == 0) != cached || entry.pages[index] >= 0) continue;
        if (cached && pool.num_free() == 0 && entry.spare.empty()) Forget(group, source);
        const int32_t page = TakePage(group, table);
        if (page != source) {
          copies->push_back({static_cast<int32_t>(group), source, page, kPageTokens});
        }
        SetPage(index, page, &entry);
      }
    }
  }
  table->chain_.insert(table->chain_.end(), hit.nodes.begin(), hit.nodes.end());
  counters_.reused_pages += hit.pages - from_page;
}

int32_t KvCache::Reuse(std::span<const int32_t> prompt, int32_t computed, PageTable* table,
                       std::vector<PageCopy>* copies) {
  const int32_t from_page = computed / kPageTokens;
  TANDEM_CHECK(computed % kPageTokens == 0) << "computed " << computed;
  const bool is_aligned = static_cast<int32_t>(table->chain_.size()) == from_page &&
                          static_cast<int32_t>(table->groups_[0].pages.size()) == from_page;
  if (!table->use_index_ || !is_aligned) return computed;
  const Hit hit =
      Find(prompt, from_page, from_page > 0 ? table->chain_.back() : index_.FindRoot(table->salt_));
  const int32_t more = hit.pages - from_page;
  if (more == 0) return computed;
  for (size_t group = 0; group < pools_.size(); ++group) {
    if (options_.groups[group].window > 0) continue;
    table->groups_[group].num_reserved -= more;
    pools_[group].Unreserve(more);
  }
  Attach(hit, from_page, static_cast<int32_t>(prompt.size()), table, copies);
  return hit.pages * kPageTokens;
}

void KvCache::IndexPages(std::span<const int32_t> tokens, PageTable* table) {
  const int32_t num_pages = static_cast<int32_t>(tokens.size()) / kPageTokens;
  std::vector<NodeRef>& chain = table->chain_;
  if (!table->use_index_ || static_cast<int32_t>(chain.size()) >= num_pages) return;
  TANDEM_CHECK(num_pages <= static_cast<int32_t>(table->groups_[0].pages.size()))
      << num_pages << " pages are final of " << table->groups_[0].pages.size();
  // A page before these was evicted or written again by its owner: from the start.
  if (!chain.empty() && !index_.IsLive(chain.back())) chain.clear();
  NodeRef parent = chain.empty() ? index_.Root(table->salt_) : chain.back();
  while (static_cast<int32_t>(chain.size()) < num_pages) {
    const int32_t index = static_cast<int32_t>(chain.size());
    NodeRef node = index_.Find(parent, TokensOfPage(tokens, index));
    if (node.node < 0) {
      node = index_.Insert(parent, TokensOfPage(tokens, index));
      ++counters_.indexed_pages;
    }
    for (size_t group = 0; group < pools_.size(); ++group) {
      const int32_t page = table->groups_[group].pages[index];
      if (page < 0 || pools_[group].node(page) >= 0 || index_.page(node.node, group) >= 0) continue;
      index_.SetPage(node.node, group, page);
      pools_[group].SetNode(page, node.node);
    }
    chain.push_back(node);
    parent = node;
  }
  index_.Prune(parent.node);
}

// Takes a page out of the index: of a full group with its node and all that follow it, since
// without it nobody can use them.
void KvCache::Forget(int32_t group, int32_t page) {
  const int32_t node = pools_[group].node(page);
  if (options_.groups[group].window > 0) {
    index_.SetPage(node, group, -1);
    pools_[group].SetNode(page, -1);
    index_.Prune(node);
    return;
  }
  named_.clear();
  index_.Remove(node, &named_);
  for (const NamedPage& named : named_) pools_[named.group].SetNode(named.page, -1);
}

void KvCache::EvictOldest(int32_t group) {
  PagePool& pool = pools_[group];
  const int32_t page = pool.Oldest();
  TANDEM_CHECK(page >= 0) << "no page of group " << group << " is free or cached";
  const int64_t cached = num_cached();
  if (Planted(Bug::kEvictKeepsIndexed)) {
    pool.SetNode(page, -1);
  } else {
    Forget(group, page);
  }
  counters_.evicted_pages += cached - num_cached();
}

}  // namespace tandem
