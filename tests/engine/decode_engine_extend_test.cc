// Extend as the protocol has it: epochs, cuts, limits, refusals.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/engine/decode_engine_protocol_fixture.h"

namespace tandem::test {
namespace {

TEST_F(DecodeEngineProtocol, AnExtendThatNamesTheDrawKeepsTheEpoch) {
  const CandidatesEvent first = Opened(1, 10);
  peer.Extend(1, 10, 0, {first.candidates.summary.drawn});
  peer.Run();
  EXPECT_EQ(peer.Last<CandidatesEvent>(1).position, 11);
  EXPECT_EQ(peer.Last<CandidatesEvent>(1).epoch, 0u);
}

TEST_F(DecodeEngineProtocol, AnExtendThatDiffersFromTheDrawCarriesTheNextEpoch) {
  const CandidatesEvent first = Opened(1, 10);
  const int32_t other = OtherThan(first.candidates.summary.drawn);
  peer.Extend(1, 10, 1, {other});
  peer.Run();
  EXPECT_EQ(peer.Last<CandidatesEvent>(1).position, 11);
  EXPECT_EQ(peer.Last<CandidatesEvent>(1).epoch, 1u);
  tokens.push_back(other);
  EXPECT_TRUE(SameBits(peer.Last<CandidatesEvent>(1).candidates, Fresh(tokens, 10)));
}

TEST_F(DecodeEngineProtocol, ACutUnderAnUnchangedEpochIsRefused) {
  const CandidatesEvent first = Opened(1, 10);
  peer.Extend(1, 10, 0, {OtherThan(first.candidates.summary.drawn)});
  peer.ExpectRefused(1, "epoch is 0: it must be 1, since it cuts what is held");
}

// Its sender may not know whether it cuts: it names draws that it has not received.
TEST_F(DecodeEngineProtocol, ANextEpochWithoutADifferenceGivesTheCandidatesInTheNewEpoch) {
  const CandidatesEvent first = Opened(1, 10);
  peer.Extend(1, 10, 0, {first.candidates.summary.drawn});
  peer.Run();
  const CandidatesEvent second = peer.Last<CandidatesEvent>(1);
  peer.Extend(1, 10, 1, {first.candidates.summary.drawn});
  peer.Run();
  const CandidatesEvent again = peer.Last<CandidatesEvent>(1);
  EXPECT_EQ(again.position, 11);
  EXPECT_EQ(again.epoch, 1u);
  EXPECT_TRUE(SameBits(again.candidates, second.candidates));
}

TEST_F(DecodeEngineProtocol, ALowerEpochIsRefused) {
  const CandidatesEvent first = Opened(1, 10);
  peer.Extend(1, 10, 1, {OtherThan(first.candidates.summary.drawn)});
  peer.Run();
  const int32_t drawn = peer.Last<CandidatesEvent>(1).candidates.summary.drawn;
  peer.Extend(1, 11, 0, {drawn});
  peer.ExpectRefused(1, "epoch is 0: it must be 1 or 2");
}

TEST_F(DecodeEngineProtocol, AJumpOfTwoEpochsIsRefused) {
  const CandidatesEvent first = Opened(1, 10);
  peer.Extend(1, 10, 2, {OtherThan(first.candidates.summary.drawn)});
  peer.ExpectRefused(1, "epoch is 2");
}

TEST_F(DecodeEngineProtocol, APositionBeyondWhatIsHeldIsRefused) {
  Opened(1, 10);
  peer.Extend(1, 12, 0, {1});
  peer.ExpectRefused(1, "position must be 0 to 11");
}

TEST_F(DecodeEngineProtocol, APositionBehindTheDrawAcceptsTheDraw) {
  const CandidatesEvent first = Opened(1, 10);
  peer.Extend(1, 11, 0, {7});
  peer.Run();
  EXPECT_EQ(peer.Last<CandidatesEvent>(1).position, 12);
  tokens.insert(tokens.end(), {first.candidates.summary.drawn, 7});
  EXPECT_TRUE(SameBits(peer.Last<CandidatesEvent>(1).candidates, Fresh(tokens, 10)));
}

TEST_F(DecodeEngineProtocol, SeveralTokensInOneExtendAreHeldAtOnce) {
  Opened(1, 10);
  const std::vector<int32_t> more = RandomTokens(77, 100, world.vocab_size());
  const int32_t drawn = peer.Last<CandidatesEvent>(1).candidates.summary.drawn;
  peer.Extend(1, 10, more[0] == drawn ? 0 : 1, more);
  peer.Run();
  EXPECT_EQ(peer.Last<CandidatesEvent>(1).position, 110);
  tokens.insert(tokens.end(), more.begin(), more.end());
  EXPECT_TRUE(SameBits(peer.Last<CandidatesEvent>(1).candidates, Fresh(tokens, 10)));
}

TEST_F(DecodeEngineProtocol, EqualTokensCutNothing) {
  Opened(1, 10);
  peer.Forget();
  peer.Extend(1, 3, 0, {tokens.begin() + 3, tokens.begin() + 6});
  peer.Run();
  EXPECT_TRUE(peer.All<CandidatesEvent>(1).empty()) << "nothing changed, so nothing is to decide";
  EXPECT_TRUE(peer.All<ClosedEvent>(1).empty());
}

TEST_F(DecodeEngineProtocol, RewindsAndReplacementsEqualAFreshSession) {
  for (const int32_t back : {1, 63, 64, 65, 128}) {
    SCOPED_TRACE(back);
    const uint64_t number = static_cast<uint64_t>(back);
    const int32_t length = 200;
    const CandidatesEvent first = Opened(number, length, uint64_t(back));
    const int32_t at = length - back;
    const int32_t other = OtherThan(tokens[at]);
    // The common part is kept wherever the Extend begins.
    std::vector<int32_t> extend(tokens.begin() + at - 5, tokens.begin() + at);
    extend.insert(extend.end(), {other, 9});
    peer.Extend(number, at - 5, 1, extend);
    peer.Run();
    std::vector<int32_t> list(tokens.begin(), tokens.begin() + at);
    list.insert(list.end(), {other, 9});
    const CandidatesEvent next = peer.Last<CandidatesEvent>(number);
    EXPECT_EQ(next.position, at + 2);
    EXPECT_EQ(next.epoch, 1u);
    EXPECT_TRUE(SameBits(next.candidates, Fresh(list, length)));
    // And on from there.
    list.push_back(next.candidates.summary.drawn);
    peer.Extend(number, at + 2, 1, {list.back()});
    peer.Run();
    EXPECT_TRUE(SameBits(peer.Last<CandidatesEvent>(number).candidates, Fresh(list, length)));
    EXPECT_NE(first.position, next.position);
  }
}

TEST_F(DecodeEngineProtocol, ACutWithoutTokensGivesTheCandidatesOfItsPositionAgain) {
  for (const int32_t back : {0, 1, 63, 64, 65, 128}) {
    SCOPED_TRACE(back);
    const uint64_t number = static_cast<uint64_t>(back) + 1;
    Opened(number, 200, 3);
    const int32_t at = 200 - back;
    peer.Extend(number, at, 1, {});
    peer.Run();
    const CandidatesEvent next = peer.Last<CandidatesEvent>(number);
    EXPECT_EQ(next.position, at);
    EXPECT_EQ(next.epoch, 1u);
    EXPECT_TRUE(SameBits(next.candidates, Fresh({tokens.begin(), tokens.begin() + at}, 200)));
  }
}

TEST_F(DecodeEngineProtocol, ACutBehindTheDrawAcceptsTheDraw) {
  const CandidatesEvent first = Opened(1, 10);
  peer.Extend(1, 11, 1, {});
  peer.Run();
  EXPECT_EQ(peer.Last<CandidatesEvent>(1).position, 11);
  tokens.push_back(first.candidates.summary.drawn);
  EXPECT_TRUE(SameBits(peer.Last<CandidatesEvent>(1).candidates, Fresh(tokens, 10)));
}

TEST_F(DecodeEngineProtocol, ACutWithoutTokensNeedsTheNextEpoch) {
  Opened(1, 10);
  peer.Extend(1, 9, 0, {});
  peer.ExpectRefused(1, "epoch is 0: it must be 1, since it cuts what is held");
}

TEST_F(DecodeEngineProtocol, ACutOfEverythingIsRefused) {
  Opened(1, 10);
  peer.Extend(1, 0, 1, {});
  peer.ExpectRefused(1, "no token would be left");
}

TEST_F(DecodeEngineProtocol, ARewindOfMoreThanMaxRewindIsRefused) {
  Opened(1, 200);
  peer.Extend(1, 200 - 129, 1, {});
  peer.ExpectRefused(1, "max_rewind 128");
  // Counted from the longest that the session was, so that two cuts do not add up.
  Opened(2, 200);
  peer.Extend(2, 100, 1, {});
  peer.Run();
  peer.Extend(2, 71, 2, {});
  peer.ExpectRefused(2, "the cut to 71 is 129 tokens back from 200: at most max_rewind 128");
}

TEST_F(DecodeEngineProtocol, EventsOfAnOlderEpochAreDropped) {
  Opened(1, 10);
  const int32_t drawn = peer.Last<CandidatesEvent>(1).candidates.summary.drawn;
  peer.Forget();
  peer.Extend(1, 10, 0, {drawn});
  ASSERT_TRUE(engine->Launch(1));  // the row for position 11, under epoch 0
  peer.Extend(1, 5, 1, {OtherThan(tokens[5])});
  ASSERT_TRUE(engine->Launch(1));
  ASSERT_TRUE(engine->Collect(1).ok());
  ASSERT_TRUE(engine->Collect(1).ok());
  const std::vector<CandidatesEvent> events = peer.All<CandidatesEvent>(1);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].position, 6);
  EXPECT_EQ(events[0].epoch, 1u);
  std::vector<int32_t> list(tokens.begin(), tokens.begin() + 5);
  list.push_back(OtherThan(tokens[5]));
  EXPECT_TRUE(SameBits(events[0].candidates, Fresh(list, 10)));
}

