// The queue against a plain model that scans lists, and its bound of fairness.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "engine/scheduler/admission_queue.h"

namespace tandem::test {
namespace {

// Remembers every stream for as long as something of the priority waits.
class ModelQueue final {
 public:
  explicit ModelQueue(size_t max_queued) : max_queued_(max_queued) {}

  std::optional<int64_t> Push(const QueuedRequest& request) {
    std::optional<int64_t> displaced;
    if (requests_.size() == max_queued_) {
      std::map<int64_t, int> held;
      for (const QueuedRequest& other : requests_) ++held[other.stream];
      std::pair<int, int64_t> most;
      for (const auto& [stream, count] : held) most = std::max(most, {count, stream});
      const QueuedRequest* last = nullptr;
      for (const QueuedRequest& other : requests_) {
        if (other.stream != most.second) continue;
        if (last == nullptr || Key(*last) < Key(other)) last = &other;
      }
      const bool has_more = held[request.stream] + 1 < most.first - 1;
      if (!has_more || last->priority > request.priority) return request.id;
      displaced = last->id;
      Remove(last->id);
    }
    const bool was_idle = std::none_of(requests_.begin(), requests_.end(), [&](const auto& other) {
      return other.stream == request.stream && other.priority == request.priority;
    });
    Flows& flows = flows_[request.priority];
    int64_t& tag = flows.tags[request.stream];
    if (was_idle) tag = std::max(tag, flows.clock);
    requests_.push_back(request);
    return displaced;
  }

  std::optional<int64_t> First() {
    if (requests_.empty()) return std::nullopt;
    return std::min_element(requests_.begin(), requests_.end(),
                            [this](auto& a, auto& b) { return Turn(a) < Turn(b); })
        ->id;
  }

  void Admitted(int64_t id) {
    const auto found = Find(id);
    Flows& flows = flows_[found->priority];
    int64_t least = INT64_MAX;
    for (const QueuedRequest& other : requests_) {
      if (other.priority == found->priority) least = std::min(least, flows.tags[other.stream]);
    }
    flows.clock = std::max(flows.clock, least);
    flows.tags[found->stream] += found->cost;
    Remove(id);
  }

  void Remove(int64_t id) {
    const int32_t priority = Find(id)->priority;
    requests_.erase(Find(id));
    if (std::none_of(requests_.begin(), requests_.end(),
                     [&](const auto& other) { return other.priority == priority; })) {
      flows_.erase(priority);
    }
  }

  const std::vector<QueuedRequest>& requests() const { return requests_; }

 private:
  struct Flows {
    int64_t clock = 0;
    std::map<int64_t, int64_t> tags;
  };
  static std::tuple<int64_t, Nanos, int64_t> Key(const QueuedRequest& request) {
    return {-int64_t{request.priority}, request.arrived, request.id};
  }
  std::tuple<int64_t, int64_t, Nanos, int64_t> Turn(const QueuedRequest& request) {
    return {-int64_t{request.priority}, flows_[request.priority].tags[request.stream],
            request.arrived, request.id};
  }
  std::vector<QueuedRequest>::iterator Find(int64_t id) {
    return std::find_if(requests_.begin(), requests_.end(),
                        [&](const QueuedRequest& request) { return request.id == id; });
  }

  size_t max_queued_;
  std::vector<QueuedRequest> requests_;
  std::map<int32_t, Flows> flows_;
};

TEST(AdmissionQueueRandom, AgreesWithAPlainModel) {
  std::mt19937 random(1);
  int num_displaced = 0;
  for (int round = 0; round < 40; ++round) {
    const int32_t max_queued = 18 + static_cast<int32_t>(random() % 12);  // >= streams x priorities
    AdmissionQueue queue(max_queued);
    ModelQueue model(max_queued);
    const uint32_t push_share = 40 + random() % 30;
    for (int64_t i = 0; i < 1000; ++i) {
      const uint32_t what = random() % 100;
      if (what < push_share) {
        QueuedRequest request;
        request.id = i ^ 5;
        // Low streams come more often.
        request.stream = std::min(random() % 6, random() % 6);
        request.priority = static_cast<int32_t>(random() % 3) - 1;
        request.arrived = random() % 4 == 0 ? i - 50 : i;
        request.cost = 1 + random() % 100;
        const std::optional<int64_t> displaced = model.Push(request);
        ASSERT_EQ(queue.Push(request), displaced);
        num_displaced += displaced.has_value() && *displaced != request.id;
      } else if (!model.requests().empty()) {
        const auto& any = model.requests()[random() % model.requests().size()];
        const int64_t id = random() % 4 == 0 ? any.id : *model.First();
        if (what < 92) {
          model.Admitted(id);
          queue.Admitted(id);
        } else {
          model.Remove(id);
          queue.Remove(id);
        }
      }
      ASSERT_EQ(queue.First(), model.First()) << "round " << round << ", call " << i;
      ASSERT_EQ(queue.size(), static_cast<int32_t>(model.requests().size()));
      ASSERT_LE(queue.num_remembered(), max_queued);
    }
    int32_t sum = 0;
    for (int64_t stream = 0; stream < 6; ++stream) sum += queue.size(stream);
    EXPECT_EQ(sum, queue.size());
  }
  EXPECT_GT(num_displaced, 100);
}

// Theorem 1 of the paper, with equal weights: in no interval in which both wait are two streams
// served more than the largest costs of each apart.
TEST(AdmissionQueueRandom, StreamsThatWaitAreServedAlike) {
  std::mt19937 random(2);
  const std::vector<int64_t> largest = {1, 10, 100, 1000, 1000};
  const int32_t num_streams = static_cast<int32_t>(largest.size());
  AdmissionQueue queue(1000);
  std::map<int64_t, QueuedRequest> requests;
  int64_t next_id = 0;
  const auto push = [&](int64_t stream) {
    const int64_t id = next_id++;
    requests[id] = {.id = id, .stream = stream, .arrived = id};
    requests[id].cost = 1 + static_cast<int64_t>(random() % largest[stream]);
    ASSERT_EQ(queue.Push(requests[id]), std::nullopt);
  };
  for (int64_t stream = 0; stream < num_streams; ++stream) {
    for (int i = 0; i <= 20 * stream; ++i) push(stream);  // some have far more than others
  }
  std::vector<int64_t> served(num_streams);
  std::map<std::pair<int, int>, std::pair<int64_t, int64_t>> range;  // of the difference of two
  for (int i = 0; i < 100'000; ++i) {
    const int64_t id = *queue.First();
    const int64_t stream = requests[id].stream;
    served[stream] += requests[id].cost;
    queue.Admitted(id);
    requests.erase(id);
    push(stream);
    for (int a = 0; a < num_streams; ++a) {
      for (int b = 0; b < a; ++b) {
        auto& [low, high] = range[{a, b}];
        low = std::min(low, served[a] - served[b]);
        high = std::max(high, served[a] - served[b]);
        ASSERT_LE(high - low, largest[a] + largest[b]) << a << " and " << b;
      }
    }
  }
}

}  // namespace
}  // namespace tandem::test
