// Requests that go on behind output that their client has already.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/services/text/session_fixture.h"

namespace tandem::text {
namespace {

using testing::HasSubstr;

// What a client has of a stream, delta by delta.
struct Received {
  std::string text;
  std::vector<int32_t> tokens;
};

class ResumeTest : public SessionTest {
 protected:
  static v1::GenerateRequest Asked() {
    v1::GenerateRequest request;
    for (const int32_t id : BytesAsTokens(kPrompt)) request.mutable_token_ids()->add_ids(id);
    request.mutable_sampling()->set_seed(5);
    request.mutable_sampling()->set_temperature(0.0f);
    request.mutable_response()->set_token_ids(true);
    request.set_max_tokens(60);
    return request;
  }
  absl::StatusOr<GenerationRequest> Check(const v1::GenerateRequest& request) {
    return CheckRequest(request, Model(), [] { return uint64_t{9}; });
  }
  // Runs to the end; `states` gets what a client has after each message with tokens.
  ChoiceResult Run(const v1::GenerateRequest& asked, std::vector<Received>* states = nullptr) {
    decoder.Reset();
    auto request = Check(asked);
    EXPECT_TRUE(request.ok()) << request.status();
    Conversation talk(&decoder, *request);
    talk.Do([&](Session& session, SessionOutput* out) { session.Begin(talk.now, out); });
    talk.Open();
    do {
      const Received now{talk.choice().text, talk.choice().token_ids};
      if (states != nullptr && (states->empty() || states->back().tokens != now.tokens)) {
        states->push_back(now);
      }
    } while (talk.Step());
    EXPECT_TRUE(talk.session().done());
    EXPECT_TRUE(talk.session().FinalStatus().ok()) << talk.session().FinalStatus();
    EXPECT_EQ(talk.started.size(), 1u);
    return talk.choice();
  }
  // At every token that a client may have seen last.
  void ExpectTheWholeFromEachCut(const v1::GenerateRequest& asked, size_t cuts) {
    std::vector<Received> states;
    const ChoiceResult whole = Run(asked, &states);
    ASSERT_EQ(whole.finished.size(), 1u);
    EXPECT_GE(states.size(), cuts);
    for (const Received& state : states) {
      SCOPED_TRACE(state.tokens.size());
      v1::GenerateRequest again = asked;
      again.mutable_resume_tokens()->Add(state.tokens.begin(), state.tokens.end());
      const ChoiceResult rest = Run(again);
      EXPECT_EQ(state.text + rest.text, whole.text);
      std::vector<int32_t> joined = state.tokens;
      joined.insert(joined.end(), rest.token_ids.begin(), rest.token_ids.end());
      EXPECT_EQ(joined, whole.token_ids);
      ASSERT_EQ(rest.finished.size(), 1u);
      EXPECT_EQ(rest.finished[0].reason(), whole.finished[0].reason());
      EXPECT_EQ(rest.finished[0].stop(), whole.finished[0].stop());
      EXPECT_EQ(rest.finished[0].stop_token_id(), whole.finished[0].stop_token_id());
      EXPECT_EQ(rest.finished[0].usage().output_tokens(),
                whole.finished[0].usage().output_tokens());
    }
  }
};

TEST_F(ResumeTest, HalfMatchedStopStringsAndCharactersComeOutWholeAtEveryCut) {
  Say("aSTxSTO \xC3\xA9\xE2\x82\xAC \xF0\x9F\x99\x82 S\xE2\x82zSTOP never");
  v1::GenerateRequest request = Asked();
  request.mutable_stopping()->add_stop_strings("STOP");
  request.mutable_stopping()->add_stop_strings("STx!");
  ExpectTheWholeFromEachCut(request, 25);
  request.mutable_stopping()->set_include_stop(true);
  ExpectTheWholeFromEachCut(request, 25);
}

TEST_F(ResumeTest, TheLengthEndsItInTheMiddleOfACharacterAndOfAStopString) {
  Say("aST\xE2\x82");
  v1::GenerateRequest request = Asked();
  request.mutable_stopping()->add_stop_strings("STOP");
  for (const int32_t length : {3, 4, 5}) {
    request.set_max_tokens(length);
    ExpectTheWholeFromEachCut(request, static_cast<size_t>(length) + 1);
  }
}

TEST_F(ResumeTest, StopAndEndTokensEndItAndMayBeTheLastThatTheClientHas) {
  std::vector<int32_t> tokens = BytesAsTokens("ab\xC3");
  tokens.push_back(test::kImEnd);
  SayTokens(tokens);
  ExpectTheWholeFromEachCut(Asked(), 5);
  v1::GenerateRequest request = Asked();
  request.mutable_stopping()->add_stop_token_ids(test::kImEnd);
  request.mutable_stopping()->set_include_stop(true);
  ExpectTheWholeFromEachCut(request, 5);
}

TEST_F(ResumeTest, PenaltiesChanceAndTheLeastLengthCountWhatTheClientHas) {
  decoder.options().rows = test::HashRows(test::kRowSize, 3.0f);
  v1::GenerateRequest request = Asked();
  v1::Sampling& sampling = *request.mutable_sampling();
  sampling.set_temperature(0.9f);
  sampling.set_repetition_penalty(1.4f);
  sampling.set_presence_penalty(0.7f);
  sampling.set_frequency_penalty(0.3f);
  sampling.set_frequency_window(4);
  request.set_min_tokens(11);
  request.set_max_tokens(20);
  ExpectTheWholeFromEachCut(request, 12);
}

TEST_F(ResumeTest, AChoiceAmongManyGoesOnAloneWithItsNoise) {
  decoder.options().rows = test::HashRows(test::kRowSize, 3.0f);
  v1::GenerateRequest asked = Asked();
  asked.mutable_sampling()->set_temperature(1.0f);
  asked.mutable_sampling()->set_n(3);
  asked.mutable_stopping()->set_ignore_eos(true);
  asked.set_max_tokens(9);
  const auto request = Check(asked);
  ASSERT_TRUE(request.ok()) << request.status();
  for (int32_t choice = 0; choice < 3; ++choice) {
    const std::vector<int32_t> whole = TokensByRows(*request, choice, 9);
    for (const int32_t cut : {0, 4}) {
      v1::GenerateRequest again = asked;
      again.mutable_sampling()->set_n(1);
      again.set_resume_choice(choice);
      again.mutable_resume_tokens()->Add(whole.begin(), whole.begin() + cut);
      EXPECT_EQ(Run(again).token_ids, std::vector<int32_t>(whole.begin() + cut, whole.end()));
    }
  }
}

TEST_F(ResumeTest, AnEndFromOutsideGivesTheHeldTextInADeltaWithoutTokens) {
  Say("aSTOx");
  v1::GenerateRequest asked = Asked();
  asked.mutable_stopping()->add_stop_strings("STOP");
  const ChoiceResult whole = Run(asked);
  decoder.Reset();
  Conversation talk(&decoder, *Check(asked));
  talk.Open();
  for (int i = 0; i < 5; ++i) talk.Step();
  EXPECT_EQ(talk.choice().text, "a");
  talk.Do([&](Session& session, SessionOutput* out) {
    session.Cancel(absl::UnavailableError("the server is shutting down"), talk.now, out);
    ASSERT_EQ(out->messages.size(), 2u);
    EXPECT_EQ(out->messages[0].delta().text(), "STO");
    EXPECT_TRUE(out->messages[0].delta().token_ids().empty());
  });
  v1::GenerateRequest again = asked;
  again.mutable_resume_tokens()->Add(talk.choice().token_ids.begin(),
                                     talk.choice().token_ids.end());
  EXPECT_EQ("a" + Run(again).text, whole.text);
}

TEST_F(ResumeTest, WhatCannotBeGoneOnWithIsRefusedByName) {
  using R = v1::GenerateRequest;
  struct Case {
    std::function<void(R&)> change;
    std::vector<std::string> words;
  };
  const auto resume = [](R& request, const std::string& text) {
    for (const int32_t id : BytesAsTokens(text)) request.add_resume_tokens(id);
  };
  const std::vector<Case> cases = {
      {[&](R& r) {
         resume(r, "ab");
         r.mutable_sampling()->clear_seed();
       },
       {"resume_tokens", "sampling.seed"}},
      {[&](R& r) {
         resume(r, "ab");
         r.mutable_sampling()->set_n(2);
       },
       {"resume_tokens", "sampling.n 2", "1"}},
      {[&](R& r) {
         resume(r, "abc");
         r.set_max_tokens(2);
       },
       {"resume_tokens", "3 ids", "2"}},
      {[&](R& r) { r.add_resume_tokens(test::kSmallVocab); }, {"resume_tokens", "265", "264"}},
      {[&](R& r) { r.add_resume_tokens(-1); }, {"resume_tokens", "-1", "264"}},
      {[&](R& r) {
         resume(r, "aXYb");
         r.mutable_stopping()->add_stop_strings("XY");
       },
       {"resume_tokens", "4 ids", "ends with 3", "STOP_STRING"}},
      {[&](R& r) {
         r.add_resume_tokens(test::kImEnd);
         resume(r, "b");
       },
       {"resume_tokens", "ends with 1", "END_OF_TEXT"}},
      {[&](R& r) { r.set_resume_choice(16); }, {"resume_choice", "16", "15"}},
      {[&](R& r) { r.set_resume_choice(-1); }, {"resume_choice", "-1", "0"}},
      {[&](R& r) {
         r.set_resume_choice(1);
         r.mutable_sampling()->clear_seed();
       },
       {"resume_choice", "sampling.seed"}},
  };
  for (const Case& c : cases) {
    R request = Asked();
    c.change(request);
    const absl::Status status = Check(request).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    for (const std::string& word : c.words) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(word));
    }
  }
}

}  // namespace
}  // namespace tandem::text