// The row was computed on another token 9; only its epoch tells.
TEST_F(DecodeEngineProtocol, AnOlderEpochsEventIsDroppedAlsoWhereItsPositionFits) {
  tokens = RandomTokens(18, 10, world.vocab_size());
  peer.Open(1, tokens);
  ASSERT_TRUE(engine->Launch(1));
  const int32_t other = OtherThan(tokens[9]);
  peer.Extend(1, 9, 1, {other});
  ASSERT_TRUE(engine->Launch(1));
  ASSERT_TRUE(engine->Collect(1).ok());
  EXPECT_TRUE(peer.All<CandidatesEvent>(1).empty());
  ASSERT_TRUE(engine->Collect(1).ok());
  tokens.back() = other;
  EXPECT_EQ(peer.Last<CandidatesEvent>(1).epoch, 1u);
  EXPECT_TRUE(SameBits(peer.Last<CandidatesEvent>(1).candidates, Fresh(tokens, 10)));
}

TEST_F(DecodeEngineProtocol, AnExtendWhileItsRowIsInFlightIsNotUndoneByTheDraw) {
  tokens = RandomTokens(9, 20, world.vocab_size());
  peer.Open(1, tokens);
  ASSERT_TRUE(engine->Launch(1));
  // No draw was sent, so any token keeps the epoch. The draw of the step in flight lands in the
  // slot later, and must not win.
  peer.Extend(1, 20, 0, {11, 12});
  ASSERT_TRUE(engine->Launch(1));
  ASSERT_TRUE(engine->Collect(1).ok());
  EXPECT_TRUE(peer.All<CandidatesEvent>(1).empty()) << "position 20 is confirmed";
  ASSERT_TRUE(engine->Collect(1).ok());
  tokens.insert(tokens.end(), {11, 12});
  EXPECT_TRUE(SameBits(peer.Last<CandidatesEvent>(1).candidates, Fresh(tokens, 20)));
}

