#include "engine/scheduler/preemption.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tandem::test {
namespace {

TEST(ChooseVictim, TheYoungestOfTheLowestPriorityGoes) {
  const GrowingSequence needy = {.age = 1, .priority = 2, .reclaimable_pages = 4, .slot = 0};
  std::vector<GrowingSequence> others = {
      {.age = 5, .priority = 1, .reclaimable_pages = 9, .slot = 1},
      {.age = 2, .priority = 0, .reclaimable_pages = 1, .slot = 2},
      {.age = 3, .priority = 0, .reclaimable_pages = 1, .slot = 3},
      {.age = 9, .priority = 2, .reclaimable_pages = 9, .slot = 4}};
  for (const int32_t slot : {3, 2, 1, 4, 0}) {
    EXPECT_EQ(ChooseVictim(needy, 5, 0, others), slot);
    std::erase_if(others, [&](const GrowingSequence& other) { return other.slot == slot; });
  }
}

TEST(ChooseVictim, NeverOneOfHigherPriorityNorAnOlderOneOfTheSame) {
  const GrowingSequence needy = {.age = 5, .priority = 1, .reclaimable_pages = 1, .slot = 0};
  EXPECT_EQ(ChooseVictim(needy, 1, 0,
                         {{{.age = 9, .priority = 2, .reclaimable_pages = 9, .slot = 1},
                           {.age = 4, .priority = 1, .reclaimable_pages = 9, .slot = 2}}}),
            0);
}

TEST(ChooseVictim, ALowerPriorityGoesThoughItIsOlder) {
  const GrowingSequence needy = {.age = 5, .priority = 1, .slot = 0};
  EXPECT_EQ(
      ChooseVictim(needy, 1, 0, {{{.age = 1, .priority = 0, .reclaimable_pages = 1, .slot = 1}}}),
      1);
}

TEST(ChooseVictim, NobodyGoesWhilePagesThatSufficeAreOnTheirWayBack) {
  const GrowingSequence needy = {.age = 1, .slot = 0};
  const std::vector<GrowingSequence> others = {{.age = 2, .reclaimable_pages = 3, .slot = 1}};
  EXPECT_EQ(ChooseVictim(needy, 2, 2, others), std::nullopt);
  EXPECT_EQ(ChooseVictim(needy, 2, 1, others), 1);
}

TEST(ChooseVictim, B073_VictimsWithoutReclaimablePagesArePassedOver) {
  const GrowingSequence needy = {.age = 1, .slot = 0};
  EXPECT_EQ(ChooseVictim(needy, 1, 0,
                         {{{.age = 9, .reclaimable_pages = 0, .slot = 1},
                           {.age = 2, .reclaimable_pages = 1, .slot = 2},
                           {.age = 8, .reclaimable_pages = 0, .slot = 3}}}),
            2);
  EXPECT_EQ(ChooseVictim(needy, 1, 0, {{{.age = 9, .reclaimable_pages = 0, .slot = 1}}}), 0);
}

// A request for more pages than there are is refused at admission. Should one grow to it all the
// same, asking ends with itself instead of going round.
TEST(ChooseVictim, B071_WhatNeverFitsEndsWithItself) {
  const GrowingSequence needy = {.age = 0, .reclaimable_pages = 10, .slot = 0};
  std::vector<GrowingSequence> others;
  for (int32_t slot = 1; slot <= 5; ++slot) others.push_back({slot, 0, 8, slot});
  for (int32_t slot = 5; slot >= 0; --slot) {
    ASSERT_EQ(ChooseVictim(needy, 57, 0, others), slot);
    if (slot > 0) others.pop_back();
  }
}

// A pool that holds few of many growing sequences; victims are queued again and admitted as soon as
// there is room. Everyone finishes, and nobody goes for one behind it.
TEST(ChooseVictim, B071_PreemptAndRequeueComesToAnEnd) {
  constexpr int64_t kPool = 50;
  std::mt19937 random(4);
  for (int round = 0; round < 100; ++round) {
    struct Job {
      GrowingSequence state;  // reclaimable_pages: held
      int64_t computed = 0;   // pages' worth; kept by whoever opens it again
      int64_t length = 0;
    };
    std::vector<Job> waiting;  // in the order of admission
    std::vector<Job> running;
    const auto is_before = [](const Job& a, const Job& b) {
      return std::pair(-a.state.priority, a.state.age) < std::pair(-b.state.priority, b.state.age);
    };
    for (int32_t slot = 0; slot < 12; ++slot) {
      const int32_t priority = static_cast<int32_t>(random() % 3);
      waiting.push_back(
          {{slot, priority, 0, slot}, 1, 1 + static_cast<int64_t>(random() % (kPool - 1))});
    }
    int64_t num_free = kPool;
    int calls = 0;
    while (!waiting.empty() || !running.empty()) {
      ASSERT_LT(++calls, 20'000);
      std::sort(waiting.begin(), waiting.end(), is_before);
      while (!waiting.empty() && waiting.front().computed < num_free) {
        running.push_back(waiting.front());
        running.back().state.reclaimable_pages = running.back().computed;
        num_free -= running.back().computed;
        waiting.erase(waiting.begin());
      }
      ASSERT_FALSE(running.empty());
      const size_t who = random() % running.size();
      const int32_t growing = running[who].state.slot;
      if (running[who].computed == running[who].length) {
        num_free += running[who].state.reclaimable_pages;
        running.erase(running.begin() + who);
        continue;
      }
      if (num_free == 0) {
        const Job needy = running[who];
        std::vector<GrowingSequence> others;
        for (const Job& job : running) {
          if (job.state.slot != growing) others.push_back(job.state);
        }
        const std::optional<int32_t> slot = ChooseVictim(needy.state, 1, 0, others);
        ASSERT_TRUE(slot.has_value());
        const auto victim = std::find_if(running.begin(), running.end(),
                                         [&](const Job& job) { return job.state.slot == *slot; });
        ASSERT_FALSE(is_before(*victim, needy));
        ASSERT_TRUE(
            running.size() == 1 ||
            is_before(*std::min_element(running.begin(), running.end(), is_before), *victim));
        num_free += victim->state.reclaimable_pages;
        waiting.push_back(*victim);
        running.erase(victim);
        if (*slot == growing) continue;
      }
      // The needy one takes the page before anybody is admitted to it.
      const auto grows = std::find_if(running.begin(), running.end(),
                                      [&](const Job& job) { return job.state.slot == growing; });
      --num_free;
      ++grows->state.reclaimable_pages;
      ++grows->computed;
    }
    EXPECT_EQ(num_free, kPool);
  }
}

}  // namespace
}  // namespace tandem::test
