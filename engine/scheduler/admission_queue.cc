#include "engine/scheduler/admission_queue.h"

#include <algorithm>
#include <iterator>

#include "engine/base/check.h"
#include "engine/base/planted_bugs.h"

namespace tandem {

AdmissionQueue::AdmissionQueue(int32_t max_queued) : max_queued_(max_queued) {
  TANDEM_CHECK(max_queued >= 0) << "max_queued " << max_queued;
}

int32_t AdmissionQueue::size(int64_t stream) const {
  const auto found = places_.find(stream);
  return found == places_.end() ? 0 : static_cast<int32_t>(found->second.size());
}

std::optional<int64_t> AdmissionQueue::Push(const QueuedRequest& request) {
  TANDEM_CHECK(!requests_.contains(request.id)) << "id " << request.id << " is queued";
  TANDEM_CHECK(request.cost >= 1 && request.cost <= int64_t{1} << 40)
      << "id " << request.id << " has cost " << request.cost;
  std::optional<int64_t> displaced;
  if (size() >= max_queued_) {
    if (holdings_.empty()) return request.id;
    const auto [most, stream] = *holdings_.rbegin();
    const int64_t last = std::get<2>(*places_.at(stream).rbegin());
    if (size(request.stream) + 1 >= most - 1 || requests_.at(last).priority > request.priority) {
      return request.id;
    }
    displaced = last;
    Remove(last);
  }
  Add(request);
  return displaced;
}

std::optional<int64_t> AdmissionQueue::First() const {
  if (classes_.empty()) return std::nullopt;
  return std::get<2>(*classes_.begin()->second.turns.begin());
}

void AdmissionQueue::Admitted(int64_t id) {
  const auto found = requests_.find(id);
  TANDEM_CHECK(found != requests_.end()) << "id " << id << " is not queued";
  Take(found->second, true);
}

void AdmissionQueue::Remove(int64_t id) {
  const auto found = requests_.find(id);
  if (found != requests_.end()) Take(found->second, false);
}

// Enters the flow's turn after its tag or its oldest request may have changed.
void AdmissionQueue::SetTurn(int64_t stream, Flow* flow, Class* of) {
  const auto [arrived, id] = *flow->waiting.begin();
  flow->turn = {Planted(Bug::kUnfairQueue) ? stream : flow->tag, arrived, id};
  of->turns.insert(flow->turn);
}

void AdmissionQueue::Add(const QueuedRequest& request) {
  Class& of = classes_[request.priority];
  const auto [found, is_new] = of.flows.try_emplace(request.stream);
  Flow& flow = found->second;
  if (is_new) {
    flow.tag = of.clock;
  } else if (flow.waiting.empty()) {  // remembered: its tag is ahead of the clock
    of.idle.erase({flow.tag, request.stream});
    --num_remembered_;
  } else {
    of.turns.erase(flow.turn);
  }
  flow.waiting.emplace(request.arrived, request.id);
  SetTurn(request.stream, &flow, &of);

  std::set<Place>& places = places_[request.stream];
  holdings_.erase({static_cast<int32_t>(places.size()), request.stream});
  places.emplace(-int64_t{request.priority}, request.arrived, request.id);
  holdings_.emplace(static_cast<int32_t>(places.size()), request.stream);
  requests_.emplace(request.id, request);
}

void AdmissionQueue::Take(const QueuedRequest& request, bool is_admitted) {
  const int64_t stream = request.stream;
  const auto in_class = classes_.find(request.priority);
  Class& of = in_class->second;
  Flow& flow = of.flows.at(stream);
  if (is_admitted) {
    if (!Planted(Bug::kUnfairQueue)) {
      of.clock = std::max(of.clock, std::get<0>(*of.turns.begin()));
    }
    flow.tag += request.cost;
  }
  of.turns.erase(flow.turn);
  flow.waiting.erase({request.arrived, request.id});
  if (!flow.waiting.empty()) {
    SetTurn(stream, &flow, &of);
  } else {
    of.idle.emplace(flow.tag, stream);
    ++num_remembered_;
  }
  if (of.turns.empty()) {
    num_remembered_ -= static_cast<int32_t>(of.idle.size());
    classes_.erase(in_class);
  } else {
    Forget(&of);
  }

  const auto in_places = places_.find(stream);
  std::set<Place>& places = in_places->second;
  holdings_.erase({static_cast<int32_t>(places.size()), stream});
  places.erase({-int64_t{request.priority}, request.arrived, request.id});
  if (places.empty()) {
    places_.erase(in_places);
  } else {
    holdings_.emplace(static_cast<int32_t>(places.size()), stream);
  }
  requests_.erase(request.id);
}

// Drops idle flows that the clock has passed: they would start at it all the same. Each call adds
// at most one, so that the loop is O(log n) on average over calls.
void AdmissionQueue::Forget(Class* of) {
  while (!of->idle.empty()) {
    const auto [tag, stream] = *of->idle.begin();
    if (tag > of->clock && num_remembered_ <= max_queued_) return;
    of->clock = std::max(of->clock, tag);
    of->idle.erase(of->idle.begin());
    of->flows.erase(stream);
    --num_remembered_;
  }
}

}  // namespace tandem
