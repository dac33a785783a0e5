// Which pages hold which tokens: a tree with one node for each page of 64 tokens that follow the
// tokens of its parent; the roots are the salts. Found by a keyed hash of (parent, tokens), and
// only if parent and tokens are equal: a collision costs time, never a wrong page.
//
// A node names a page in each layer group, or none (-1) where that page is gone. Who owns the pages
// is PagePool's knowledge; KvCache keeps both in step.
//
// A node lives until Remove; its place may then be used again, so that whoever keeps nodes keeps
// NodeRefs, which tell a node from its successor.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "kernels/tensor.h"

namespace tandem {

struct NodeRef {
  int32_t node = -1;
  uint32_t generation = 0;
};

// The page of one layer group that a removed node named.
struct NamedPage {
  int32_t group = 0;
  int32_t page = 0;
};

class PrefixIndex final {
 public:
  using PageTokens = std::span<const int32_t, kernels::kPageTokens>;

  // seed: secret, so that nobody can make hashes collide. mask: the bits of the hash that count.
  PrefixIndex(int32_t num_groups, uint64_t seed, uint64_t mask);

  // The node of the empty sequence, made if need be. It goes with its last child.
  NodeRef Root(const std::string& salt);
  // As Root, but invalid where nothing was ever inserted.
  NodeRef FindRoot(const std::string& salt) const;
  bool IsLive(NodeRef ref) const;

  // The child of a live node that holds these tokens; invalid (node -1): there is none.
  NodeRef Find(NodeRef parent, PageTokens tokens) const;
  // REQUIRES a live parent without such a child. Names no pages yet.
  NodeRef Insert(NodeRef parent, PageTokens tokens);
  int32_t page(int32_t node, int32_t group) const {
    return pages_[static_cast<int64_t>(node) * num_groups_ + group];
  }
  void SetPage(int32_t node, int32_t group, int32_t page) {
    pages_[static_cast<int64_t>(node) * num_groups_ + group] = page;
  }
  // Takes the node and all below it out, and appends the pages that they named.
  void Remove(int32_t node, std::vector<NamedPage>* named);
  // The same for a node that has no page and no child, then for its parent likewise, and so on.
  void Prune(int32_t node);

  int32_t num_nodes() const { return num_nodes_; }  // without roots
  // Pages of the group that nodes name.
  int64_t CountPages(int32_t group) const;
  int64_t num_collisions() const { return num_collisions_; }

  // Every named page is named once, every node hangs at a live parent and is found by its hash.
  absl::Status CheckInvariants() const;

 private:
  struct Node {
    std::array<int32_t, kernels::kPageTokens> tokens;
    uint64_t hash = 0;
    int32_t parent = -1;  // -1: a root
    int32_t next_of_hash = -1;
    int32_t first_child = -1;
    int32_t next_sibling = -1;
    int32_t previous_sibling = -1;
    uint32_t generation = 0;
    bool is_live = false;
  };
  NodeRef RefOf(int32_t node) const { return {node, nodes_[node].generation}; }
  uint64_t Hash(int32_t parent, PageTokens tokens) const;
  int32_t NewNode();
  void Unlink(int32_t node);
  bool HasPages(int32_t node) const;

  const int32_t num_groups_;
  const uint64_t seed_;
  const uint64_t mask_;
  std::vector<Node> nodes_;
  std::vector<int32_t> pages_;  // [nodes_.size(), num_groups]
  std::vector<int32_t> free_;
  absl::flat_hash_map<uint64_t, int32_t> by_hash_;   // first node of a hash
  absl::flat_hash_map<std::string, int32_t> roots_;  // by salt
  absl::flat_hash_map<int32_t, std::string> salts_;  // of roots
  int32_t num_nodes_ = 0;
  mutable int64_t num_collisions_ = 0;  // nodes compared in vain
};

}  // namespace tandem
