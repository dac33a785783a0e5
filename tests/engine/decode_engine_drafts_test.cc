// Drafts of a DecodeEngine: faster, and nothing else. Sessions here may draw a few ids only, so
// that they repeat themselves.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/engine/decode_engine_harness.h"
#include "tests/engine/decode_engine_protocol_fixture.h"

namespace tandem::test {
namespace {

class DecodeEngineDrafts : public DecodeEngineProtocol {
 protected:
  static OpenCommand Repeating(uint64_t number, const std::vector<int32_t>& ids,
                               int32_t run_ahead = 8, int32_t drafts = 8, int32_t max_new = 100) {
    OpenCommand open;
    open.first = {0, number};
    for (int32_t i = 0; i < 10; ++i) open.tokens.push_back(ids[i % ids.size()]);
    open.prompt_length = 10;
    open.max_new = max_new;
    open.sampling.allowed_ids = ids;
    open.run_ahead = run_ahead;
    open.drafts = drafts;
    return open;
  }
  // What a fresh session says behind the first `length` tokens of this one.
  Candidates Plain(OpenCommand open, const std::vector<CandidatesEvent>& events, int32_t length) {
    for (const CandidatesEvent& event : events) {
      open.tokens.push_back(event.candidates.summary.drawn);
    }
    open.tokens.resize(static_cast<size_t>(length));
    return Plain(std::move(open));
  }
  Candidates Plain(OpenCommand open) {
    open.run_ahead = 0;
    open.drafts = 0;
    const std::unique_ptr<DecodeEngine> other = world.MakeEngine(Options());
    Peer fresh(*other);
    const uint64_t number = open.first.number;
    fresh.Open(std::move(open));
    fresh.Run();
    return fresh.Last<CandidatesEvent>(number).candidates;
  }
  // Until nothing is left to do, one step at a time.
  void Run() {
    bool is_idle = false;
    while (!is_idle) {
      const bool launched = engine->Launch(1);
      const absl::StatusOr<bool> collected = engine->Collect(1);
      ASSERT_TRUE(collected.ok());
      is_idle = !launched && !*collected;
    }
  }
  // Until a step with drafts is in flight.
  void LaunchDrafts() {
    while (engine->load().drafted_tokens == 0) {
      ASSERT_TRUE(engine->Launch(1));
      if (engine->load().drafted_tokens > 0) return;
      ASSERT_TRUE(engine->Collect(1).ok());
    }
  }
};

TEST_F(DecodeEngineDrafts, AStepVerifiesSeveralDrafts) {
  const OpenCommand open = Repeating(1, {40}, 4);
  peer.Open(open);
  Run();
  const std::vector<CandidatesEvent> events = peer.All<CandidatesEvent>(1);
  ASSERT_EQ(events.size(), 5u);  // one more than may run ahead
  for (int32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(events[i].position, 10 + i);
    EXPECT_EQ(events[i].epoch, 0u);
    EXPECT_TRUE(SameBits(events[i].candidates, Plain(open, events, 10 + i))) << i;
  }
  EXPECT_EQ(engine->load().steps, 2);  // the prompt, then all the others
  EXPECT_EQ(engine->load().drafted_tokens, 3);
  EXPECT_EQ(engine->load().taken_drafts, 3);
}

TEST_F(DecodeEngineDrafts, WithoutRunAheadThereAreNone) {
  peer.Open(Repeating(1, {40}, 0));
  Run();
  EXPECT_EQ(peer.All<CandidatesEvent>(1).size(), 1u);
  peer.Extend(1, 10, 0, {40});
  Run();
  EXPECT_EQ(peer.All<CandidatesEvent>(1).size(), 2u);
  EXPECT_EQ(engine->load().drafted_tokens, 0);
}

TEST_F(DecodeEngineDrafts, ASessionWaitsForTheDrawInFlightWhereItHasAMatchAndElseRunsAhead) {
  peer.Open(Repeating(1, {40}));
  ASSERT_TRUE(engine->Launch(1));
  EXPECT_FALSE(engine->Launch(1));
  ASSERT_TRUE(*engine->Collect(1));
  ASSERT_TRUE(engine->Launch(1));
  EXPECT_GT(engine->load().drafted_tokens, 0);
  EXPECT_FALSE(engine->Launch(1)) << "what follows the drafts is not known";
  Run();
  OpenCommand open = Repeating(2, {40});
  open.tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  peer.Open(std::move(open));
  EXPECT_TRUE(engine->Launch(1));
  EXPECT_TRUE(engine->Launch(1));
}

TEST_F(DecodeEngineDrafts, AreAtMostWhatTheSessionAskedFor) {
  peer.Open(Repeating(1, {40}, 8, 2));
  Run();
  // Positions 10, then 11 to 13, 14 to 16, 17 and 18.
  EXPECT_EQ(peer.All<CandidatesEvent>(1).size(), 9u);
  EXPECT_EQ(engine->load().steps, 4);
}

TEST_F(DecodeEngineDrafts, NeverPassTheLimitOrTheContext) {
  peer.Open(Repeating(1, {40}, 8, 8, 4));
  Run();
  EXPECT_EQ(peer.All<CandidatesEvent>(1).size(), 4u);
  EXPECT_EQ(peer.Last<CandidatesEvent>(1).position, 13);
  OpenCommand open = Repeating(2, {40});
  open.tokens.resize(507, 40);
  open.max_new = 0;
  peer.Open(std::move(open));
  Run();
  EXPECT_EQ(peer.All<CandidatesEvent>(2).size(), 5u);
  EXPECT_EQ(peer.Last<CandidatesEvent>(2).position, 511);
}

TEST_F(DecodeEngineDrafts, AnExtendMayCutAmongThoseThatWereTaken) {
  OpenCommand open = Repeating(1, {40, 41});
  peer.Open(open);
  Run();
  const std::vector<CandidatesEvent> events = peer.All<CandidatesEvent>(1);
  ASSERT_EQ(events.size(), 9u);
  ASSERT_GE(engine->load().taken_drafts, 3);
  peer.Forget();
  const int32_t first = events[0].candidates.summary.drawn;
  peer.Extend(1, 10, 1, {first, events[1].candidates.summary.drawn, 99, 98});
  Run();
  open.tokens.insert(open.tokens.end(), {first, events[1].candidates.summary.drawn, 99, 98});
  const std::vector<CandidatesEvent> after = peer.All<CandidatesEvent>(1);
  ASSERT_EQ(after.size(), 9u);
  for (const CandidatesEvent& event : after) {
    EXPECT_EQ(event.position, static_cast<int32_t>(open.tokens.size()));
    EXPECT_EQ(event.epoch, 1u);
    EXPECT_TRUE(SameBits(event.candidates, Plain(open))) << event.position;
    open.tokens.push_back(event.candidates.summary.drawn);
  }
}

TEST_F(DecodeEngineDrafts, AnExtendThatComesWhileTheyAreInFlightDropsTheirResults) {
  OpenCommand open = Repeating(1, {40});
  peer.Open(open);
  LaunchDrafts();
  peer.Extend(1, 10, 1, {40, 99});
  Run();
  open.tokens.insert(open.tokens.end(), {40, 99});
  const std::vector<CandidatesEvent> events = peer.All<CandidatesEvent>(1);
  ASSERT_EQ(events.size(), 10u);  // the first, and nine behind the cut
  EXPECT_EQ(events[1].position, 12);
  EXPECT_EQ(events[1].epoch, 1u);
  EXPECT_TRUE(SameBits(events[1].candidates, Plain(open)));
}

TEST_F(DecodeEngineDrafts, AConfirmationWhileTheyAreInFlightKeepsTheirResults) {
  peer.Open(Repeating(1, {40}, 4));
  LaunchDrafts();
  peer.Extend(1, 10, 0, {40});
  Run();
  EXPECT_EQ(peer.All<CandidatesEvent>(1).size(), 6u);
  EXPECT_EQ(engine->load().taken_drafts, 3);
}

TEST_F(DecodeEngineDrafts, AFetchMayComeForAPositionThatWasVerifiedOrIsInFlight) {
  const OpenCommand open = Repeating(1, {40});
  peer.Open(open);
  LaunchDrafts();
  peer.Fetch(1, 11, FetchCommand::What::kRow);
  Run();
  EXPECT_EQ(peer.Last<FetchedEvent>(1).values, Logits(std::vector<int32_t>(11, 40)));
  ASSERT_EQ(peer.All<CandidatesEvent>(1).size(), 9u);
  peer.FetchMore(1, 14, 20, 8);
  Run();
  EXPECT_TRUE(SameBits(peer.Last<FetchedEvent>(1).candidates,
                       Plain(open, peer.All<CandidatesEvent>(1), 14)));
  // The row of a fetch left everything as it was.
  peer.Extend(1, 10, 0, {40, 40});
  Run();
  EXPECT_EQ(peer.All<CandidatesEvent>(1).size(), 11u);
}

TEST_F(DecodeEngineDrafts, ASessionMayBeClosedWhileTheyAreInFlight) {
  peer.Open(Repeating(1, {40}));
  LaunchDrafts();
  engine->Close({{0, 1}}, 1);
  Run();
  EXPECT_EQ(peer.All<ClosedEvent>(1).size(), 1u);
  EXPECT_EQ(peer.All<CandidatesEvent>(1).size(), 1u);
  ASSERT_TRUE(engine->Collect(1).ok());
  EXPECT_EQ(engine->CheckQuiescent().ToString(), "OK");
}

TEST_F(DecodeEngineDrafts, NoSessionGivesWayToThem) {
  EngineOptions options = Options();
  options.kv_tokens = 128;
  options.ahead_tokens = 1;
  engine = world.MakeEngine(options);
  Peer tight(*engine);
  OpenCommand open = Repeating(1, {40});
  open.tokens.resize(60, 40);
  open.max_new = 0;
  tight.Open(std::move(open));
  tight.Open(2, {1, 2, 3});
  while (tight.All<ClosedEvent>(2).empty()) {
    ASSERT_TRUE(engine->Launch(1));
    ASSERT_TRUE(engine->Collect(1).ok());
  }
  // It went when the row of position 64 itself needed a page.
  EXPECT_EQ(tight.Last<ClosedEvent>(2).reason, ClosedEvent::Reason::kPreempted);
  EXPECT_GE(tight.All<CandidatesEvent>(1).size(), 4u);
}

// Rows cost what a step costs, or nothing; every draft would be taken.
TEST_F(DecodeEngineDrafts, ThereAreNoneWhereRowsCostMoreThanTheyBring) {
  for (const Nanos row_nanos : {0, 1000}) {
    engine = world.MakeEngine(Options());
    engine->Open(Repeating(1, {40}, 8, 8, 400), 1);
    Nanos now = 1;
    int32_t decided = 0;
    int64_t drafted = 0;
    while (decided < 390) {
      ASSERT_TRUE(engine->Launch(now));
      const int64_t drafts = engine->load().drafted_tokens - drafted;
      drafted += drafts;
      now += 1000 + drafts * row_nanos;
      ASSERT_TRUE(engine->Collect(now).ok());
      for (const EngineEvent& event : engine->TakeEvents()) {
        const auto* candidates = std::get_if<CandidatesEvent>(&event);
        if (candidates == nullptr) continue;
        ++decided;
        engine->Extend({candidates->handle, candidates->position, 0, {40}}, now);
      }
    }
    if (row_nanos == 0) {
      EXPECT_GT(engine->load().taken_drafts, 300);
    } else {
      EXPECT_LT(drafted, 40);
    }
    engine->CloseStream(0);
  }
}

TEST_F(DecodeEngineDrafts, MoreThanTheLimitIsRefused) {
  peer.Open(Repeating(1, {40}, 8, 9));
  peer.ExpectRefused(1, "drafts is 9: it must be 0 to 8");
  peer.Open(Repeating(2, {40}, 8, -1));
  peer.ExpectRefused(2, "drafts is -1: it must be 0 to 8");
}

TEST_F(DecodeEngineDrafts, AWorkerWithoutThemTakesNone) {
  EngineOptions options = Options();
  options.max_drafts = 0;
  engine = world.MakeEngine(options);
  Peer plain(*engine);
  plain.Open(Repeating(1, {40}, 8, 1));
  plain.ExpectRefused(1, "drafts is 1: it must be 0 to 0");
}

// ---- the same tokens -------------------------------------------------------------------------

class DecodeEngineDraftTokens : public testing::Test {
 protected:
  static EngineOptions Options() {
    EngineOptions options;
    options.max_sessions = 6;
    options.step_tokens = 40;
    options.kv_tokens = 6 * 512;
    return options;
  }
  Request Repeating(uint64_t seed, int32_t num_ids) const {
    Request request;
    request.max_new = 100;
    request.wanted = 60;
    request.sampling.seed = seed;
    for (int32_t i = 0; i < num_ids; ++i) request.sampling.allowed_ids.push_back(40 + i);
    request.tokens = RandomTokens(seed, 20, num_ids);
    for (int32_t& token : request.tokens) token += 40;
    return request;
  }
  // With drafts and without: one by one in an engine of its own, then all together, the draws
  // collected at once or with two steps in flight.
  void ExpectSameAsPlain(const std::vector<Request>& requests) {
    std::vector<Outcome> expected;
    for (const Request& request : requests) {
      expected.push_back(RunAlone(world, Options(), request));
    }
    const auto expect_same = [&](const TextTier& tier, const SessionHandle& handle, size_t i) {
      SCOPED_TRACE("request " + std::to_string(i));
      const Outcome& outcome = tier.outcome(handle);
      ASSERT_EQ(outcome.output, expected[i].output);
      EXPECT_EQ(outcome.misses, 0);
      EXPECT_EQ(outcome.fetched, expected[i].fetched);
      EXPECT_TRUE(outcome.faults.empty());
      for (size_t j = 0; j < outcome.candidates.size(); ++j) {
        EXPECT_TRUE(SameBits(outcome.candidates[j], expected[i].candidates[j])) << j;
      }
    };
    const auto with_drafts = [&](size_t i, int32_t drafts) {
      Request request = requests[i];
      request.run_ahead = 1 + static_cast<int32_t>((i + static_cast<size_t>(drafts)) % 8);
      request.drafts = drafts;
      return request;
    };
    for (const int32_t drafts : {1, 3, 8}) {
      for (const int32_t depth : {1, 2}) {
        const std::unique_ptr<DecodeEngine> together = world.MakeEngine(Options());
        TextTier tier(*together, world.vocab_size());
        std::vector<SessionHandle> handles;
        for (size_t i = 0; i < requests.size(); ++i) {
          handles.push_back(tier.Start(with_drafts(i, drafts)));
          const std::unique_ptr<DecodeEngine> single = world.MakeEngine(Options());
          TextTier alone(*single, world.vocab_size());
          const SessionHandle handle = alone.Start(with_drafts(i, drafts));
          alone.Run(depth);
          expect_same(alone, handle, i);
          drafted += single->load().drafted_tokens;
          taken += single->load().taken_drafts;
        }
        tier.Run(depth);
        for (size_t i = 0; i < requests.size(); ++i) expect_same(tier, handles[i], i);
        EXPECT_EQ(together->CheckQuiescent().ToString(), "OK");
        drafted += together->load().drafted_tokens;
        taken += together->load().taken_drafts;
      }
    }
  }

