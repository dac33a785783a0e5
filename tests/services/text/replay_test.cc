// Sessions whose workers go away, in each state and for each reason: the client has what it would
// have had.
#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/services/text/session_fixture.h"

namespace tandem::text {
namespace {

namespace pb = decode::v1;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class ReplayTest : public SessionTest {
 protected:
  ~ReplayTest() override { EXPECT_EQ(other.errors, std::vector<std::string>()); }

  // Everything on: penalties, chance, stop strings that are half matched again and again, logprobs,
  // an unfinished character now and then, run-ahead, two choices.
  GenerationRequest Rich() {
    decoder.options().rows = other.options().rows = test::HashRows(test::kRowSize, 2.5f);
    GenerationRequest request = Request();
    request.sampling.temperature = 1.0f;
    request.sampling.seed = 11;
    request.sampling.repetition_penalty = 1.3f;
    request.sampling.presence_penalty = 0.5f;
    request.sampling.frequency_penalty = 0.2f;
    request.sampling.frequency_window = 5;
    request.sampling.min_tokens = 9;
    request.sampling.end_ids = request.model->end_ids;
    request.sampling.want_raw = true;
    request.sampling.num_raw_top = 3;
    request.logprobs = true;
    request.choices = 2;
    request.run_ahead = 3;
    request.max_tokens = 14;
    for (char c = 'a'; c <= 'l'; ++c) request.stop_strings.push_back(std::string(1, c) + "nEvEr");
    return request;
  }
  void ExpectSame(Conversation& talk, Conversation& reference, int32_t choices) {
    ASSERT_TRUE(talk.session().done());
    EXPECT_TRUE(talk.session().FinalStatus().ok()) << talk.session().FinalStatus();
    EXPECT_EQ(talk.started.size(), 1u);
    for (int32_t i = 0; i < choices; ++i) {
      EXPECT_EQ(talk.choice(i).text, reference.choice(i).text);
      EXPECT_EQ(talk.choice(i).token_ids, reference.choice(i).token_ids);
      ASSERT_EQ(talk.choice(i).logprobs.size(), reference.choice(i).logprobs.size());
      for (size_t t = 0; t < talk.choice(i).logprobs.size(); ++t) {
        EXPECT_EQ(talk.choice(i).logprobs[t].SerializeAsString(),
                  reference.choice(i).logprobs[t].SerializeAsString());
      }
      EXPECT_EQ(talk.finished(i).reason(), reference.finished(i).reason());
      EXPECT_EQ(talk.finished(i).usage().SerializeAsString(),
                reference.finished(i).usage().SerializeAsString());
      EXPECT_EQ(talk.finished(i).counters().misses(), 0);
      EXPECT_EQ(talk.finished(i).counters().approximate(), 0);
    }
    EXPECT_THAT(decoder.live(), ElementsAre());
    EXPECT_THAT(other.live(), ElementsAre());
  }
  // Interrupts a generation behind each of its events once, and checks that nobody can tell.
  void EverywhereExpectSame(const GenerationRequest& request,
                            const std::function<void(Conversation&)>& interrupt) {
    decoder.Reset();
    Conversation reference(&decoder, request);
    reference.Run();
    int events = 0;
    for (bool more = true; more; ++events) {
      SCOPED_TRACE(events);
      decoder.Reset();
      other.Reset();
      Conversation talk(&decoder, request);
      talk.Open();
      for (int i = 0; i < events && more; ++i) more = talk.Step();
      if (talk.session().done()) break;
      interrupt(talk);
      talk.Continue();
      if (!talk.session().done()) {
        EXPECT_GT(talk.Open(), 0) << "it wants a worker again";
      }
      talk.Continue();
      ExpectSame(talk, reference, request.choices);
    }
    EXPECT_GT(events, 10);
  }

