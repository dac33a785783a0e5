#include "engine/cache/prefix_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>

namespace tandem::test {
namespace {

using Page = std::array<int32_t, kernels::kPageTokens>;

Page Filled(int32_t token) {
  Page page;
  page.fill(token);
  return page;
}

PrefixIndex Index(int32_t num_groups = 1, uint64_t mask = ~uint64_t{0}) {
  return PrefixIndex(num_groups, 7, mask);
}

TEST(PrefixIndex, ANodeIsFoundBelowItsParentOnly) {
  PrefixIndex index = Index();
  const NodeRef root = index.Root("");
  const NodeRef a = index.Insert(root, Filled(1));
  const NodeRef b = index.Insert(a, Filled(2));
  EXPECT_EQ(index.Find(root, Filled(1)).node, a.node);
  EXPECT_EQ(index.Find(a, Filled(2)).node, b.node);
  EXPECT_EQ(index.Find(root, Filled(2)).node, -1);
  EXPECT_EQ(index.Find(b, Filled(1)).node, -1);
  EXPECT_EQ(index.num_nodes(), 2);
  EXPECT_EQ(index.CheckInvariants().ToString(), "OK");
}

TEST(PrefixIndex, EveryTokenOfThePageCounts) {
  PrefixIndex index = Index();
  const NodeRef root = index.Root("");
  index.Insert(root, Filled(1));
  for (int32_t i = 0; i < kernels::kPageTokens; ++i) {
    Page page = Filled(1);
    page[i] = 2;
    EXPECT_EQ(index.Find(root, page).node, -1) << i;
  }
}

TEST(PrefixIndex, SaltsHaveTreesOfTheirOwn) {
  PrefixIndex index = Index();
  const NodeRef a = index.Root("a");
  const NodeRef b = index.Root("b");
  EXPECT_NE(a.node, b.node);
  EXPECT_EQ(index.Root("a").node, a.node);
  index.Insert(a, Filled(1));
  EXPECT_EQ(index.Find(b, Filled(1)).node, -1);
}

TEST(PrefixIndex, ALookupMakesNoRoot) {
  PrefixIndex index = Index();
  EXPECT_EQ(index.FindRoot("a").node, -1);
  EXPECT_EQ(index.FindRoot("a").node, -1);
  const NodeRef root = index.Root("a");
  EXPECT_EQ(index.FindRoot("a").node, root.node);
}

// All 32 bits of an id count: 321 is 65 in its lowest 8.
TEST(PrefixIndex, B079_Token65IsNotToken321) {
  for (const uint64_t mask : {~uint64_t{0}, uint64_t{0}}) {
    PrefixIndex index = Index(1, mask);
    const NodeRef root = index.Root("");
    index.Insert(root, Filled(65));
    EXPECT_EQ(index.Find(root, Filled(321)).node, -1);
    EXPECT_EQ(index.Find(root, Filled(65 + (1 << 30))).node, -1);
    EXPECT_GE(index.Find(root, Filled(65)).node, 0);
  }
  PrefixIndex index = Index();
  const NodeRef root = index.Root("");
  index.Insert(root, Filled(65));
  index.Find(root, Filled(321));
  EXPECT_EQ(index.num_collisions(), 0) << "they differ in the hash already";
}

TEST(PrefixIndex, B077_CollisionsCostComparisonsNeverAWrongPage) {
  PrefixIndex index = Index(1, 0);
  const NodeRef root = index.Root("");
  const NodeRef a = index.Insert(root, Filled(1));
  const NodeRef b = index.Insert(root, Filled(2));
  const NodeRef below = index.Insert(a, Filled(2));
  EXPECT_EQ(index.Find(root, Filled(1)).node, a.node);
  EXPECT_EQ(index.Find(root, Filled(2)).node, b.node);
  EXPECT_EQ(index.Find(a, Filled(2)).node, below.node);
  EXPECT_EQ(index.Find(root, Filled(3)).node, -1);
  EXPECT_GT(index.num_collisions(), 0);
  EXPECT_EQ(index.CheckInvariants().ToString(), "OK");
}

// Which of 256 pages collide with another in 4 bits of the hash.
std::vector<bool> Collisions(uint64_t seed) {
  std::vector<bool> collides;
  PrefixIndex index(1, seed, 0xF);
  const NodeRef root = index.Root("");
  index.Insert(root, Filled(-1));
  for (int32_t token = 0; token < 256; ++token) {
    const int64_t before = index.num_collisions();
    index.Find(root, Filled(token));
    collides.push_back(index.num_collisions() > before);
  }
  return collides;
}

TEST(PrefixIndex, B077_WhatCollidesDependsOnTheSecretSeed) {
  EXPECT_EQ(Collisions(1), Collisions(1));
  EXPECT_NE(Collisions(1), Collisions(2));
}

TEST(PrefixIndex, ANodeNamesAPageInEachGroupOrNone) {
  PrefixIndex index = Index(2);
  const NodeRef node = index.Insert(index.Root(""), Filled(1));
  EXPECT_EQ(index.page(node.node, 0), -1);
  EXPECT_EQ(index.page(node.node, 1), -1);
  index.SetPage(node.node, 1, 9);
  EXPECT_EQ(index.page(node.node, 0), -1);
  EXPECT_EQ(index.page(node.node, 1), 9);
}

TEST(PrefixIndex, ARemovedNodeTakesAllBelowItAndHandsOutTheirPages) {
  PrefixIndex index = Index(2);
  const NodeRef a = index.Insert(index.Root(""), Filled(1));
  const NodeRef b = index.Insert(a, Filled(2));
  const NodeRef c = index.Insert(b, Filled(3));
  const NodeRef d = index.Insert(b, Filled(4));
  index.SetPage(a.node, 0, 10);
  index.SetPage(b.node, 0, 11);
  index.SetPage(c.node, 1, 12);
  index.SetPage(d.node, 0, 13);
  std::vector<NamedPage> named;
  index.Remove(b.node, &named);
  std::set<std::pair<int32_t, int32_t>> pages;
  for (const NamedPage& page : named) pages.emplace(page.group, page.page);
  EXPECT_EQ(pages, (std::set<std::pair<int32_t, int32_t>>{{0, 11}, {0, 13}, {1, 12}}));
  EXPECT_EQ(named.size(), 3u);
  EXPECT_TRUE(index.IsLive(a));
  for (const NodeRef& gone : {b, c, d}) EXPECT_FALSE(index.IsLive(gone));
  EXPECT_EQ(index.Find(a, Filled(2)).node, -1);
  EXPECT_EQ(index.num_nodes(), 1);
  EXPECT_EQ(index.CheckInvariants().ToString(), "OK");
}

TEST(PrefixIndex, ARemovalLeavesTheSiblings) {
  PrefixIndex index = Index(1, 0);
  const NodeRef root = index.Root("");
  std::vector<NodeRef> children;
  for (int32_t token = 0; token < 4; ++token) {
    children.push_back(index.Insert(root, Filled(token)));
    index.SetPage(children.back().node, 0, token);
  }
  std::vector<NamedPage> named;
  for (const int32_t gone : {1, 3, 0}) {  // the middle, the newest and the oldest
    index.Remove(children[gone].node, &named);
    EXPECT_EQ(index.CheckInvariants().ToString(), "OK");
    EXPECT_EQ(index.Find(root, Filled(gone)).node, -1);
  }
  EXPECT_EQ(index.Find(root, Filled(2)).node, children[2].node);
}

TEST(PrefixIndex, PruningTakesPagelessNodesUpToTheRoot) {
  PrefixIndex index = Index();
  const NodeRef root = index.Root("a");
  const NodeRef a = index.Insert(root, Filled(1));
  const NodeRef b = index.Insert(a, Filled(2));
  index.SetPage(b.node, 0, 5);
  index.Prune(b.node);
  index.Prune(a.node);
  EXPECT_EQ(index.num_nodes(), 2) << "b has a page, and a has b";
  index.SetPage(b.node, 0, -1);
  index.Prune(b.node);
  EXPECT_EQ(index.num_nodes(), 0);
  EXPECT_FALSE(index.IsLive(root));
  EXPECT_EQ(index.FindRoot("a").node, -1);
}

TEST(PrefixIndex, ARemovedLeafTakesItsPagelessParentsAlong) {
  PrefixIndex index = Index();
  const NodeRef a = index.Insert(index.Root(""), Filled(1));
  const NodeRef b = index.Insert(a, Filled(2));
  index.SetPage(b.node, 0, 5);
  std::vector<NamedPage> named;
  index.Remove(b.node, &named);
  EXPECT_FALSE(index.IsLive(a));
  EXPECT_EQ(index.FindRoot("").node, -1);
}

TEST(PrefixIndex, AReferenceDoesNotMeanTheSuccessorOfItsNode) {
  PrefixIndex index = Index();
  const NodeRef root = index.Root("");
  index.SetPage(index.Insert(root, Filled(1)).node, 0, 1);  // keeps the root
  const NodeRef old = index.Insert(root, Filled(2));
  index.SetPage(old.node, 0, 2);
  std::vector<NamedPage> named;
  index.Remove(old.node, &named);
  const NodeRef next = index.Insert(root, Filled(3));
  EXPECT_EQ(next.node, old.node);
  EXPECT_TRUE(index.IsLive(next));
  EXPECT_FALSE(index.IsLive(old));
  EXPECT_EQ(index.page(next.node, 0), -1);
  EXPECT_FALSE(index.IsLive(NodeRef()));
}

TEST(PrefixIndex, AChainOf100000NodesIsRemovedWithoutRecursion) {
  PrefixIndex index = Index();
  const NodeRef first = index.Insert(index.Root(""), Filled(1));
  NodeRef last = first;
  for (int32_t i = 1; i < 100000; ++i) last = index.Insert(last, Filled(1));
  std::vector<NamedPage> named;
  index.Remove(first.node, &named);
  EXPECT_EQ(index.num_nodes(), 0);
}

TEST(PrefixIndex, TheMemoryOfRemovedNodesIsUsedAgain) {
  PrefixIndex index = Index();
  int32_t largest = 0;
  for (int32_t i = 0; i < 1000; ++i) {
    const NodeRef node = index.Insert(index.Root(std::to_string(i)), Filled(i));
    largest = std::max(largest, node.node);
    std::vector<NamedPage> named;
    index.Remove(node.node, &named);
  }
  EXPECT_LE(largest, 1);
}

TEST(PrefixIndexDeath, AnInsertBelowARemovedNodeIsCaught) {
  PrefixIndex index = Index();
  const NodeRef node = index.Insert(index.Root(""), Filled(1));
  std::vector<NamedPage> named;
  index.Remove(node.node, &named);
  EXPECT_DEATH(index.Insert(node, Filled(2)), "parent");
}

// Against a map from whole sequences of pages to nodes.
TEST(PrefixIndex, FindsExactlyWhatWasInsertedUnderRandomUse) {
  using Path = std::vector<int32_t>;  // the salt, then the token of each page
  for (const uint64_t mask : {~uint64_t{0}, uint64_t{3}}) {
    std::mt19937 random(3);
    PrefixIndex index = Index(1, mask);
    std::map<Path, NodeRef> model;
    for (int step = 0; step < 3000; ++step) {
      Path path = {static_cast<int32_t>(random() % 2)};
      NodeRef at = index.Root(std::to_string(path[0]));
      for (size_t depth = 1 + random() % 5; depth > 0; --depth) {
        path.push_back(static_cast<int32_t>(random() % 3));
        NodeRef next = index.Find(at, Filled(path.back()));
        const auto known = model.find(path);
        ASSERT_EQ(next.node, known == model.end() ? -1 : known->second.node);
        if (next.node < 0) {
          next = index.Insert(at, Filled(path.back()));
          index.SetPage(next.node, 0, next.node);
          model.emplace(path, next);
        }
        at = next;
      }
      if (random() % 3 == 0) {
        auto it = model.begin();
        std::advance(it, random() % model.size());
        const Path top = it->first;
        std::vector<NamedPage> named;
        index.Remove(it->second.node, &named);
        const size_t gone = std::erase_if(model, [&](const auto& entry) {
          return entry.first.size() >= top.size() &&
                 std::equal(top.begin(), top.end(), entry.first.begin());
        });
        ASSERT_EQ(named.size(), gone);
      }
      ASSERT_EQ(index.num_nodes(), static_cast<int32_t>(model.size()));
      ASSERT_EQ(index.CheckInvariants().ToString(), "OK");
    }
  }
}

}  // namespace
}  // namespace tandem::test