  const TinyWorld world{TinyWorld::Options{.cpu = true}};
  int64_t drafted = 0;
  int64_t taken = 0;
};

TEST_F(DecodeEngineDraftTokens, AreTheSameWithPenaltiesOverTheDraftPrefix) {
  std::vector<Request> requests;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    Request request = Repeating(seed, 4);
    SamplingParameters& p = request.sampling;
    p.temperature = seed % 2 == 0 ? 0.0f : 1.0f;
    if (seed % 3 != 0) p.repetition_penalty = 1.2f;
    if (seed % 3 != 1) p.presence_penalty = 0.5f;
    if (seed % 3 != 2) p.frequency_penalty = 0.3f;
    p.repetition_window = seed % 2 == 0 ? 3 : 0;
    p.presence_window = 2;
    p.frequency_window = seed % 2 == 0 ? 5 : 0;
    requests.push_back(std::move(request));
  }
  ExpectSameAsPlain(requests);
  EXPECT_GT(taken, 100);
  EXPECT_GT(drafted, taken);
}

TEST_F(DecodeEngineDraftTokens, AreTheSameWhereADraftCrossesMinTokens) {
  std::vector<Request> requests;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    Request request = Repeating(seed, 2);
    request.sampling.temperature = 1.0f;
    request.sampling.end_ids = {41};
    request.sampling.min_tokens = 7 + static_cast<int32_t>(seed);
    request.wanted = 30;
    requests.push_back(std::move(request));
  }
  ExpectSameAsPlain(requests);
  EXPECT_GT(taken, 100);
}