  test::ScriptedDecoder other{test::ScriptedDecoderOptions()};
};

TEST_F(ReplayTest, AWorkerThatIsLostAnywhereChangesNothing) {
  EverywhereExpectSame(Rich(), [this](Conversation& talk) { talk.LoseWorker(&other); });
}

TEST_F(ReplayTest, WorkersThatAreLostTwiceInARowChangeNothing) {
  EverywhereExpectSame(Rich(), [this](Conversation& talk) {
    talk.LoseWorker(&other);
    talk.Open();
    talk.Step();
    talk.LoseWorker(&decoder);
    talk.now += Replay::kLongestPause;
  });
}

TEST_F(ReplayTest, AChoiceThatIsClosedForThePagesADrainOrAFaultChangesNothing) {
  for (const pb::CloseReason reason :
       {pb::CLOSE_REASON_PREEMPTED, pb::CLOSE_REASON_DRAINING, pb::CLOSE_REASON_FAULT}) {
    SCOPED_TRACE(reason);
    EverywhereExpectSame(Rich(), [reason](Conversation& talk) {
      talk.Close(reason, "why");
      talk.Continue();
      // Commands that were on their way to it are dropped there.
    });
  }
}

TEST_F(ReplayTest, LostWhileAStopStringIsHalfMatchedItStillMatchesAndNothingIsSentTwice) {
  Say("aENDxEN-ENDING");
  other.options().rows = decoder.options().rows;
  GenerationRequest request = Request();
  request.stop_strings = {"ENDING"};
  request.max_tokens = 30;
  {
    Conversation reference(&decoder, request);
    reference.Run();
    EXPECT_EQ(reference.choice().text, "aENDxEN-");
  }
  EverywhereExpectSame(request, [this](Conversation& talk) { talk.LoseWorker(&other); });
}

TEST_F(ReplayTest, LostWhileARowIsFetchedItIsDecidedOnTheOtherWorker) {
  GenerationRequest request = Rich();
  const auto tamper = [](pb::Candidates* message) {
    if (message->position() == 8) message->mutable_lists()->mutable_top_adjusted()->Set(0, 99.0f);
  };
  decoder.options().tamper = tamper;
  EverywhereExpectSame(request, [this](Conversation& talk) { talk.LoseWorker(&other); });
}

TEST_F(ReplayTest, TheOpenHasAllTokensAndCountsFromThePrompt) {
  GenerationRequest request = Rich();
  request.choices = 3;
  request.deadline = 10 * kNanosPerSecond;
  Conversation talk(&decoder, request);
  talk.Open();
  for (int i = 0; i < 15; ++i) talk.Step();
  talk.now += kNanosPerSecond;
  talk.LoseWorker(&other);
  EXPECT_EQ(talk.Open(), 3) << "their tokens differ";
  ASSERT_EQ(other.open_commands.size(), 3u);
  for (uint32_t i = 0; i < 3; ++i) {
    const pb::Open& open = other.open_commands[i];
    EXPECT_EQ(open.first_choice(), i);
    EXPECT_EQ(open.choices(), 1);
    std::vector<int32_t> tokens(open.tokens().begin(), open.tokens().end());
    EXPECT_EQ(tokens, talk.session().choice(i).tokens());
    EXPECT_GT(tokens.size(), request.prompt.size());
    EXPECT_EQ(open.prompt_length(), static_cast<int32_t>(request.prompt.size()));
    EXPECT_EQ(open.max_new(), *request.max_tokens);
    EXPECT_EQ(open.draw().SerializeAsString(), decoder.open_commands[0].draw().SerializeAsString());
    EXPECT_EQ(open.run_ahead(), request.run_ahead);
    EXPECT_EQ(open.age().seconds(), 1);
    EXPECT_EQ(open.time_left().seconds(), 8);
  }
  EXPECT_TRUE(decoder.open_commands[0].has_age()) << "also the first time";
}

TEST_F(ReplayTest, ChoicesWithoutOutputAreOpenedTogetherAndFinishedOnesAreNot) {
  GenerationRequest request = Rich();
  request.choices = 5;
  Conversation talk(&decoder, request);
  talk.Open();
  talk.LoseWorker(&other);
  EXPECT_EQ(talk.Open(), 1);
  EXPECT_EQ(other.open_commands[0].choices(), 5);
  // The third one decides a token, the fourth ends: the others stay neighbours.
  talk.Do([&](Session& session, SessionOutput* out) {
    for (pb::Event& event : talk.events) {
      const int32_t choice =
          session.ChoiceAt(talk.connection, event.opened().handle() + event.candidates().handle());
      if (event.has_opened() || (event.has_candidates() && choice == 2)) {
        session.OnEvent(event, choice, talk.now, out);
      }
    }
  });
  talk.events.clear();
  pb::Event refused;
  refused.mutable_closed()->set_handle(Conversation::kFirstHandle + 3);
  refused.mutable_closed()->set_reason(pb::CLOSE_REASON_NON_FINITE);
  talk.events.push_back(refused);
  talk.Continue();
  talk.LoseWorker(&decoder);
  const size_t before = decoder.open_commands.size();
  talk.now += Replay::kLongestPause;  // no choice but the third one came any further
  EXPECT_EQ(talk.Open(), 3);
  const auto opened = [&](size_t i) { return decoder.open_commands[before + i]; };
  EXPECT_EQ(opened(0).first_choice(), 0u);
  EXPECT_EQ(opened(0).choices(), 2);
  EXPECT_EQ(opened(1).first_choice(), 2u);
  EXPECT_EQ(opened(1).choices(), 1);
  EXPECT_EQ(opened(2).first_choice(), 4u);
  EXPECT_EQ(opened(2).choices(), 1);
}

TEST_F(ReplayTest, AfterAllTriesTheErrorSaysWhatHappenedToEach) {
  GenerationRequest request = Request();
  request.ignore_eos = true;
  Conversation talk(&decoder, request, {.tries = 2});
  talk.Open();
  for (int i = 0; i < 3; ++i) talk.Step();
  talk.LoseWorker(&other);
  talk.Open();
  talk.Close(pb::CLOSE_REASON_FAULT, "parity");
  talk.events.erase(talk.events.begin(), talk.events.end() - 1);
  talk.Step();
  EXPECT_FALSE(talk.session().done());
  talk.now += Replay::kLongestPause;
  EXPECT_EQ(talk.Open(), 1);
  talk.Step();
  talk.LoseWorker(&decoder);
  ASSERT_TRUE(talk.session().done());
  EXPECT_TRUE(absl::IsUnavailable(talk.session().FinalStatus()));
  EXPECT_THAT(talk.finished().error(), AllOf(HasSubstr("lost 1"), HasSubstr("parity"),
                                             HasSubstr("lost 2"), HasSubstr("2 of 2 tries")));
  EXPECT_EQ(talk.finished().counters().reopened(), 2);
  EXPECT_EQ(talk.finished().usage().output_tokens(), 2);
}

TEST_F(ReplayTest, OtherNumericsMakeItApproximateAndStartedSaysWhoseItBeganWith) {
  auto changed = std::make_shared<ServedModel>(*Model());
  changed->numerics_fingerprint = "other";
  GenerationRequest request = Request();
  request.max_tokens = 8;
  request.ignore_eos = true;
  {
    // Lost before Started: it begins on the second one.
    Conversation talk(&decoder, request);
    talk.Open();
    talk.LoseWorker(&other, changed);
    talk.Open();
    talk.Continue();
    EXPECT_EQ(talk.started.at(0).worker_fingerprint(), changed->WorkerFingerprint());
    EXPECT_EQ(talk.finished().counters().reopened(), 1);
    EXPECT_EQ(talk.finished().counters().approximate(), 0);
  }
  decoder.Reset();
  other.Reset();
  Conversation talk(&decoder, request);
  talk.Open();
  for (int i = 0; i < 3; ++i) talk.Step();
  EXPECT_EQ(talk.started.at(0).worker_fingerprint(), Model()->WorkerFingerprint());
  talk.LoseWorker(&other, changed);
  talk.Open();
  talk.Step();
  talk.Step();
  talk.LoseWorker(&decoder, Model());
  talk.Open();
  talk.Continue();
  EXPECT_EQ(talk.finished().counters().reopened(), 2);
  EXPECT_EQ(talk.finished().counters().approximate(), 1);
}

TEST_F(ReplayTest, WhatComesFromAWorkerThatItLeftIsNobodys) {
  GenerationRequest request = Rich();
  Conversation talk(&decoder, request);
  talk.Open();
  talk.Step();
  const uint64_t left = talk.connection;
  talk.LoseWorker(&other);
  talk.Open();
  for (uint64_t i = 0; i < 2; ++i) {
    EXPECT_EQ(talk.session().ChoiceAt(left, Conversation::kFirstHandle + i), -1);
    EXPECT_EQ(talk.session().ChoiceAt(talk.connection, Conversation::kFirstHandle + i),
              static_cast<int32_t>(i));
  }
}

TEST_F(ReplayTest, AChoiceThatLeftBeforeItsHandlesCameIsClosedThere) {
  GenerationRequest request = Request();
  request.choices = 2;
  Session session(request);
  SessionOutput out;
  const Session::Opening first = session.Open(*session.NextOpening(1), 5, *request.model, 1, &out);
  session.OnWorkerLost(5, absl::UnavailableError("gone"), 1, &out);
  EXPECT_TRUE(out.unplaced);
  const Session::Opening second = session.Open(*session.NextOpening(1), 6, *request.model, 1, &out);
  SessionOutput late;
  session.SetHandles(first, 5, 16, &late);
  ASSERT_EQ(late.commands.size(), 2u);
  EXPECT_EQ(late.commands[1].connection, 5u);
  EXPECT_EQ(late.commands[1].command.close().handle(), 17u);
  SessionOutput none;
  session.SetHandles(second, 6, 32, &none);
  EXPECT_TRUE(none.commands.empty());
  EXPECT_EQ(session.ChoiceAt(6, 33), 1);
}

TEST_F(ReplayTest, AClientThatDoesNotReadIsClosedAfterTwoSecondsAndGoesOnWhenItReads) {
  const GenerationRequest request = Rich();
  Conversation reference(&decoder, request);
  reference.Run();
  decoder.Reset();
  Conversation talk(&decoder, request);
  const auto pause = [&](bool paused) {
    talk.Do(
        [&](Session& session, SessionOutput* out) { session.SetPaused(paused, talk.now, out); });
  };
  const auto tick = [&] {
    talk.Do([&](Session& session, SessionOutput* out) { session.OnTimer(talk.now, out); });
  };
  talk.Open();
  for (int i = 0; i < 9; ++i) talk.Step();
  pause(true);
  talk.Continue();
  EXPECT_EQ(talk.session().NextTimer(), talk.now + Session::kParkAfter);
  talk.now += Session::kParkAfter - 1;
  tick();
  EXPECT_EQ(decoder.live().size(), 2u);
  talk.now += 1;
  tick();
  EXPECT_THAT(decoder.live(), ElementsAre());
  EXPECT_GT(talk.sent.back().close().retain().seconds(), 0);
  EXPECT_EQ(talk.session().NextTimer(), kNoDeadline);
  EXPECT_EQ(talk.Open(), 0) << "it still does not read";
  talk.Continue();
  // Its worker may go meanwhile: that is nothing to a session that is not there.
  talk.LoseWorker(&other);
  pause(false);
  EXPECT_EQ(talk.Open(), 2);
  talk.Continue();
  ExpectSame(talk, reference, 2);
  EXPECT_EQ(talk.finished().counters().reopened(), 1);
  EXPECT_EQ(talk.session().choice(0).replay().tries(), 0);
}

TEST_F(ReplayTest, ASessionSaysWhetherItWaitsForItsWorker) {
  GenerationRequest request = Request();
  request.ignore_eos = true;
  Conversation talk(&decoder, request);
  const auto awaits = [&](Nanos since) {
    return talk.session().AwaitsSince(talk.connection, since);
  };
  EXPECT_FALSE(awaits(talk.now)) << "it is nowhere";
  talk.Open();
  EXPECT_TRUE(awaits(talk.now));
  EXPECT_FALSE(awaits(talk.now - 1));
  EXPECT_FALSE(talk.session().AwaitsSince(talk.connection + 1, talk.now));
  talk.Step();
  talk.now += 10;
  talk.Step();
  EXPECT_FALSE(awaits(talk.now - 1)) << "the token before came just now";
  EXPECT_TRUE(awaits(talk.now));
  talk.Do([&](Session& session, SessionOutput* out) { session.SetPaused(true, talk.now, out); });
  EXPECT_FALSE(awaits(talk.now)) << "it has told the worker to wait";
}

}  // namespace
}  // namespace tandem::text
