#include "engine/scheduler/admission_queue.h"

#include <gtest/gtest.h>

#include <climits>

namespace tandem {
namespace {

TEST(AdmissionQueue, TheOldestIsFirst) {
  AdmissionQueue queue(3);
  EXPECT_EQ(queue.First(), std::nullopt);
  EXPECT_TRUE(queue.Push(1, 0));
  EXPECT_TRUE(queue.Push(2, 0));
  EXPECT_EQ(queue.First(), 1);
  queue.Remove(1);
  EXPECT_EQ(queue.First(), 2);
}

TEST(AdmissionQueue, AHigherPriorityGoesBeforeAge) {
  AdmissionQueue queue(4);
  queue.Push(1, 0);
  queue.Push(2, INT_MIN);
  queue.Push(3, INT_MAX);
  queue.Push(4, INT_MAX);
  for (const int64_t id : {3, 4, 1, 2}) {
    EXPECT_EQ(queue.First(), id);
    queue.Remove(id);
  }
  EXPECT_EQ(queue.size(), 0);
}

TEST(AdmissionQueue, MoreThanTheBoundIsRefused) {
  AdmissionQueue queue(2);
  EXPECT_TRUE(queue.Push(1, 0));
  EXPECT_TRUE(queue.Push(2, 0));
  EXPECT_FALSE(queue.Push(3, 9));
  EXPECT_EQ(queue.size(), 2);
  queue.Remove(1);
  EXPECT_TRUE(queue.Push(4, 0));
  EXPECT_FALSE(AdmissionQueue(0).Push(1, 0));
}

TEST(AdmissionQueue, RemovingWhatIsNotQueuedDoesNothing) {
  AdmissionQueue queue(2);
  queue.Push(1, 0);
  queue.Remove(7);
  queue.Remove(1);
  queue.Remove(1);
  EXPECT_EQ(queue.size(), 0);
}

TEST(AdmissionQueueDeath, IdsRise) {
  AdmissionQueue queue(4);
  queue.Push(5, 0);
  EXPECT_DEATH(queue.Push(5, 0), "id 5 after 5");
}

}  // namespace
}  // namespace tandem
