// Requests that wait for admission, bounded, fair between streams.
//
// Order: a higher priority first. Within a priority start-time fair queueing (P. Goyal, H. Vin,
// H. Cheng, "Start-time Fair Queueing", SIGCOMM 1996), which is fair whatever the rate of service,
// here whatever higher priorities leave:
// - a stream with requests has a start tag. First is the oldest (arrived, then id) request of the
//   stream with the smallest one; of equal ones, the older request.
// - an admission adds its cost to the stream's tag; the clock is the smallest tag at the latest
//   admission, and never goes back.
// - a stream that had no request starts at the clock, or where its last admission ended, if that is
//   later: it neither saves up turns nor loses one.
// Hence two streams that both wait are served alike, but for the cost of one request each. Nothing
// overtakes First for being smaller, so that a large request is not starved by small ones.
//
// Memory is bounded: the state of a stream without requests goes once the clock has passed it, or
// with the last request of that priority (the end of the paper's busy period). If more than
// max_queued such states would be kept, the clock is moved to the earliest of them; so a flow of
// ever new streams does not starve one that was served before.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "engine/base/clock.h"

namespace tandem {

struct QueuedRequest {
  int64_t id = 0;
  int64_t stream = 0;
  int32_t priority = 0;
  Nanos arrived = 0;  // may lie in the past: a request that is opened again keeps its place by age
  int64_t cost = 1;   // tokens that it reserves, in [1, 2^40]
};

// Each call is O(log n), amortised.
class AdmissionQueue final {
 public:
  // REQUIRES max_queued >= 0.
  explicit AdmissionQueue(int32_t max_queued);

  // The id that had to go, if any. A full queue gives up the last request (lowest priority, then
  // youngest) of the stream that holds most, if that one has at least two more than the pushing
  // stream would then have in all and the request's priority is not above the new one's; else the
  // new one. REQUIRES an id that is not queued.
  std::optional<int64_t> Push(const QueuedRequest& request);
  // Whose turn it is. The same until it goes, or one comes that has a higher priority, is older in
  // the same stream and priority, or is of a stream that was served less.
  std::optional<int64_t> First() const;
  // Removes the request and charges its cost to its stream. REQUIRES that it is queued.
  void Admitted(int64_t id);
  // Nothing is charged. No effect where the id is not queued.
  void Remove(int64_t id);

  int32_t size() const { return static_cast<int32_t>(requests_.size()); }
  int32_t size(int64_t stream) const;
  // How many streams without requests are remembered, counted per priority; at most max_queued.
  int32_t num_remembered() const { return num_remembered_; }

 private:
  using Age = std::pair<Nanos, int64_t>;              // (arrived, id)
  using Turn = std::tuple<int64_t, Nanos, int64_t>;   // (start tag, arrived, id)
  using Place = std::tuple<int64_t, Nanos, int64_t>;  // (-priority, arrived, id)
  struct Flow {                                       // a stream within a priority
    int64_t tag = 0;
    std::set<Age> waiting;  // empty: tag is the virtual time at which its last admission ended
    Turn turn;              // in Class::turns, where something waits
  };
  struct Class {  // a priority
    int64_t clock = 0;
    std::map<int64_t, Flow> flows;               // by stream
    std::set<Turn> turns;                        // of the flows with requests
    std::set<std::pair<int64_t, int64_t>> idle;  // (tag, stream) of the other flows
  };

  void SetTurn(int64_t stream, Flow* flow, Class* of);
  void Add(const QueuedRequest& request);
  void Take(const QueuedRequest& request, bool is_admitted);
  void Forget(Class* of);

  int32_t max_queued_;
  int32_t num_remembered_ = 0;
  std::map<int64_t, QueuedRequest> requests_;                // by id
  std::map<int32_t, Class, std::greater<int32_t>> classes_;  // those with requests
  std::map<int64_t, std::set<Place>> places_;                // by stream; none is empty
  std::set<std::pair<int32_t, int64_t>> holdings_;           // (requests, stream)
};

}  // namespace tandem