// What step 1 drew was overwritten by an upload before step 2 drew: it says nothing of what stands
// in the slot, also where it is the token of the next Extend.
TEST_F(DecodeEngineProtocol, ADrawThatWasOverwrittenIsNotTakenForWhatTheSlotHolds) {
  tokens = RandomTokens(19, 20, world.vocab_size());
  const int32_t first_draw = Fresh(tokens, 20).summary.drawn;
  const int32_t other = OtherThan(first_draw);
  std::vector<int32_t> list = tokens;
  list.push_back(other);
  ASSERT_NE(Fresh(list, 20).summary.drawn, first_draw);
  list.push_back(first_draw);

  peer.Open(1, tokens);
  ASSERT_TRUE(engine->Launch(1));
  peer.Extend(1, 20, 0, {other});
  ASSERT_TRUE(engine->Launch(1));
  ASSERT_TRUE(engine->Collect(1).ok());
  peer.Extend(1, 21, 0, {first_draw});
  ASSERT_TRUE(engine->Launch(1));
  ASSERT_TRUE(engine->Collect(1).ok());
  ASSERT_TRUE(engine->Collect(1).ok());
  EXPECT_EQ(peer.Last<CandidatesEvent>(1).position, 22);
  EXPECT_TRUE(SameBits(peer.Last<CandidatesEvent>(1).candidates, Fresh(list, 20)));
}

TEST_F(DecodeEngineProtocol, ExtendsBeforeAdmissionAreAppliedAfterIt) {
  tokens = RandomTokens(10, 20, world.vocab_size());
  peer.Open(1, tokens);
  peer.Extend(1, 20, 0, {1});
  peer.Extend(1, 21, 0, {2});
  peer.Run();
  tokens.insert(tokens.end(), {1, 2});
  EXPECT_EQ(peer.Last<CandidatesEvent>(1).position, 22);
  EXPECT_TRUE(SameBits(peer.Last<CandidatesEvent>(1).candidates, Fresh(tokens, 20)));
  peer.Open(2, tokens);
  for (int32_t i = 0; i <= kMaxDeferred; ++i) peer.Extend(2, 22 + i, 0, {1});
  peer.ExpectRefused(2, "more than 16 extends");
}

