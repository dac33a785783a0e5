// Rows that run ahead of what the text tier has confirmed.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/engine/decode_engine_harness.h"
#include "tests/engine/decode_engine_protocol_fixture.h"

namespace tandem::test {
namespace {

class DecodeEngineRunAhead : public DecodeEngineProtocol {
 protected:
  // A session that may run `run_ahead` ahead, run until it waits.
  std::vector<CandidatesEvent> OpenAhead(uint64_t number, int32_t run_ahead, int32_t max_new = 50) {
    tokens = RandomTokens(number, 10, world.vocab_size());
    OpenCommand open;
    open.first = {0, number};
    open.prompt_length = 10;
    open.tokens = tokens;
    open.max_new = max_new;
    open.run_ahead = run_ahead;
    peer.Open(std::move(open));
    RunDeep();
    return peer.All<CandidatesEvent>(number);
  }
  // Two steps in flight, as on a device.
  void RunDeep() {
    while (true) {
      const bool launched = engine->Launch(1);
      if (launched) engine->Launch(1);
      const absl::StatusOr<bool> collected = engine->Collect(1);
      ASSERT_TRUE(collected.ok());
      if (!launched && !*collected) return;
    }
  }
};

TEST_F(DecodeEngineRunAhead, ASessionSendsOnePositionMoreThanItMayRunAhead) {
  for (const int32_t run_ahead : {0, 1, 2, 5}) {
    const std::vector<CandidatesEvent> events = OpenAhead(1 + uint64_t(run_ahead), run_ahead);
    ASSERT_EQ(events.size(), static_cast<size_t>(run_ahead + 1));
    for (int32_t i = 0; i <= run_ahead; ++i) {
      EXPECT_EQ(events[i].position, 10 + i);
      EXPECT_EQ(events[i].epoch, 0u);
      EXPECT_TRUE(SameBits(events[i].candidates, Fresh(tokens, 10)));
      tokens.push_back(events[i].candidates.summary.drawn);
    }
  }
}

TEST_F(DecodeEngineRunAhead, ItNeverPassesTheLimit) {
  const std::vector<CandidatesEvent> events = OpenAhead(1, 8, 3);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events.back().position, 12);
}

TEST_F(DecodeEngineRunAhead, AConfirmationLetsItGoOnWithoutRunningAnythingAgain) {
  std::vector<CandidatesEvent> events = OpenAhead(1, 2);
  const int64_t steps = engine->load().steps;
  peer.Extend(1, 10, 0, {events[0].candidates.summary.drawn});
  RunDeep();
  EXPECT_EQ(peer.All<CandidatesEvent>(1).size(), 4u);
  EXPECT_EQ(engine->load().steps, steps + 1);
}

TEST_F(DecodeEngineRunAhead, OneExtendMayConfirmSeveralPositions) {
  std::vector<CandidatesEvent> events = OpenAhead(1, 2);
  peer.Extend(1, 10, 0,
              {events[0].candidates.summary.drawn, events[1].candidates.summary.drawn,
               events[2].candidates.summary.drawn});
  RunDeep();
  EXPECT_EQ(peer.All<CandidatesEvent>(1).size(), 6u);
}

TEST_F(DecodeEngineRunAhead, AnotherTokenCutsWhatRanAheadAndStartsAnEpoch) {
  std::vector<CandidatesEvent> events = OpenAhead(1, 3);
  const int32_t other = OtherThan(events[1].candidates.summary.drawn);
  peer.Forget();
  peer.Extend(1, 10, 1, {events[0].candidates.summary.drawn, other});
  RunDeep();
  const std::vector<CandidatesEvent> after = peer.All<CandidatesEvent>(1);
  ASSERT_EQ(after.size(), 4u);
  tokens.push_back(events[0].candidates.summary.drawn);
  tokens.push_back(other);
  EXPECT_EQ(after[0].position, 12);
  EXPECT_EQ(after[0].epoch, 1u);
  EXPECT_TRUE(SameBits(after[0].candidates, Fresh(tokens, 10)));
}

TEST_F(DecodeEngineRunAhead, AnExtendThatComesWhileTwoStepsAreInFlightDropsTheirResults) {
  OpenAhead(1, 0);
  peer.Open(2, RandomTokens(9, 10, world.vocab_size()), 50);
  OpenCommand open;
  open.first = {0, 3};
  open.prompt_length = 10;
  open.tokens = RandomTokens(3, 10, world.vocab_size());
  open.max_new = 50;
  open.run_ahead = 4;
  const std::vector<int32_t> prompt = open.tokens;
  peer.Open(std::move(open));
  ASSERT_TRUE(engine->Launch(1));
  ASSERT_TRUE(engine->Launch(1));
  // Nothing is known of the draws in flight.
  peer.Extend(3, 10, 0, {7, 8});
  RunDeep();
  std::vector<int32_t> list = prompt;
  list.push_back(7);
  list.push_back(8);
  const std::vector<CandidatesEvent> events = peer.All<CandidatesEvent>(3);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events[0].position, 12);
  EXPECT_EQ(events[0].epoch, 0u);
  EXPECT_TRUE(SameBits(events[0].candidates, Fresh(list, 10)));
}

TEST_F(DecodeEngineRunAhead, MoreThanTheLimitIsRefused) {
  OpenCommand open;
  open.first = {0, 1};
  open.prompt_length = 10;
  open.tokens = RandomTokens(1, 10, world.vocab_size());
  open.run_ahead = 9;
  peer.Open(std::move(open));
  peer.ExpectRefused(1, "run_ahead is 9: it must be 0 to 8");
}

// The promise of sampling outside the worker: running ahead changes nothing but the time.
TEST(DecodeEngineRunAheadTokens, AreThoseWithoutRunningAheadWithTwoStepsInFlight) {
  const TinyWorld& world = PlainWorld();
  EngineOptions options;
  options.max_sessions = 6;
  options.step_tokens = 40;
  options.kv_tokens = 6 * 512;
  std::vector<Request> requests = MixedRequests(24, world.vocab_size());
  std::vector<Outcome> expected;
  for (const Request& request : requests) expected.push_back(RunAlone(world, options, request));
  for (const int32_t depth : {1, 2}) {
    const std::unique_ptr<DecodeEngine> engine = world.MakeEngine(options);
    TextTier tier(*engine, world.vocab_size());
    std::vector<SessionHandle> handles;
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].run_ahead = static_cast<int32_t>(i % 5);
      handles.push_back(tier.Start(requests[i]));
    }
    tier.Run(depth);
    for (size_t i = 0; i < requests.size(); ++i) {
      const Outcome& outcome = tier.outcome(handles[i]);
      EXPECT_EQ(outcome.output, expected[i].output) << "request " << i << ", depth " << depth;
      EXPECT_EQ(outcome.misses, 0);
      EXPECT_TRUE(outcome.faults.empty());
    }
    EXPECT_EQ(engine->CheckQuiescent().ToString(), "OK");
  }
}

}  // namespace
}  // namespace tandem::test
