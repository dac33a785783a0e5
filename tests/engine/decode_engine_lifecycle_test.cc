// Admission, cancellation in every state, deadlines, drain, exhaustion: how sessions of a
// DecodeEngine begin and end, and that they give everything back.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/engine/decode_engine_harness.h"

namespace tandem::test {
namespace {

using Reason = ClosedEvent::Reason;

class DecodeEngineLifecycle : public testing::Test {
 protected:
  static EngineOptions Options() {
    EngineOptions options;
    options.max_sessions = 4;
    options.max_queued = 4;
    options.step_tokens = 32;
    options.kv_tokens = 512;  // 8 pages
    return options;
  }
  explicit DecodeEngineLifecycle(const EngineOptions& options = Options())
      : engine(world.MakeEngine(options)), peer(*engine) {}

  std::vector<int32_t> Tokens(int32_t count, uint64_t seed = 1) const {
    return RandomTokens(seed, count, world.vocab_size());
  }
  void CollectAll() {
    while (true) {
      const absl::StatusOr<bool> collected = engine->Collect(1);
      ASSERT_TRUE(collected.ok());
      if (!*collected) return;
    }
  }
  void ExpectQuiescent() { EXPECT_EQ(engine->CheckQuiescent().ToString(), "OK"); }
  void ExpectClosed(uint64_t number, Reason reason) {
    const std::vector<ClosedEvent> closed = peer.All<ClosedEvent>(number);
    ASSERT_EQ(closed.size(), 1u) << "handle " << number;
    EXPECT_EQ(closed[0].reason, reason) << closed[0].detail;
  }
  int64_t used_pages() const { return engine->load().total_pages - engine->load().free_pages; }

