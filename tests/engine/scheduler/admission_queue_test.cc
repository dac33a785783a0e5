#include "engine/scheduler/admission_queue.h"

#include <gtest/gtest.h>

#include <climits>
#include <vector>

namespace tandem::test {
namespace {

// The ids in the order in which they are admitted.
std::vector<int64_t> AdmitAll(AdmissionQueue* queue) {
  std::vector<int64_t> ids;
  while (const std::optional<int64_t> id = queue->First()) {
    ids.push_back(*id);
    queue->Admitted(*id);
  }
  return ids;
}

using Ids = std::vector<int64_t>;

TEST(AdmissionQueue, TheOldestOfAStreamIsFirst) {
  AdmissionQueue queue(4);
  EXPECT_EQ(queue.First(), std::nullopt);
  EXPECT_EQ(queue.Push({.id = 1, .arrived = 20}), std::nullopt);
  EXPECT_EQ(queue.Push({.id = 2, .arrived = 30}), std::nullopt);
  EXPECT_EQ(queue.Push({.id = 4, .arrived = 10}), std::nullopt);  // opened again
  EXPECT_EQ(queue.Push({.id = 3, .arrived = 10}), std::nullopt);
  EXPECT_EQ(AdmitAll(&queue), (Ids{3, 4, 1, 2}));
  EXPECT_EQ(queue.size(), 0);
}

TEST(AdmissionQueue, AHigherPriorityGoesBeforeAgeAndFairness) {
  AdmissionQueue queue(5);
  queue.Push({.id = 1, .stream = 1, .priority = 0, .arrived = 1});
  queue.Push({.id = 2, .stream = 2, .priority = INT_MIN, .arrived = 2});
  queue.Push({.id = 3, .stream = 3, .priority = INT_MAX, .arrived = 3});
  queue.Push({.id = 4, .stream = 3, .priority = INT_MAX, .arrived = 4});
  EXPECT_EQ(AdmitAll(&queue), (Ids{3, 4, 1, 2}));
}

TEST(AdmissionQueue, StreamsTakeTurnsHoweverManyRequestsOneHas) {
  AdmissionQueue queue(10);
  for (int64_t id = 0; id < 5; ++id) queue.Push({.id = id, .stream = 1, .arrived = id});
  for (int64_t id = 5; id < 7; ++id) queue.Push({.id = id, .stream = 2, .arrived = id});
  EXPECT_EQ(AdmitAll(&queue), (Ids{0, 5, 1, 6, 2, 3, 4}));
}

TEST(AdmissionQueue, TurnsAreByCost) {
  AdmissionQueue queue(10);
  for (int64_t id = 0; id < 2; ++id) {
    queue.Push({.id = id, .stream = 1, .arrived = id, .cost = 30});
  }
  for (int64_t id = 2; id < 7; ++id) {
    queue.Push({.id = id, .stream = 2, .arrived = id, .cost = 10});
  }
  EXPECT_EQ(AdmitAll(&queue), (Ids{0, 2, 3, 4, 1, 5, 6}));
}

TEST(AdmissionQueue, NothingOvertakesALargeRequest) {
  AdmissionQueue queue(10);
  queue.Push({.id = 1, .stream = 1, .arrived = 1, .cost = 1'000'000});
  for (int64_t id = 2; id < 8; ++id) {
    queue.Push({.id = id, .stream = id % 3, .arrived = id, .cost = 1});
    EXPECT_EQ(queue.First(), 1);
  }
}

TEST(AdmissionQueue, AStreamThatWasIdleSavesUpNoTurns) {
  AdmissionQueue queue(100);
  int64_t id = 0;
  for (; id < 20; ++id) queue.Push({.id = id, .stream = 1, .arrived = id});
  for (int i = 0; i < 10; ++i) queue.Admitted(*queue.First());
  for (; id < 30; ++id) queue.Push({.id = id, .stream = 2, .arrived = id});
  EXPECT_EQ(AdmitAll(&queue),
            (Ids{20, 10, 21, 11, 22, 12, 23, 13, 24, 14, 25, 15, 26, 16, 27, 17, 28, 18, 29, 19}));
}

TEST(AdmissionQueue, AStreamGainsNoTurnByBeingIdleForAMoment) {
  AdmissionQueue queue(100);
  queue.Push({.id = 0, .stream = 1, .arrived = 0, .cost = 3});
  for (int64_t id = 1; id < 6; ++id) queue.Push({.id = id, .stream = 2, .arrived = id});
  queue.Admitted(0);
  EXPECT_EQ(queue.num_remembered(), 1);
  queue.Push({.id = 6, .stream = 1, .arrived = -1});
  EXPECT_EQ(AdmitAll(&queue), (Ids{1, 2, 3, 6, 4, 5}));
  EXPECT_EQ(queue.num_remembered(), 0);
}

TEST(AdmissionQueue, HighPriorityAdmissionsDoNotMoveTheClockOfLowerOnes) {
  AdmissionQueue queue(100);
  queue.Push({.id = 1, .stream = 1, .priority = 0, .arrived = 1});
  for (int64_t id = 2; id < 6; ++id) {
    queue.Push({.id = id, .stream = 2, .priority = 5, .arrived = id, .cost = 1000});
    queue.Admitted(id);
  }
  queue.Push({.id = 6, .stream = 3, .priority = 0, .arrived = 6});
  queue.Push({.id = 7, .stream = 1, .priority = 0, .arrived = 5});
  EXPECT_EQ(AdmitAll(&queue), (Ids{1, 6, 7}));
}

TEST(AdmissionQueue, RemovingChargesNothingAndPassesTheTurnOn) {
  AdmissionQueue queue(10);
  queue.Push({.id = 1, .stream = 1, .arrived = 1, .cost = 50});
  queue.Push({.id = 2, .stream = 2, .arrived = 2});
  queue.Push({.id = 3, .stream = 1, .arrived = 0});
  queue.Remove(3);
  EXPECT_EQ(queue.First(), 1);
  queue.Remove(1);
  EXPECT_EQ(queue.First(), 2);
  queue.Push({.id = 4, .stream = 1, .arrived = 1});
  EXPECT_EQ(AdmitAll(&queue), (Ids{4, 2}));
}

TEST(AdmissionQueue, RemovingWhatIsNotQueuedDoesNothing) {
  AdmissionQueue queue(2);
  queue.Push({.id = 1});
  queue.Remove(7);
  EXPECT_EQ(queue.size(), 1);
  queue.Remove(1);
  queue.Remove(1);
  EXPECT_EQ(queue.size(), 0);
}

TEST(AdmissionQueue, AFullQueueRefusesTheNewOne) {
  AdmissionQueue queue(2);
  queue.Push({.id = 1});
  queue.Push({.id = 2});
  EXPECT_EQ(queue.Push({.id = 3, .priority = 9}), 3);
  EXPECT_EQ(queue.size(), 2);
  queue.Remove(1);
  EXPECT_EQ(queue.Push({.id = 4}), std::nullopt);
  EXPECT_EQ(AdmissionQueue(0).Push({.id = 1}), 1);
}

TEST(AdmissionQueue, AFullQueueGivesUpTheLastOfTheStreamThatHoldsMost) {
  AdmissionQueue queue(6);
  for (int64_t id = 0; id < 4; ++id) queue.Push({.id = id, .stream = 1, .arrived = id});
  queue.Push({.id = 4, .stream = 1, .priority = -1, .arrived = -9});
  queue.Push({.id = 5, .stream = 2, .arrived = 5});
  EXPECT_EQ(queue.Push({.id = 6, .stream = 3, .arrived = 6}), 4);  // of the lowest priority
  EXPECT_EQ(queue.Push({.id = 7, .stream = 3, .arrived = 7}), 3);  // the youngest
  EXPECT_EQ(queue.Push({.id = 8, .stream = 3, .arrived = 8}), 8);  // 3 are not fewer than 3 - 1
  EXPECT_EQ(queue.Push({.id = 9, .stream = 4, .arrived = 9}), 2);
  EXPECT_EQ(queue.Push({.id = 10, .stream = 5, .arrived = 10}), 10);
  EXPECT_EQ(queue.size(1), 2);
  EXPECT_EQ(queue.size(3), 2);
  EXPECT_EQ(queue.size(5), 0);
  EXPECT_EQ(queue.size(), 6);
}

TEST(AdmissionQueue, AHigherPriorityIsNotGivenUpForALowerOne) {
  AdmissionQueue queue(4);
  for (int64_t id = 0; id < 4; ++id) queue.Push({.id = id, .stream = 1, .priority = 1});
  EXPECT_EQ(queue.Push({.id = 4, .stream = 2, .priority = 0}), 4);
  EXPECT_EQ(queue.Push({.id = 5, .stream = 2, .priority = 1}), 3);
}

TEST(AdmissionQueue, EverNewStreamsNeitherStarveAServedOneNorAreRemembered) {
  AdmissionQueue queue(4);
  queue.Push({.id = 0, .stream = 0, .cost = 100});
  queue.Push({.id = 1, .stream = 0, .arrived = 1});
  queue.Admitted(0);  // stream 0 is 100 ahead of the clock
  int64_t id = 2;
  for (;; ++id) {
    queue.Push({.id = id, .stream = id, .arrived = id});
    if (queue.First() == 1) break;
    queue.Admitted(id);
    ASSERT_LE(queue.num_remembered(), 4);
    ASSERT_LT(id, 1000);
  }
  EXPECT_GE(id, 100);
}

TEST(AdmissionQueueDeath, IdsAreQueuedOnceAndAdmittedFromTheQueue) {
  AdmissionQueue queue(4);
  queue.Push({.id = 5});
  EXPECT_DEATH(queue.Push({.id = 5}), "id 5 is queued");
  EXPECT_DEATH(queue.Admitted(6), "id 6 is not queued");
  EXPECT_DEATH(queue.Push({.id = 7, .cost = 0}), "id 7 has cost 0");
}

}  // namespace
}  // namespace tandem::test
