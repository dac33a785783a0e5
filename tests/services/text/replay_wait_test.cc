// Sessions that have lost their worker and wait for another: how long, and what ends it.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "engine/text/utf8.h"
#include "tests/services/text/session_fixture.h"

namespace tandem::text {
namespace {

namespace pb = decode::v1;
using testing::AllOf;
using testing::HasSubstr;

class WaitingTest : public SessionTest {
 protected:
  ~WaitingTest() override { EXPECT_EQ(other.errors, std::vector<std::string>()); }

  void Lose(Conversation& talk) {
    talk.Open();
    talk.Step();
    talk.Step();
    talk.LoseWorker(&other);
  }
  // Nobody takes it at this time.
  static void Nobody(Conversation& talk, bool busy = false) {
    talk.Do([&](Session& session, SessionOutput* out) {
      while (const auto wanted = session.NextOpening(talk.now)) {
        session.OnNoWorker(*wanted, absl::UnavailableError("no worker serves it"), busy, talk.now,
                           out);
      }
    });
  }

  test::ScriptedDecoder other{test::ScriptedDecoderOptions()};
};

TEST_F(WaitingTest, WithoutAWorkerItWaitsWithPausesAndThenSaysWhy) {
  Conversation talk(&decoder, Request(), {.wait = 5 * kNanosPerSecond});
  Lose(talk);
  const Nanos start = talk.now;
  int attempts = 0;
  while (!talk.session().done()) {
    Nobody(talk);
    ++attempts;
    ASSERT_LT(attempts, 100);
    if (!talk.session().done()) talk.now = talk.session().NextTimer();
  }
  EXPECT_NEAR(static_cast<double>(talk.now - start), 5e9, 3e8);
  EXPECT_GT(attempts, 10);
  EXPECT_TRUE(absl::IsUnavailable(talk.session().FinalStatus()));
  EXPECT_THAT(talk.finished().error(),
              AllOf(HasSubstr("no worker serves it"), HasSubstr("lost 1")));
}

TEST_F(WaitingTest, WhereOnlyOthersGoFirstThereIsNoLimit) {
  GenerationRequest request = Request();
  request.max_tokens = 4;
  request.ignore_eos = true;
  Conversation talk(&decoder, request, {.wait = kNanosPerSecond});
  Lose(talk);
  for (int i = 0; i < 1000; ++i) {
    Nobody(talk, /*busy=*/true);
    ASSERT_FALSE(talk.session().done());
    talk.now = talk.session().NextTimer();
  }
  EXPECT_EQ(talk.Open(), 1);
  talk.Continue();
  EXPECT_EQ(talk.choice().token_ids.size(), 4u);
}

TEST_F(WaitingTest, HoweverMuchWorkersSayTheErrorIsShortAndUtf8) {
  std::string detail = "x";
  for (int i = 0; i < 10'000; ++i) detail += "\xC3\xA9";
  Conversation talk(&decoder, Request(), {.tries = 30});
  while (!talk.session().done()) {
    talk.Open();
    talk.Step();
    talk.events.clear();
    talk.Close(pb::CLOSE_REASON_FAULT, detail);
    talk.Continue();
    talk.now += Replay::kLongestPause;
  }
  EXPECT_EQ(talk.finished().counters().reopened(), 30);
  EXPECT_LT(talk.finished().error().size(), 4000u);
  EXPECT_EQ(ReplaceInvalidUtf8(talk.finished().error()), talk.finished().error());
}

TEST_F(WaitingTest, TheTimeThatAClientDoesNotReadIsNoWait) {
  const auto pause = [](Conversation& talk, bool paused) {
    talk.Do(
        [&](Session& session, SessionOutput* out) { session.SetPaused(paused, talk.now, out); });
  };
  Conversation talk(&decoder, Request(), {.wait = kNanosPerSecond});
  Lose(talk);
  Nobody(talk);
  pause(talk, true);
  talk.now += 60 * kNanosPerSecond;
  EXPECT_EQ(talk.Open(), 0);
  pause(talk, false);
  Nobody(talk);
  EXPECT_FALSE(talk.session().done());
  talk.now += Replay::kLongestPause;
  EXPECT_EQ(talk.Open(), 1);
}

TEST_F(WaitingTest, ANewRequestDoesNotWait) {
  Conversation talk(&decoder, Request());
  Nobody(talk);
  ASSERT_TRUE(talk.session().done());
  EXPECT_TRUE(absl::IsUnavailable(talk.session().FinalStatus()));
  EXPECT_TRUE(talk.choices.empty());
}

TEST_F(WaitingTest, TheDeadlineEndsTheWait) {
  GenerationRequest request = Request();
  request.deadline = 5'000'000;
  Conversation talk(&decoder, request);
  Lose(talk);
  Nobody(talk);
  EXPECT_EQ(talk.session().NextTimer(), 5'000'000);
  talk.now = 5'000'000;
  talk.Do([&](Session& session, SessionOutput* out) { session.OnTimer(talk.now, out); });
  EXPECT_EQ(talk.finished().reason(), v1::FINISH_REASON_DEADLINE);
  EXPECT_EQ(talk.finished().usage().output_tokens(), 1);
}

TEST_F(WaitingTest, CancellingEndsTheWait) {
  Conversation talk(&decoder, Request());
  Lose(talk);
  Nobody(talk);
  const size_t sent = talk.sent.size();
  talk.Do([&](Session& session, SessionOutput* out) {
    session.Cancel(absl::CancelledError("cancelled"), talk.now, out);
  });
  EXPECT_EQ(talk.finished().reason(), v1::FINISH_REASON_CANCELLED);
  EXPECT_EQ(talk.sent.size(), sent) << "there is nobody to tell";
  EXPECT_EQ(talk.session().NextTimer(), kNoDeadline);
}

TEST_F(WaitingTest, B071_DrainsAndEvictionsAreNoTriesButDoNotGoRoundInACircle) {
  GenerationRequest request = Request();
  request.ignore_eos = true;
  request.max_tokens = 20;
  Conversation talk(&decoder, request, {.tries = 1, .wait = kNanosPerSecond});
  talk.Open();
  for (int i = 0; i < 10; ++i) {
    // Each time it gets further, it is opened again at once.
    talk.Step();
    talk.Step();
    talk.events.clear();
    talk.Close(i % 2 == 0 ? pb::CLOSE_REASON_PREEMPTED : pb::CLOSE_REASON_DRAINING);
    talk.Continue();
    EXPECT_EQ(talk.Open(), 1);
  }
  EXPECT_EQ(talk.session().choice(0).counters().reopened(), 10);
  // An eviction without a token between is no reason to hurry, and not for ever.
  int opens = 0;
  const Nanos start = talk.now;
  while (!talk.session().done() && talk.now < start + 60 * kNanosPerSecond) {
    talk.events.clear();
    talk.Close(pb::CLOSE_REASON_PREEMPTED, "needs 9 pages");
    talk.Continue();
    EXPECT_EQ(talk.Open(), 0);
    talk.now += Replay::kFirstPause;
    while (!talk.session().done() && talk.Open() == 0) talk.now += Replay::kFirstPause;
    ++opens;
  }
  ASSERT_TRUE(talk.session().done());
  EXPECT_LT(opens, 20);
  EXPECT_LT(talk.now, start + 3 * kNanosPerSecond);
  EXPECT_TRUE(absl::IsResourceExhausted(talk.session().FinalStatus()));
  EXPECT_THAT(talk.finished().error(), HasSubstr("needs 9 pages"));
}

TEST_F(WaitingTest, AFullQueueIsAWaitForWhatWasOpenedBefore) {
  GenerationRequest request = Request();
  request.max_tokens = 5;
  request.ignore_eos = true;
  Conversation talk(&decoder, request);
  talk.Open();
  talk.Step();
  talk.Step();
  other.options().refuse = "the queue is full";
  talk.LoseWorker(&other);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(talk.Open(), 1);
    talk.Continue();
    ASSERT_FALSE(talk.session().done());
    EXPECT_EQ(talk.Open(), 0) << "not at once";
    EXPECT_LE(talk.session().NextTimer(), talk.now + Replay::kLongestPause);
    talk.now += Replay::kLongestPause;
  }
  other.options().refuse.reset();
  EXPECT_EQ(talk.Open(), 1);
  talk.Continue();
  EXPECT_EQ(talk.choice().token_ids.size(), 5u);
  EXPECT_TRUE(talk.session().FinalStatus().ok());
}

}  // namespace
}  // namespace tandem::text
