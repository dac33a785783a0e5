// Sessions that are cancelled, expire, lose their worker, are refused, or whose client does not
// read: in each state.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/services/text/session_fixture.h"

namespace tandem::text {
namespace {

using test::kRowSize;
using testing::ElementsAre;
using testing::HasSubstr;

class InterruptionTest : public SessionTest {
 protected:
  static void Cancel(Conversation& talk) {
    talk.Do([&](Session& session, SessionOutput* out) {
      session.Cancel(absl::CancelledError("cancelled"), talk.now, out);
    });
  }
  static void Pause(Conversation& talk, bool paused) {
    talk.Do(
        [&](Session& session, SessionOutput* out) { session.SetPaused(paused, talk.now, out); });
  }
  // Ended as cancelled, closed at the worker, and deaf to what still comes.
  void ExpectCancelled(Conversation& talk) {
    EXPECT_TRUE(talk.session().done());
    EXPECT_TRUE(absl::IsCancelled(talk.session().FinalStatus()));
    EXPECT_THAT(decoder.live(), ElementsAre());
    const std::string text = talk.choice().text;
    const size_t sent = talk.sent.size();
    talk.Continue();
    EXPECT_EQ(talk.choice().text, text);
    EXPECT_EQ(talk.sent.size(), sent);
    EXPECT_EQ(decoder.closes, decoder.opens);
  }
};

TEST_F(InterruptionTest, CancelBeforeAdmissionClosesAndSaysNothing) {
  Conversation talk(&decoder, Request());
  talk.Open();
  Cancel(talk);
  EXPECT_TRUE(talk.started.empty());
  EXPECT_TRUE(talk.choices.empty());
  ExpectCancelled(talk);
}

TEST_F(InterruptionTest, CancelBeforeTheFirstCandidatesClosesAtOnce) {
  Conversation talk(&decoder, Request());
  talk.Open();
  talk.Step();
  Cancel(talk);
  EXPECT_EQ(talk.finished().reason(), v1::FINISH_REASON_CANCELLED);
  ExpectCancelled(talk);
}

TEST_F(InterruptionTest, CancelWhileTokensComeClosesAtOnce) {
  GenerationRequest request = Request();
  request.ignore_eos = true;
  Conversation talk(&decoder, std::move(request));
  talk.Open();
  for (int i = 0; i < 5; ++i) talk.Step();
  Cancel(talk);
  EXPECT_EQ(talk.finished().reason(), v1::FINISH_REASON_CANCELLED);
  EXPECT_EQ(talk.finished().usage().output_tokens(), 4);
  ExpectCancelled(talk);
}

TEST_F(InterruptionTest, CancelWhileARowIsFetchedClosesAtOnce) {
  decoder.options().tamper = [](decode::v1::Candidates* message) {
    message->mutable_lists()->mutable_top_adjusted()->Set(0, 99.0f);
  };
  Conversation talk(&decoder, Request());
  talk.Open();
  talk.Step();
  talk.Step();
  ASSERT_TRUE(talk.sent.back().has_fetch());
  talk.Step();  // the first chunk of the row
  Cancel(talk);
  EXPECT_THAT(talk.choice().token_ids, ElementsAre());
  ExpectCancelled(talk);
}

TEST_F(InterruptionTest, CancelWhilePausedClosesAtOnce) {
  GenerationRequest request = Request();
  request.ignore_eos = true;
  Conversation talk(&decoder, std::move(request));
  talk.Open();
  talk.Step();
  Pause(talk, true);
  talk.Continue();
  Cancel(talk);
  ExpectCancelled(talk);
}

TEST_F(InterruptionTest, CancelBehindTheEndChangesNothing) {
  Say("abc");
  GenerationRequest request = Request();
  request.max_tokens = 3;
  Conversation talk(&decoder, std::move(request));
  talk.Run();
  Cancel(talk);
  EXPECT_EQ(talk.finished().reason(), v1::FINISH_REASON_MAX_TOKENS);
  EXPECT_TRUE(talk.session().FinalStatus().ok());
}

TEST_F(InterruptionTest, CancelEndsAllChoices) {
  GenerationRequest request = Request();
  request.choices = 3;
  request.ignore_eos = true;
  Conversation talk(&decoder, std::move(request));
  talk.Open();
  for (int i = 0; i < 6; ++i) talk.Step();
  Cancel(talk);
  EXPECT_EQ(decoder.closes, 3);
  ExpectCancelled(talk);
}

TEST_F(InterruptionTest, APausedSessionKeepsWhatArrivesAndIsNotExtended) {
  Say("abcdef");
  GenerationRequest request = Request();
  request.max_tokens = 6;
  Conversation talk(&decoder, std::move(request));
  talk.Open();
  talk.Step();
  talk.Step();
  Pause(talk, true);
  talk.Continue();
  EXPECT_EQ(talk.choice().text, "a");
  EXPECT_EQ(decoder.extends, 1);
  Pause(talk, false);
  talk.Continue();
  EXPECT_EQ(talk.choice().text, "abcdef");
}

TEST_F(InterruptionTest, APausedSessionKeepsAllThatAWorkerRanAhead) {
  GenerationRequest request = Request();
  request.run_ahead = 4;
  request.ignore_eos = true;
  request.max_tokens = 12;
  const GenerationRequest copy = request;
  Conversation talk(&decoder, std::move(request));
  talk.Open();
  talk.Step();
  Pause(talk, true);
  talk.Continue();
  EXPECT_EQ(decoder.extends, 0);
  Pause(talk, false);
  talk.Continue();
  EXPECT_EQ(talk.choice().token_ids, TokensByRows(copy, 0, 12));
}

TEST_F(InterruptionTest, TheDeadlineIsAReasonOnceStartedAndAnErrorBefore) {
  for (const bool started : {false, true}) {
    GenerationRequest request = Request();
    request.deadline = 5'000'000;
    request.ignore_eos = true;
    Conversation talk(&decoder, std::move(request));
    talk.Open();
    if (started) talk.Step();
    talk.now = 4'999'999;
    talk.Do([&](Session& s, SessionOutput* out) { s.OnTimer(talk.now, out); });
    EXPECT_FALSE(talk.session().done());
    talk.now = 5'000'000;
    talk.Do([&](Session& s, SessionOutput* out) { s.OnTimer(talk.now, out); });
    ASSERT_TRUE(talk.session().done());
    if (started) {
      EXPECT_EQ(talk.finished().reason(), v1::FINISH_REASON_DEADLINE);
      EXPECT_TRUE(talk.session().FinalStatus().ok());
    } else {
      EXPECT_TRUE(absl::IsDeadlineExceeded(talk.session().FinalStatus()));
    }
    EXPECT_THAT(decoder.live(), ElementsAre());
    decoder.Reset();
  }
}

TEST_F(InterruptionTest, AWorkerThatExpiresASessionGivesTheDeadlineReason) {
  GenerationRequest request = Request();
  request.ignore_eos = true;
  Conversation talk(&decoder, std::move(request));
  talk.Open();
  talk.Step();
  talk.events.clear();
  talk.Close(decode::v1::CLOSE_REASON_EXPIRED);
  talk.Continue();
  EXPECT_EQ(talk.finished().reason(), v1::FINISH_REASON_DEADLINE);
  EXPECT_EQ(decoder.closes, 0) << "the handle is gone already";
}

TEST_F(InterruptionTest, ARefusalAtAdmissionIsResourceExhaustedWithTheWorkersWords) {
  decoder.options().refuse = "needs 9 pages of 8";
  GenerationRequest request = Request();
  request.choices = 2;
  Conversation talk(&decoder, std::move(request));
  talk.Run();
  ASSERT_TRUE(talk.session().done());
  EXPECT_TRUE(absl::IsResourceExhausted(talk.session().FinalStatus()));
  EXPECT_THAT(std::string(talk.session().FinalStatus().message()), HasSubstr("needs 9 pages of 8"));
  EXPECT_TRUE(talk.started.empty());
  EXPECT_TRUE(talk.choices.empty());
}

TEST_F(InterruptionTest, EachWayAWorkerClosesHasItsStatusWhereNothingIsOpenedAgain) {
  const std::pair<decode::v1::CloseReason, absl::StatusCode> cases[] = {
      {decode::v1::CLOSE_REASON_DONE, absl::StatusCode::kInternal},
      {decode::v1::CLOSE_REASON_PREEMPTED, absl::StatusCode::kResourceExhausted},
      {decode::v1::CLOSE_REASON_DRAINING, absl::StatusCode::kUnavailable},
      {decode::v1::CLOSE_REASON_REFUSED, absl::StatusCode::kInternal},
      {decode::v1::CLOSE_REASON_NON_FINITE, absl::StatusCode::kInternal},
      {decode::v1::CLOSE_REASON_FAULT, absl::StatusCode::kInternal},
  };
  for (const auto& [reason, code] : cases) {
    GenerationRequest request = Request();
    request.ignore_eos = true;
    Conversation talk(&decoder, std::move(request), {.tries = 0});
    talk.Open();
    talk.Step();
    talk.Step();
    talk.events.clear();
    talk.Close(reason, "why");
    talk.Continue();
    EXPECT_EQ(talk.finished().reason(), v1::FINISH_REASON_ERROR) << reason;
    EXPECT_EQ(talk.session().FinalStatus().code(), code) << reason;
    EXPECT_FALSE(talk.finished().error().empty());
    decoder.Reset();
  }
}

TEST_F(InterruptionTest, ALostWorkerEndsTheSessionWithUnavailableWhereNothingIsOpenedAgain) {
  GenerationRequest request = Request();
  request.ignore_eos = true;
  Conversation talk(&decoder, std::move(request), {.tries = 0});
  talk.Open();
  for (int i = 0; i < 4; ++i) talk.Step();
  const size_t sent = talk.sent.size();
  talk.Do([&](Session& session, SessionOutput* out) {
    session.OnWorkerLost(talk.connection, absl::UnavailableError("gone"), talk.now, out);
  });
  EXPECT_EQ(talk.finished().reason(), v1::FINISH_REASON_ERROR);
  EXPECT_EQ(talk.finished().error(), "gone");
  EXPECT_TRUE(absl::IsUnavailable(talk.session().FinalStatus()));
  EXPECT_EQ(talk.sent.size(), sent) << "there is nobody to send to";
  std::vector<int32_t> tokens = BytesAsTokens(kPrompt);
  const std::vector<int32_t>& ids = talk.choice().token_ids;
  for (const int32_t id : ids) tokens.push_back(id);
  EXPECT_EQ(talk.session().choice(0).tokens(), tokens);
  decoder.Reset();
}

}  // namespace
}  // namespace tandem::text