TEST_F(DecodeEngineProtocol, AForkThatRewindsIntoSharedPagesLeavesTheOthersAlone) {
  SamplingParameters sampling;
  sampling.temperature = 1.0f;
  tokens = RandomTokens(12, 200, world.vocab_size());
  peer.Open(1, tokens, 50, sampling, 3);
  peer.Run();
  std::vector<int32_t> rewound(tokens.begin(), tokens.begin() + 100);
  rewound.push_back(OtherThan(tokens[100]));
  peer.Extend(2, 100, 1, {rewound.back()});
  peer.Run();
  sampling.seed = 0;
  const auto fresh = [&](const std::vector<int32_t>& list, uint32_t choice) {
    const std::unique_ptr<DecodeEngine> other = world.MakeEngine(Options());
    Peer alone(*other);
    OpenCommand open;
    open.first = {0, 1};
    open.tokens = list;
    open.prompt_length = static_cast<int32_t>(std::min<size_t>(200, list.size()));
    open.sampling = sampling;
    open.first_choice = choice;
    other->Open(open, 1);
    alone.Run();
    return alone.Last<CandidatesEvent>(1).candidates;
  };
  EXPECT_TRUE(SameBits(peer.Last<CandidatesEvent>(2).candidates, fresh(rewound, 1)));
  for (const uint64_t number : {1, 3}) {
    const uint32_t choice = static_cast<uint32_t>(number) - 1;
    std::vector<int32_t> list = tokens;
    list.push_back(peer.Last<CandidatesEvent>(number).candidates.summary.drawn);
    peer.Extend(number, 200, 0, {list.back()});
    peer.Run();
    EXPECT_TRUE(SameBits(peer.Last<CandidatesEvent>(number).candidates, fresh(list, choice)));
  }
}

TEST_F(DecodeEngineProtocol, B087_NothingIsComputedAtTheLimitAndNothingPassesIt) {
  tokens = RandomTokens(13, 508, world.vocab_size());
  peer.Open(1, tokens);  // context 512
  for (int32_t position = 508; position < 512; ++position) {
    peer.Run();
    const CandidatesEvent event = peer.Last<CandidatesEvent>(1);
    ASSERT_EQ(event.position, position);
    peer.Extend(1, position, 0, {event.candidates.summary.drawn});
  }
  peer.Run();
  EXPECT_EQ(peer.Last<CandidatesEvent>(1).position, 511);
  peer.Extend(1, 512, 0, {1});
  peer.ExpectRefused(1, "pass the limit of 512");
}

TEST_F(DecodeEngineProtocol, B129_AHugeMaxNewReachesTheContextAndNoFurther) {
  tokens = RandomTokens(17, 510, world.vocab_size());
  peer.Open(1, tokens, std::numeric_limits<int32_t>::max());
  peer.Run();
  EXPECT_EQ(peer.Last<CandidatesEvent>(1).position, 510);
  const int32_t drawn = peer.Last<CandidatesEvent>(1).candidates.summary.drawn;
  peer.Extend(1, 510, 0, {drawn, 1, 2});
  peer.ExpectRefused(1, "3 tokens pass the limit of 512");
}

TEST_F(DecodeEngineProtocol, MaxNewCountsFromThePromptsLength) {
  OpenCommand open;
  open.first = {0, 1};
  open.tokens = RandomTokens(14, 12, world.vocab_size());
  open.prompt_length = 10;
  open.max_new = 3;
  engine->Open(open, 1);
  peer.Run();
  EXPECT_EQ(peer.Last<CandidatesEvent>(1).position, 12);
  peer.Extend(1, 12, 0, {peer.Last<CandidatesEvent>(1).candidates.summary.drawn});
  peer.Run();
  EXPECT_EQ(peer.All<CandidatesEvent>(1).size(), 1u) << "13 tokens are all that it may have";
}

TEST_F(DecodeEngineProtocol, ExtendsWithBadTokensAreRefused) {
  Opened(1, 10);
  peer.Extend(1, 10, 1, {3, -5});
  peer.ExpectRefused(1, "tokens[1] is -5");
  Opened(2, 10);
  peer.Extend(2, 10, 1, {world.vocab_size()});
  peer.ExpectRefused(2, "tokens[0] is");
  Opened(3, 10);
  peer.Extend(3, -1, 1, {1});
  peer.ExpectRefused(3, "position must be");
  Opened(4, 10);
  peer.Extend(4, 10, 1, std::vector<int32_t>(503, 1));
  peer.ExpectRefused(4, "503 tokens pass the limit of 512");
  Opened(5, 10);
  peer.Extend(5, std::numeric_limits<int32_t>::max(), 1, {1});
  peer.ExpectRefused(5, "position must be");
}

}  // namespace
}  // namespace tandem::test
