// Workers that run ahead: candidates of several positions wait, are decided in order, and are
// confirmed, cut or closed.
#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/services/text/session_fixture.h"

namespace tandem::text {
namespace {

using test::kImEnd;
using testing::ElementsAre;
using testing::HasSubstr;

class RunAheadTest : public SessionTest {
 protected:
  static constexpr int32_t kAhead = 4;
  static constexpr int32_t kPosition = 4;  // of the first output token

  GenerationRequest Ahead() {
    GenerationRequest request = Request();
    request.run_ahead = kAhead;
    request.ignore_eos = true;
    request.max_tokens = 12;
    return request;
  }
  // The client reads on only after the worker has run ahead as far as it may.
  static void RunAheadWhilePaused(Conversation& talk) {
    talk.Open();
    Pause(talk, true);
    talk.Continue();
  }
  static void Pause(Conversation& talk, bool paused) {
    talk.Do(
        [&](Session& session, SessionOutput* out) { session.SetPaused(paused, talk.now, out); });
  }
  static std::vector<decode::v1::Extend> Extends(const Conversation& talk) {
    std::vector<decode::v1::Extend> out;
    for (const decode::v1::Command& command : talk.sent) {
      if (command.has_extend()) out.push_back(command.extend());
    }
    return out;
  }
};

TEST_F(RunAheadTest, TheOpenAsksForNoMoreThanTheWorkerAllows) {
  for (const int32_t limit : {0, 1, kAhead, kAhead + 1}) {
    GenerationRequest request = Ahead();
    auto limited = std::make_shared<ServedModel>(*request.model);
    limited->limits.max_run_ahead = limit;
    request.model = limited;
    const GenerationRequest copy = request;
    Conversation talk(&decoder, std::move(request));
    talk.Run();
    EXPECT_EQ(decoder.open_commands.back().run_ahead(), std::min(limit, kAhead));
    EXPECT_EQ(talk.choice().token_ids, TokensByRows(copy, 0, 12));
    decoder.Reset();
  }
}

TEST_F(RunAheadTest, TheOpenAsksForNoMoreDraftsThanTheWorkerMakes) {
  for (const int32_t limit : {0, 3, 9}) {
    GenerationRequest request = Ahead();
    request.drafts = 5;
    auto limited = std::make_shared<ServedModel>(*request.model);
    limited->limits.max_drafts = limit;
    request.model = limited;
    Conversation talk(&decoder, std::move(request));
    talk.Run();
    EXPECT_EQ(decoder.open_commands.back().drafts(), std::min(limit, 5));
    decoder.Reset();
  }
}

TEST_F(RunAheadTest, EachPositionIsConfirmedInTheCurrentEpochAsItIsDecided) {
  const GenerationRequest request = Ahead();
  Conversation talk(&decoder, request);
  talk.Open();
  EXPECT_EQ(talk.events.size(), 1u + 1 + kAhead) << "Opened, then all that may run ahead";
  talk.Continue();
  const std::vector<int32_t> expected = TokensByRows(request, 0, 12);
  EXPECT_EQ(talk.choice().token_ids, expected);
  const auto extends = Extends(talk);
  ASSERT_EQ(extends.size(), 11u) << "the last token closes";
  for (size_t i = 0; i < extends.size(); ++i) {
    EXPECT_EQ(extends[i].position(), kPosition + static_cast<int32_t>(i));
    EXPECT_EQ(extends[i].epoch(), 0u);
    EXPECT_THAT(extends[i].tokens(), ElementsAre(static_cast<uint32_t>(expected[i])));
  }
}

TEST_F(RunAheadTest, PositionsThatAreDecidedAtOnceAreConfirmedInOneExtend) {
  const GenerationRequest request = Ahead();
  Conversation talk(&decoder, request);
  RunAheadWhilePaused(talk);
  Pause(talk, false);
  const std::vector<int32_t> expected = TokensByRows(request, 0, 12);
  const auto extends = Extends(talk);
  ASSERT_EQ(extends.size(), 1u);
  EXPECT_EQ(extends[0].position(), kPosition);
  EXPECT_EQ(extends[0].epoch(), 0u);
  EXPECT_EQ(std::vector<int32_t>(extends[0].tokens().begin(), extends[0].tokens().end()),
            std::vector<int32_t>(expected.begin(), expected.begin() + kAhead + 1));
  talk.Continue();
  EXPECT_EQ(talk.choice().token_ids, expected);
}

TEST_F(RunAheadTest, AMissIsNamedWithThePositionsBeforeItAndDropsWhatRanAheadOfIt) {
  int sent = 0;
  decoder.options().tamper = [&sent](decode::v1::Candidates* message) {
    if (++sent == 3) message->set_drawn(message->drawn() == 'q' ? 'r' : 'q');
  };
  const GenerationRequest request = Ahead();
  Conversation talk(&decoder, request);
  RunAheadWhilePaused(talk);
  Pause(talk, false);
  const std::vector<int32_t> expected = TokensByRows(request, 0, 12);
  const auto extends = Extends(talk);
  ASSERT_EQ(extends.size(), 1u);
  EXPECT_EQ(extends[0].position(), kPosition);
  EXPECT_EQ(extends[0].epoch(), 1u);
  EXPECT_EQ(extends[0].tokens_size(), 3);
  EXPECT_EQ(talk.choice().token_ids.size(), 3u) << "the two behind it are of the old epoch";
  talk.Continue();
  EXPECT_EQ(talk.choice().token_ids, expected);
  EXPECT_EQ(talk.finished().counters().misses(), 1);
  EXPECT_EQ(talk.finished().counters().rewound(), 1);
}

TEST_F(RunAheadTest, CandidatesOfAnOlderEpochThatAreInFlightAreDropped) {
  int sent = 0;
  decoder.options().tamper = [&sent](decode::v1::Candidates* message) {
    if (++sent == 1) message->set_drawn(message->drawn() == 'q' ? 'r' : 'q');
  };
  const GenerationRequest request = Ahead();
  Conversation talk(&decoder, request);
  talk.Open();
  talk.Step();
  talk.Step();  // the miss, while four more are in flight
  ASSERT_EQ(Extends(talk).size(), 1u);
  for (int i = 0; i < kAhead; ++i) talk.Step();
  EXPECT_EQ(talk.choice().token_ids.size(), 1u);
  talk.Continue();
  EXPECT_EQ(talk.choice().token_ids, TokensByRows(request, 0, 12));
}

TEST_F(RunAheadTest, BehindAPositionWithoutADrawNothingRanAheadSoItsExtendCutsNothing) {
  GenerationRequest request = Ahead();
  request.sampling.temperature = 2.0f;
  request.sampling.min_p = 0.05f;
  request.sampling.seed = 11;
  request.sampling.num_top = 2;
  request.sampling.num_perturbed = 1;
  request.max_tokens = 40;
  const GenerationRequest copy = request;
  Conversation talk(&decoder, std::move(request));
  talk.Run();
  EXPECT_EQ(talk.choice().token_ids, TokensByRows(copy, 0, 40));
  EXPECT_GT(talk.finished().counters().fetched(), 0);
  EXPECT_EQ(talk.finished().counters().rewound(), 0);
  for (const decode::v1::Extend& extend : Extends(talk)) EXPECT_EQ(extend.epoch(), 0u);
}

TEST_F(RunAheadTest, WhatIsDecidedIsConfirmedBeforeTheNextPositionIsFetched) {
  int sent = 0;
  decoder.options().tamper = [&sent](decode::v1::Candidates* message) {
    if (++sent != 3) return;
    message->mutable_lists()->mutable_top_adjusted()->Set(0, 99.0f);  // a fault: the row decides
  };
  const GenerationRequest request = Ahead();
  Conversation talk(&decoder, request);
  RunAheadWhilePaused(talk);
  const size_t before = talk.sent.size();
  Pause(talk, false);
  ASSERT_EQ(talk.sent.size(), before + 2);
  EXPECT_EQ(talk.sent[before].extend().tokens_size(), 2);
  EXPECT_EQ(talk.sent[before + 1].fetch().position(), kPosition + 2);
  talk.Continue();
  // The fetched position alone: after a fault those that wait behind it are fetched as rows too.
  EXPECT_EQ(talk.sent[before + 2].extend().position(), kPosition + 2);
  EXPECT_EQ(talk.sent[before + 2].extend().tokens_size(), 1);
  EXPECT_EQ(talk.sent[before + 3].fetch().position(), kPosition + 3);
  EXPECT_EQ(talk.sent[before + 2].extend().epoch(), 0u) << "the row gives the worker's draw";
  EXPECT_EQ(talk.choice().token_ids, TokensByRows(request, 0, 12));
}

TEST_F(RunAheadTest, B023_AStopAmongWaitingPositionsClosesAndIsDeafToWhatIsInFlight) {
  SayTokens({'a', 'b', kImEnd, 'c', 'd', 'e', 'f', 'g', 'h'});
  GenerationRequest request = Ahead();
  request.ignore_eos = false;
  Conversation talk(&decoder, std::move(request));
  RunAheadWhilePaused(talk);
  // A sixth position, as a worker that has not yet seen the Close may send.
  decode::v1::Event late;
  late.mutable_candidates()->set_handle(Conversation::kFirstHandle);
  late.mutable_candidates()->set_position(kPosition + kAhead + 1);
  talk.events.push_back(late);
  Pause(talk, false);
  EXPECT_TRUE(talk.session().done());
  const auto extends = Extends(talk);
  ASSERT_EQ(extends.size(), 1u);
  EXPECT_THAT(extends[0].tokens(), ElementsAre('a', 'b')) << "nothing behind, nor the end itself";
  EXPECT_TRUE(talk.sent.back().has_close());
  const size_t sent = talk.sent.size();
  talk.Continue();
  EXPECT_EQ(talk.sent.size(), sent);
  EXPECT_EQ(talk.choice().text, "ab");
  EXPECT_EQ(talk.finished().reason(), v1::FINISH_REASON_END_OF_TEXT);
  EXPECT_THAT(decoder.live(), ElementsAre());
}

TEST_F(RunAheadTest, TheLimitAmongWaitingPositionsClosesThere) {
  GenerationRequest request = Ahead();
  request.max_tokens = 3;
  const GenerationRequest copy = request;
  Conversation talk(&decoder, std::move(request));
  RunAheadWhilePaused(talk);
  Pause(talk, false);
  talk.Continue();
  EXPECT_EQ(talk.choice().token_ids, TokensByRows(copy, 0, 3));
  EXPECT_EQ(talk.finished().reason(), v1::FINISH_REASON_MAX_TOKENS);
  const auto extends = Extends(talk);
  ASSERT_EQ(extends.size(), 1u);
  EXPECT_EQ(extends[0].tokens_size(), 2);
  EXPECT_TRUE(talk.sent.back().has_close());
}

TEST_F(RunAheadTest, APausedChoiceKeepsNoMoreThanMayRunAhead) {
  Conversation talk(&decoder, Ahead());
  talk.Open();
  const decode::v1::Event first = talk.events[1];
  Pause(talk, true);
  talk.Continue();
  EXPECT_FALSE(talk.session().done());
  decode::v1::Event more = first;
  more.mutable_candidates()->set_position(kPosition + kAhead + 1);
  talk.events.push_back(more);
  talk.Continue();
  EXPECT_EQ(talk.finished().reason(), v1::FINISH_REASON_ERROR);
  EXPECT_THAT(talk.finished().error(), HasSubstr("6 positions that are not confirmed: at most 5"));
}

TEST_F(RunAheadTest, CandidatesBehindAPositionWithoutADrawBreakTheProtocol) {
  decoder.options().tamper = [](decode::v1::Candidates* message) { message->clear_drawn(); };
  Conversation talk(&decoder, Ahead());
  talk.Open();
  ASSERT_EQ(talk.events.size(), 2u) << "it waits";
  decode::v1::Event more = talk.events[1];
  more.mutable_candidates()->set_position(kPosition + 1);
  Pause(talk, true);
  talk.events.push_back(more);
  talk.Continue();
  EXPECT_EQ(talk.finished().reason(), v1::FINISH_REASON_ERROR);
  EXPECT_THAT(talk.finished().error(), HasSubstr("position 5 behind one without a draw"));
}

}  // namespace
}  // namespace tandem::text
