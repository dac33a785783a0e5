#include "engine/cache/prefix_index.h"

#include <algorithm>
#include <set>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/hash.h"
#include "engine/base/planted_bugs.h"
#include "engine/base/status.h"

namespace tandem {

PrefixIndex::PrefixIndex(int32_t num_groups, uint64_t seed, uint64_t mask)
    : num_groups_(num_groups), seed_(seed), mask_(mask) {}

NodeRef PrefixIndex::FindRoot(const std::string& salt) const {
  const auto found = roots_.find(Planted(Bug::kHitIgnoresSalt) ? std::string() : salt);
  return found == roots_.end() ? NodeRef() : RefOf(found->second);
}

NodeRef PrefixIndex::Root(const std::string& salt) {
  if (const NodeRef found = FindRoot(salt); found.node >= 0) return found;
  const int32_t node = NewNode();
  const std::string name = Planted(Bug::kHitIgnoresSalt) ? std::string() : salt;
  roots_.emplace(name, node);
  salts_.emplace(node, name);
  return RefOf(node);
}

bool PrefixIndex::IsLive(NodeRef ref) const {
  return ref.node >= 0 && nodes_[ref.node].is_live && nodes_[ref.node].generation == ref.generation;
}

uint64_t PrefixIndex::Hash(int32_t parent, PageTokens tokens) const {
  const uint64_t key = seed_ + static_cast<uint64_t>(parent) * 0x9E3779B97F4A7C15u;
  return KeyedHash(key, tokens.data(), tokens.size_bytes()) & mask_;
}

NodeRef PrefixIndex::Find(NodeRef parent, PageTokens tokens) const {
  const auto first = by_hash_.find(Hash(parent.node, tokens));
  if (first == by_hash_.end()) return {};
  for (int32_t node = first->second; node >= 0; node = nodes_[node].next_of_hash) {
    const bool is_equal = nodes_[node].parent == parent.node &&
                          std::equal(tokens.begin(), tokens.end(), nodes_[node].tokens.begin());
    if (is_equal || Planted(Bug::kHitWithoutCompare)) return RefOf(node);
    ++num_collisions_;
  }
  return {};
}

int32_t PrefixIndex::NewNode() {
  int32_t node = static_cast<int32_t>(nodes_.size());
  if (free_.empty()) {
    nodes_.emplace_back();
    pages_.resize(pages_.size() + num_groups_);
  } else {
    node = free_.back();
    free_.pop_back();
  }
  const uint32_t generation = nodes_[node].generation + 1;
  nodes_[node] = Node();
  nodes_[node].generation = generation;
  nodes_[node].is_live = true;
  std::fill_n(pages_.begin() + int64_t{node} * num_groups_, num_groups_, -1);
  return node;
}

NodeRef PrefixIndex::Insert(NodeRef parent, PageTokens tokens) {
  TANDEM_CHECK(IsLive(parent)) << "parent " << parent.node;
  const int32_t node = NewNode();
  ++num_nodes_;
  Node& entry = nodes_[node];
  std::copy(tokens.begin(), tokens.end(), entry.tokens.begin());
  entry.parent = parent.node;
  entry.hash = Hash(parent.node, tokens);
  const auto [first, is_new] = by_hash_.emplace(entry.hash, node);
  if (!is_new) entry.next_of_hash = std::exchange(first->second, node);
  entry.next_sibling = std::exchange(nodes_[parent.node].first_child, node);
  if (entry.next_sibling >= 0) nodes_[entry.next_sibling].previous_sibling = node;
  return RefOf(node);
}

// Takes a node without children out of the tree.
void PrefixIndex::Unlink(int32_t node) {
  Node& entry = nodes_[node];
  TANDEM_CHECK(entry.is_live && entry.first_child < 0) << "node " << node;
  entry.is_live = false;
  free_.push_back(node);
  if (entry.parent < 0) {
    const auto salt = salts_.find(node);
    roots_.erase(salt->second);
    salts_.erase(salt);
    return;
  }
  --num_nodes_;
  const auto first = by_hash_.find(entry.hash);
  if (first->second == node && entry.next_of_hash < 0) {
    by_hash_.erase(first);
  } else {
    int32_t* link = &first->second;
    while (*link != node) link = &nodes_[*link].next_of_hash;
    *link = entry.next_of_hash;
  }
  if (entry.next_sibling >= 0) {
    nodes_[entry.next_sibling].previous_sibling = entry.previous_sibling;
  }
  (entry.previous_sibling >= 0 ? nodes_[entry.previous_sibling].next_sibling
                               : nodes_[entry.parent].first_child) = entry.next_sibling;
}

void PrefixIndex::Remove(int32_t node, std::vector<NamedPage>* named) {
  const int32_t parent = nodes_[node].parent;
  for (int32_t at = node;;) {  // children first, without recursion: chains are long
    if (nodes_[at].first_child >= 0) {
      at = nodes_[at].first_child;
      continue;
    }
    for (int32_t group = 0; group < num_groups_; ++group) {
      if (page(at, group) >= 0) named->push_back({group, page(at, group)});
    }
    const int32_t above = nodes_[at].parent;
    Unlink(at);
    if (at == node) break;
    at = above;
  }
  if (parent >= 0) Prune(parent);
}

bool PrefixIndex::HasPages(int32_t node) const {
  for (int32_t group = 0; group < num_groups_; ++group) {
    if (page(node, group) >= 0) return true;
  }
  return false;
}

void PrefixIndex::Prune(int32_t node) {
  while (node >= 0 && nodes_[node].first_child < 0 && !HasPages(node)) {
    const int32_t parent = nodes_[node].parent;
    Unlink(node);
    node = parent;
  }
}

int64_t PrefixIndex::CountPages(int32_t group) const {
  int64_t count = 0;
  for (int32_t node = 0; node < static_cast<int32_t>(nodes_.size()); ++node) {
    count += nodes_[node].is_live && page(node, group) >= 0;
  }
  return count;
}

absl::Status PrefixIndex::CheckInvariants() const {
  std::set<std::pair<int32_t, int32_t>> named;
  int64_t num_live = 0;
  for (int32_t node = 0; node < static_cast<int32_t>(nodes_.size()); ++node) {
    const Node& entry = nodes_[node];
    if (!entry.is_live) continue;
    if (entry.parent < 0) {
      if (!salts_.contains(node)) return Internal("node ", node, " has no parent and is no root");
      continue;
    }
    ++num_live;
    if (!nodes_[entry.parent].is_live) return Internal("the parent of node ", node, " is gone");
    const auto first = by_hash_.find(entry.hash);
    int32_t at = first == by_hash_.end() ? -1 : first->second;
    while (at >= 0 && at != node) at = nodes_[at].next_of_hash;
    if (at != node) return Internal("node ", node, " is not found by its hash");
    for (int32_t group = 0; group < num_groups_; ++group) {
      if (page(node, group) >= 0 && !named.emplace(group, page(node, group)).second) {
        return Internal("page ", page(node, group), " of group ", group, " is named twice");
      }
    }
  }
  if (num_live != num_nodes_) return Internal(num_nodes_, " nodes counted, ", num_live, " live");
  return absl::OkStatus();
}

}  // namespace tandem