  const TinyWorld& world = PlainWorld();
  std::unique_ptr<DecodeEngine> engine;
  Peer peer;
};

// ---- cancel in every state -------------------------------------------------------------------

TEST_F(DecodeEngineLifecycle, CloseWhileQueuedTakesTheOpenOutOfTheQueue) {
  peer.Open(1, Tokens(10));
  EXPECT_EQ(engine->load().queued, 1);
  engine->Close({{0, 1}}, 1);
  EXPECT_EQ(engine->load().queued, 0);
  ExpectClosed(1, Reason::kDone);
  EXPECT_FALSE(engine->Launch(1));
  ExpectQuiescent();
}

TEST_F(DecodeEngineLifecycle, B075_PagesOfASessionClosedInFlightReturnAfterItsStep) {
  peer.Open(1, Tokens(100));
  ASSERT_TRUE(engine->Launch(1));
  ASSERT_TRUE(engine->Launch(1));
  EXPECT_FALSE(engine->Launch(1)) << "two steps are in flight";
  EXPECT_EQ(used_pages(), 1);
  engine->Close({{0, 1}}, 1);
  ExpectClosed(1, Reason::kDone);
  EXPECT_EQ(used_pages(), 1);
  ASSERT_TRUE(engine->Collect(1).ok());
  EXPECT_EQ(used_pages(), 1) << "the second step writes to it still";
  ASSERT_TRUE(engine->Collect(1).ok());
  ExpectQuiescent();
}

TEST_F(DecodeEngineLifecycle, CloseWhileItWaitsForExtendFreesAtOnce) {
  peer.Open(1, Tokens(100));
  peer.Run();
  EXPECT_EQ(peer.All<CandidatesEvent>(1).size(), 1u);
  engine->Close({{0, 1}}, 1);
  ExpectClosed(1, Reason::kDone);
  ExpectQuiescent();
}

TEST_F(DecodeEngineLifecycle, CloseWithAFetchInFlightSendsNoAnswer) {
  peer.Open(1, Tokens(10));
  peer.Run();
  peer.Fetch(1, 10, FetchCommand::What::kRow);
  ASSERT_TRUE(engine->Launch(1));
  engine->Close({{0, 1}}, 1);
  CollectAll();
  EXPECT_TRUE(peer.All<FetchedEvent>(1).empty());
  ExpectClosed(1, Reason::kDone);
  ExpectQuiescent();
}

// The prefill belongs to all choices: it goes on under the next one.
TEST_F(DecodeEngineLifecycle, CloseOfTheLeadingChoiceKeepsThePrefillOfTheOthers) {
  SamplingParameters sampling;
  sampling.temperature = 1.0f;
  const std::vector<int32_t> tokens = Tokens(110);
  peer.Open(1, tokens, 10, sampling, 3);
  ASSERT_TRUE(engine->Launch(1));
  ASSERT_TRUE(engine->Launch(1));
  engine->Close({{0, 1}}, 1);
  ASSERT_TRUE(engine->Collect(1).ok());
  peer.Run();
  CollectAll();
  peer.Run();
  ExpectClosed(1, Reason::kDone);
  EXPECT_TRUE(peer.All<CandidatesEvent>(1).empty());
  for (const uint64_t number : {2, 3}) {
    const Decider decider(sampling, static_cast<uint32_t>(number) - 1, 110, tokens,
                          world.vocab_size(), {});
    EXPECT_EQ(decider.DecideFromCandidates(peer.Last<CandidatesEvent>(number).candidates).token,
              decider.DecideFromRow(world.Logits(tokens)).token);
  }
  EXPECT_EQ(engine->load().steps, 4 + 1) << "109 tokens in steps of 32, no prefill repeated";
  engine->Close({{0, 2}}, 1);
  engine->Close({{0, 3}}, 1);
  ExpectQuiescent();
}

TEST_F(DecodeEngineLifecycle, CloseOfEveryChoiceInEveryOrderGivesEverythingBack) {
  std::vector<uint64_t> order = {1, 2, 3};
  uint64_t first = 0;
  do {
    for (int when = 0; when < 5; ++when) {
      peer.Open(first + 1, Tokens(100), 20, {}, 3);
      for (int i = 0; i < when; ++i) {
        engine->Launch(1);
        if (i % 2 == 1) {
          ASSERT_TRUE(engine->Collect(1).ok());
        }
      }
      for (const uint64_t number : order) engine->Close({{0, first + number}}, 1);
      CollectAll();
      ExpectQuiescent();
      for (uint64_t i = 1; i <= 3; ++i) ExpectClosed(first + i, Reason::kDone);
      first += 3;
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

// The late row of a session belongs to nobody, also where its slot has a new owner.
TEST_F(DecodeEngineLifecycle, B115_B121_ALateRowReachesNoOtherSession) {
  for (uint64_t round = 0; round < 8; ++round) {
    const uint64_t number = 10 * round + 1;
    peer.Open(number, Tokens(20, 100 + round), 10);
    ASSERT_TRUE(engine->Launch(1));  // gives Candidates
    engine->Close({{0, number}}, 1);
    const std::vector<int32_t> other = Tokens(25, 200 + round);
    peer.Open(number + 1, other, 10);
    ASSERT_TRUE(engine->Launch(1));
    CollectAll();
    EXPECT_TRUE(peer.All<CandidatesEvent>(number).empty());
    ASSERT_EQ(peer.All<CandidatesEvent>(number + 1).size(), 1u);
    const CandidatesEvent event = peer.Last<CandidatesEvent>(number + 1);
    EXPECT_EQ(event.position, 25);
    EXPECT_EQ(event.candidates.top[0].id, ArgMax(world.Logits(other)));
    engine->Close({{0, number + 1}}, 1);
  }
  ExpectQuiescent();
}

// Edits of the session before (bias, bans, reports) are not those of the next one in the slot.
TEST_F(DecodeEngineLifecycle, B115_ASlotKeepsNothingOfItsLastSession) {
  const std::vector<int32_t> tokens = Tokens(12);
  peer.Open(1, tokens);
  peer.Run();
  const Candidates clean = peer.Last<CandidatesEvent>(1).candidates;
  engine->Close({{0, 1}}, 1);
  SamplingParameters edits;
  edits.temperature = 1.0f;
  edits.logit_bias = {{clean.top[5].id, 50.0f}};
  edits.banned_ids = {clean.top[0].id};
  edits.end_ids = {clean.top[1].id};
  edits.min_tokens = 5;
  edits.repetition_penalty = 2.0f;
  edits.want_raw = true;
  edits.report_ids = {1, 2};
  peer.Open(2, tokens, 0, edits);
  peer.Run();
  EXPECT_FALSE(SameBits(peer.Last<CandidatesEvent>(2).candidates, clean));
  engine->Close({{0, 2}}, 1);
  peer.Open(3, tokens);
  peer.Run();
  EXPECT_TRUE(SameBits(peer.Last<CandidatesEvent>(3).candidates, clean));
  engine->Close({{0, 3}}, 1);
  ExpectQuiescent();
}

TEST_F(DecodeEngineLifecycle, CloseStreamFreesItsSessionsAndSilencesThem) {
  TextTier tier(*engine, world.vocab_size());
  Request request;
  request.tokens = Tokens(10);
  request.wanted = 5;
  request.max_new = 10;
  request.stream = 7;
  tier.Start(request);
  OpenCommand lost;
  lost.first = {3, 1};
  lost.tokens = Tokens(40);
  lost.prompt_length = 40;
  lost.max_new = 10;
  engine->Open(lost, 1);
  lost.first = {3, 2};
  lost.tokens = {-1};
  engine->Open(lost, 1);  // refused: its Closed waits to be taken
  ASSERT_TRUE(engine->Launch(1));
  lost.first = {3, 3};
  lost.tokens = Tokens(5);
  lost.prompt_length = 5;
  engine->Open(lost, 1);  // queued
  engine->CloseStream(3);
  tier.Run();  // fails on an event of a handle that it does not know
  EXPECT_EQ(tier.outcome(1, 7).output.size(), 5u);
  ExpectQuiescent();
}

// ---- admission -------------------------------------------------------------------------------

TEST_F(DecodeEngineLifecycle, B071_WhatCanNeverFitIsRefusedAtOnce) {
  SamplingParameters sampling;
  peer.Open(1, Tokens(100), 400, sampling, 2);
  peer.ExpectRefused(1, "it needs 16 pages of 64 tokens (prompt 100, length 500, choices 2)");
  peer.ExpectRefused(2, "has 8");
  EXPECT_FALSE(engine->Launch(1));
  ExpectQuiescent();
}

TEST_F(DecodeEngineLifecycle, WhatDoesNotFitNowWaitsInOrder) {
  peer.Open(1, Tokens(200), 56);  // 4 pages
  peer.Open(2, Tokens(300), 84);  // 6 pages
  peer.Open(3, Tokens(20), 10);   // 1 page: must not overtake
  peer.Run();
  EXPECT_EQ(peer.All<OpenedEvent>(1).size(), 1u);
  EXPECT_TRUE(peer.All<OpenedEvent>(2).empty());
  EXPECT_TRUE(peer.All<OpenedEvent>(3).empty());
  EXPECT_EQ(engine->load().queued, 2);
  EXPECT_EQ(engine->load().queued_prefill_tokens, 320);
  engine->Close({{0, 1}}, 1);
  peer.Run();
  EXPECT_EQ(peer.All<CandidatesEvent>(2).size(), 1u);
  EXPECT_EQ(peer.All<CandidatesEvent>(3).size(), 1u);
  engine->Close({{0, 2}}, 1);
  engine->Close({{0, 3}}, 1);
  ExpectQuiescent();
}

TEST_F(DecodeEngineLifecycle, AHigherPriorityIsAdmittedFirst) {
  peer.Open(1, Tokens(200), 200);  // 7 of 8 pages
  peer.Run();
  OpenCommand open;
  open.tokens = Tokens(100);
  open.prompt_length = 100;
  open.max_new = 90;  // 3 pages
  for (const uint64_t number : {2, 3}) {
    open.first = {0, number};
    open.priority = static_cast<int32_t>(number);
    engine->Open(open, 1);
  }
  engine->Close({{0, 1}}, 1);
  engine->TakeEvents();
  ASSERT_TRUE(engine->Launch(1));
  ASSERT_TRUE(engine->Collect(1).ok());
  std::vector<uint64_t> opened;
  for (const EngineEvent& event : engine->TakeEvents()) {
    if (const auto* it = std::get_if<OpenedEvent>(&event)) opened.push_back(it->handle.number);
  }
  EXPECT_EQ(opened, (std::vector<uint64_t>{3, 2}));
}

TEST_F(DecodeEngineLifecycle, B125_MoreOpensThanTheQueueHoldsAreRefused) {
  for (uint64_t number = 1; number <= 8; ++number) peer.Open(number, Tokens(5), 5);
  EXPECT_EQ(peer.All<OpenedEvent>(4).size(), 1u) << "what has a slot does not wait";
  EXPECT_TRUE(peer.All<OpenedEvent>(5).empty());
  peer.Open(9, Tokens(5), 5, {}, 2);
  peer.ExpectRefused(9, "the queue is full: 4 opens wait");
  peer.ExpectRefused(10, "the queue is full");
}

TEST_F(DecodeEngineLifecycle, SessionsBeyondTheSlotsWaitAndAllFinish) {
  EngineOptions options = Options();
  options.max_queued = 64;
  engine = world.MakeEngine(options);
  TextTier tier(*engine, world.vocab_size());
  Request request;
  request.tokens = Tokens(30);
  request.wanted = 6;
  request.max_new = 10;
  for (int i = 0; i < 20; ++i) tier.Start(request);
  tier.Run(2);
  for (const Outcome* outcome : tier.outcomes()) EXPECT_EQ(outcome->output.size(), 6u);
  ExpectQuiescent();
}

TEST_F(DecodeEngineLifecycle, ASessionWithMaxNewIsNeverEvictedForMemory) {
  TextTier tier(*engine, world.vocab_size());
  Request bounded;
  bounded.tokens = Tokens(60);
  bounded.wanted = 130;
  bounded.max_new = 130;  // 3 pages
  Request open_ended = bounded;
  open_ended.max_new = 0;  // up to the context: all 8 pages, when it gets them
  tier.Start(bounded);
  tier.Start(bounded);
  tier.Start(open_ended);
  tier.Run();
  for (uint64_t i = 1; i <= 3; ++i) EXPECT_EQ(tier.outcome(i).output.size(), 130u) << i;
  ExpectQuiescent();
}

TEST_F(DecodeEngineLifecycle, B073_ASessionThatCannotGrowIsPreemptedAndItsPagesServeTheOthers) {
  EngineOptions options = Options();
  options.ahead_tokens = 64;
  engine = world.MakeEngine(options);
  TextTier tier(*engine, world.vocab_size());
  Request request;
  request.tokens = Tokens(100);
  request.wanted = 300;  // 7 of 8 pages
  tier.Start(request);
  tier.Start(request);
  tier.Run();
  int32_t finished = 0;
  for (const Outcome* outcome : tier.outcomes()) {
    ASSERT_EQ(outcome->closed.size(), 1u);
    if (outcome->output.size() == 300u) {
      ++finished;
    } else {
      EXPECT_EQ(outcome->closed[0].reason, Reason::kPreempted);
      EXPECT_NE(outcome->closed[0].detail.find("no page is left for position"), std::string::npos);
    }
  }
  EXPECT_EQ(finished, 1);
  ExpectQuiescent();
}

// ---- deadlines -------------------------------------------------------------------------------

TEST_F(DecodeEngineLifecycle, B147_ExpiredWorkIsDroppedBeforePrefill) {
  OpenCommand open;
  open.first = {0, 1};
  open.tokens = Tokens(10);
  open.prompt_length = 10;
  open.deadline = 100;
  engine->Open(open, 50);
  EXPECT_FALSE(engine->Launch(100)) << "nothing is left to run";
  ExpectClosed(1, Reason::kExpired);
  EXPECT_TRUE(peer.All<OpenedEvent>(1).empty());
  open.first = {0, 2};
  engine->Open(open, 100);
  ExpectClosed(2, Reason::kExpired);
  ExpectQuiescent();
}

TEST_F(DecodeEngineLifecycle, ADeadlineEndsARunningSessionToo) {
  OpenCommand open;
  open.first = {0, 1};
  open.tokens = Tokens(100);
  open.prompt_length = 100;
  open.deadline = 100;
  engine->Open(open, 1);
  open.first = {0, 2};
  engine->Open(open, 1);
  ASSERT_TRUE(engine->Launch(1));
  engine->Extend({{0, 2}, 100, 0, {1}}, 100);  // too late itself
  ExpectClosed(2, Reason::kExpired);
  EXPECT_FALSE(engine->Launch(100));
  ExpectClosed(1, Reason::kExpired);
  CollectAll();
  ExpectQuiescent();
}

// ---- drain, prefill ---------------------------------------------------------------------------

TEST_F(DecodeEngineLifecycle, DrainTakesNoMoreAndHandsSessionsOverOneByOneTheYoungestFirst) {
  const Nanos spread = Options().drain_spread;
  peer.Open(1, Tokens(10), 10);
  peer.Run();
  peer.Open(2, Tokens(10), 10);
  ASSERT_TRUE(engine->Launch(1));
  peer.Open(3, Tokens(10), 10);
  engine->Drain(1);
  ExpectClosed(3, Reason::kDraining);
  peer.Open(4, Tokens(10), 10);
  ExpectClosed(4, Reason::kDraining);
  ASSERT_TRUE(engine->Collect(1).ok());
  EXPECT_EQ(peer.All<CandidatesEvent>(2).size(), 1u) << "it runs until its turn comes";
  engine->Launch(1 + spread / 2 - 1);
  EXPECT_TRUE(peer.All<ClosedEvent>(2).empty());
  engine->Launch(1 + spread / 2);
  ExpectClosed(2, Reason::kDraining);
  EXPECT_TRUE(peer.All<ClosedEvent>(1).empty());
  engine->Launch(1 + spread);
  ExpectClosed(1, Reason::kDraining);
  ExpectQuiescent();
}

TEST_F(DecodeEngineLifecycle, ARowWithNoAllowedIdHasNoEntriesAndNoDraw) {
  SamplingParameters nothing;
  nothing.allowed_ids = {4};
  nothing.banned_ids = {4};
  peer.Open(1, Tokens(10), 5, nothing);
  peer.Run();
  const Candidates candidates = peer.Last<CandidatesEvent>(1).candidates;
  EXPECT_EQ(candidates.summary.num_in_row, 0);
  EXPECT_EQ(candidates.summary.drawn, -1);
  EXPECT_TRUE(candidates.top.empty());
  const Decider decider(nothing, 0, 10, Tokens(10), world.vocab_size(), {});
  EXPECT_EQ(decider.DecideFromCandidates(candidates).kind, Decision::Kind::kNoToken);
}

TEST_F(DecodeEngineLifecycle, APromptOfSeveralStepsReportsItsProgress) {
  peer.Open(1, Tokens(100), 5);
  peer.Run();
  std::vector<int32_t> done;
  for (const PrefillEvent& event : peer.All<PrefillEvent>(1)) {
    EXPECT_EQ(event.total, 100);
    done.push_back(event.done);
  }
  EXPECT_EQ(done, (std::vector<int32_t>{32, 64, 96}));
  peer.Open(2, Tokens(20), 5);
  peer.Run();
  EXPECT_TRUE(peer.All<PrefillEvent>(2).empty());
}

}  // namespace
}  // namespace tandem::test