TEST_F(DecodeEngineDraftTokens, AreTheSameWhereDrawsAreUndecided) {
  std::vector<Request> requests;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    Request request = Repeating(seed, 4);
    request.sampling.temperature = 100.0f;
    request.sampling.top_k = 2;
    request.sampling.num_top = 1;
    request.sampling.num_perturbed = 1;
    requests.push_back(std::move(request));
  }
  int32_t fetched = 0;
  for (const Request& request : requests) fetched += RunAlone(world, Options(), request).fetched;
  EXPECT_GE(fetched, 8);  // few: lists grow with each
  ExpectSameAsPlain(requests);
  EXPECT_GT(taken, 50);
}

TEST_F(DecodeEngineDraftTokens, AreTheSameUpToTheLimitAndTheContext) {
  std::vector<Request> requests;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Request request = Repeating(seed, 3);
    request.wanted = request.max_new = 11;
    requests.push_back(request);
    request = Repeating(seed + 10, 1);
    request.max_new = 0;
    request.tokens.resize(480, 40);
    request.wanted = 32;
    requests.push_back(std::move(request));
  }
  ExpectSameAsPlain(requests);
}

TEST_F(DecodeEngineDraftTokens, AreTheSameForParametersOfEveryKind) {
  std::vector<Request> requests = MixedRequests(12, world.vocab_size());
  ExpectSameAsPlain(requests);
}

}  // namespace
}  // namespace tandem::test
