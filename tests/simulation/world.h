// One run of the simulator: the engine, the replicas, the network and the clock between them.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <ostream>
#include <queue>
#include <string>
#include <vector>

#include "engine/decode_engine.h"
#include "tests/simulation/fake_ops.h"
#include "tests/simulation/monitor.h"
#include "tests/simulation/replica.h"
#include "tests/simulation/simulation.h"

namespace tandem::test {

class World final : public ReplicaHost {
 public:
  World(const Scenario& scenario, std::ostream* trace);
  ~World() override;

  Outcome Run();

  Nanos now() const override { return now_; }
  Random& random() override { return random_; }
  void Send(int64_t stream, SimCommand command) override;
  void WakeAt(Nanos at, int32_t replica, Wake wake, int32_t sequence) override;

 private:
  enum class Kind : uint8_t { kCommand, kEvent, kWake, kTurn, kLoseStream, kDrain };
  struct Item {
    Nanos at = 0;
    int64_t order = 0;  // of equal times: first made, first done
    Kind kind = Kind::kTurn;
    int64_t stream = 0;    // kCommand, kEvent
    int32_t replica = 0;   // kWake, kLoseStream
    int32_t sequence = 0;  // kWake
    Wake wake = Wake::kOpenNext;
    friend bool operator>(const Item& a, const Item& b) {
      return std::pair(a.at, a.order) > std::pair(b.at, b.order);
    }
  };
  // What is under way on a stream.
  struct Stream {
    int32_t replica = 0;
    std::deque<SimCommand> commands;
    std::deque<EngineEvent> events;
    Nanos last_command_at = 0;
    Nanos last_event_at = 0;
  };

  void Push(Item item);
  void AddReplicas(int32_t num_requests);
  void PlanLosses();
  void Do(const Item& item);
  void Turn();
  void LoseStream(int32_t replica);
  void Drain();
  void TurnSoon(Nanos delay);
  bool Launch();
  bool Collect();
  // A command reaches the engine, a call of the engine is over.
  void Deliver(SimCommand command);
  void AfterCall(bool with_events = true);
  void Dispatch(std::vector<EngineEvent> events);
  void Finish();
  bool AllDone() const;
  std::string WhoIsNotDone() const;
  Nanos Delay();
  void Trace(const std::string& line);

  const Scenario scenario_;
  std::ostream* const trace_;
  Random random_;
  Violation violation_;
  Counters counters_;
  const Shape shape_;
  const EngineOptions options_;
  FakeOps ops_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<DecodeEngine> engine_;
  std::unique_ptr<Monitor> monitor_;
  std::unique_ptr<Workload> workload_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::map<int64_t, Stream> streams_;  // open ones
  std::priority_queue<Item, std::vector<Item>, std::greater<>> items_;
  Nanos now_ = 1'000'000'000;
  int64_t next_order_ = 0;
  int64_t next_stream_ = 1;
  Nanos next_turn_ = INT64_MAX;
  std::deque<Nanos> ready_at_;  // when the steps in flight are through
  bool is_draining_ = false;
};

}  // namespace tandem::test
