// More than a worker can do: what it takes it does right, the rest it refuses at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/engine/decode_engine_harness.h"
#include "tests/support/allocation_counter.h"

namespace tandem::test {
namespace {

class DecodeEngineOverload : public testing::Test {
 protected:
  static EngineOptions Options() {
    EngineOptions options;
    options.max_sessions = 3;
    options.max_queued = 6;
    options.step_tokens = 32;
    options.kv_tokens = 6 * 64;
    return options;
  }
  // Requests of one page each, by `streams` text tiers in turn.
  std::vector<Request> Requests(int32_t count, int64_t streams) const {
    std::vector<Request> requests = MixedRequests(count, world.vocab_size());
    for (int32_t i = 0; i < count; ++i) {
      requests[i].tokens.resize(std::min<size_t>(requests[i].tokens.size(), 40));
      requests[i].prompt_length = 0;
      requests[i].max_new = 12;
      requests[i].wanted = std::min(requests[i].wanted, 12);
      requests[i].run_ahead = i % 3;
      requests[i].stream = i % streams;
    }
    return requests;
  }

  const TinyWorld& world = PlainWorld();
};

TEST_F(DecodeEngineOverload, B125_TenTimesTheCapacityIsRefusedAtOnceAndTheRestIsRight) {
  const EngineOptions options = Options();
  const int32_t capacity = options.max_sessions + options.max_queued;
  const std::unique_ptr<DecodeEngine> engine = world.MakeEngine(options);
  TextTier tier(*engine, world.vocab_size());
  const std::vector<Request> requests = Requests(10 * capacity, 1);
  std::vector<SessionHandle> handles;
  for (const Request& request : requests) handles.push_back(tier.Start(request));
  // Before any step.
  tier.Handle(engine->TakeEvents());
  int32_t num_refused = 0;
  for (const SessionHandle& handle : handles) {
    const std::vector<ClosedEvent>& closed = tier.outcome(handle).closed;
    if (closed.empty()) continue;
    ++num_refused;
    EXPECT_EQ(closed[0].reason, ClosedEvent::Reason::kRefused);
    EXPECT_NE(closed[0].detail.find("the queue is full: 6 opens wait"), std::string::npos)
        << closed[0].detail;
  }
  EXPECT_EQ(num_refused, 9 * capacity);
  EXPECT_EQ(engine->num_live(), capacity);
  tier.Run(2);
  for (size_t i = 0; i < requests.size(); ++i) {
    const Outcome& outcome = tier.outcome(handles[i]);
    ASSERT_EQ(outcome.closed.size(), 1u);
    if (outcome.closed[0].reason == ClosedEvent::Reason::kRefused) continue;
    EXPECT_EQ(outcome.output, RunAlone(world, options, requests[i]).output) << "request " << i;
  }
  EXPECT_EQ(engine->CheckQuiescent().ToString(), "OK");
}

TEST_F(DecodeEngineOverload, AStreamThatFillsTheQueueMakesRoomForAnother) {
  const std::unique_ptr<DecodeEngine> engine = world.MakeEngine(Options());
  TextTier tier(*engine, world.vocab_size());
  std::vector<Request> requests = Requests(10, 1);
  std::vector<SessionHandle> first;
  for (int32_t i = 0; i < 9; ++i) first.push_back(tier.Start(requests[i]));
  requests[9].stream = 1;
  const SessionHandle other = tier.Start(requests[9]);
  tier.Handle(engine->TakeEvents());
  EXPECT_TRUE(tier.outcome(other).closed.empty());
  ASSERT_EQ(tier.outcome(first.back()).closed.size(), 1u) << "the youngest of the other stream";
  tier.Run();
  EXPECT_EQ(tier.outcome(other).output, RunAlone(world, Options(), requests[9]).output);
}

// What a refused Open leaves behind is nothing, however many there are.
TEST_F(DecodeEngineOverload, MemoryIsBoundedUnderAFloodOfOpens) {
  const std::unique_ptr<DecodeEngine> engine = world.MakeEngine(Options());
  const auto flood = [&](uint64_t first) {
    for (uint64_t number = first; number < first + 2000; ++number) {
      OpenCommand open;
      open.first = {static_cast<int64_t>(number % 50), number};
      open.tokens = {1, 2, 3};
      open.prompt_length = 3;
      open.max_new = 4;
      open.salt = std::to_string(number);
      engine->Open(std::move(open), 1);
      engine->TakeEvents();
    }
    // The backend of this test keeps uploads until somebody waits for them.
    engine->Launch(1);
    EXPECT_TRUE(engine->Collect(1).ok());
    for (int64_t stream = 0; stream < 50; ++stream) engine->CloseStream(stream);
    engine->TakeEvents();
    EXPECT_EQ(engine->CheckQuiescent().ToString(), "OK");
  };
  flood(1);
  const int64_t live = LiveBytes();
  for (uint64_t round = 1; round <= 5; ++round) flood(1 + round * 2000);
  EXPECT_LE(LiveBytes(), live + 4096);
}

}  // namespace
}  // namespace tandem::test
