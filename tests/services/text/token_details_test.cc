// What a client learns of how each token came about.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/text/outbox.h"
#include "services/text/router.h"
#include "tests/services/text/session_fixture.h"

namespace tandem::text {
namespace {

class TokenDetailsTest : public SessionTest {
 protected:
  static constexpr int32_t kTokens = 40;

  GenerationRequest DetailedRequest() {
    GenerationRequest request = Request();
    request.token_details = true;
    request.ignore_eos = true;
    request.max_tokens = kTokens;
    return request;
  }
  static int64_t Count(const ChoiceResult& choice, bool (v1::TokenDetail::*is)() const) {
    return std::count_if(choice.details.begin(), choice.details.end(),
                         [is](const v1::TokenDetail& detail) { return (detail.*is)(); });
  }
};

TEST_F(TokenDetailsTest, ThereAreNoneWhereNobodyAskedForThem) {
  GenerationRequest request = DetailedRequest();
  request.token_details = false;
  Conversation talk(&decoder, request);
  talk.Run();
  EXPECT_EQ(talk.choice().token_ids.size(), kTokens);
  EXPECT_TRUE(talk.choice().details.empty());
}

TEST_F(TokenDetailsTest, EachTokenOfEachChoiceHasOneWhateverTheInterval) {
  for (const int32_t interval : {1, 3, 7}) {
    GenerationRequest request = DetailedRequest();
    request.choices = 2;
    request.stream_interval = interval;
    Conversation talk(&decoder, request);
    talk.Run();
    for (const int32_t choice : {0, 1}) {
      EXPECT_EQ(talk.choice(choice).token_ids.size(), kTokens);
      EXPECT_EQ(talk.choice(choice).details.size(), kTokens) << "interval " << interval;
    }
    decoder.Reset();
  }
}

TEST_F(TokenDetailsTest, TokensWithoutTextHaveOneAlsoWithoutTokenIds) {
  Say("all is held back to the END");
  GenerationRequest request = DetailedRequest();
  request.token_ids = false;
  request.stop_strings = {"all is held back to the END"};
  Conversation talk(&decoder, request);
  talk.Run();
  EXPECT_EQ(talk.choice().text, "");
  EXPECT_EQ(talk.choice().details.size(), request.stop_strings[0].size());
}

TEST_F(TokenDetailsTest, AnEchoHasNone) {
  GenerationRequest request = DetailedRequest();
  request.echo = true;
  Conversation talk(&decoder, request);
  talk.Run();
  EXPECT_EQ(talk.choice().echo.token_ids_size(), static_cast<int>(request.prompt.size()));
  EXPECT_EQ(talk.choice().echo.token_details_size(), 0);
  EXPECT_EQ(talk.choice().details.size(), kTokens);
}

TEST_F(TokenDetailsTest, TheySayWhichTokensNeededMoreThanTheLists) {
  GenerationRequest request = DetailedRequest();
  request.sampling.temperature = 2.0f;
  request.sampling.min_p = 0.05f;
  request.sampling.seed = 11;
  request.sampling.num_top = 2;
  request.sampling.num_perturbed = 1;
  Conversation talk(&decoder, request);
  talk.Run();
  const int64_t fetched = Count(talk.choice(), &v1::TokenDetail::fetched);
  EXPECT_EQ(fetched, talk.finished().counters().fetched());
  EXPECT_GT(fetched, 0);
  EXPECT_LT(fetched, kTokens);
}

TEST_F(TokenDetailsTest, NothingIsAheadWithoutRunAhead) {
  Conversation talk(&decoder, DetailedRequest());
  talk.Run();
  EXPECT_EQ(talk.choice().details.size(), kTokens);
  EXPECT_EQ(Count(talk.choice(), &v1::TokenDetail::ahead), 0);
}

TEST_F(TokenDetailsTest, NothingIsAheadWhereTheWorkerAllowsNone) {
  GenerationRequest request = DetailedRequest();
  request.run_ahead = 4;
  auto limited = std::make_shared<ServedModel>(*request.model);
  limited->limits.max_run_ahead = 0;
  request.model = limited;
  Conversation talk(&decoder, request);
  talk.Run();
  EXPECT_EQ(talk.choice().details.size(), kTokens);
  EXPECT_EQ(Count(talk.choice(), &v1::TokenDetail::ahead), 0);
}

TEST_F(TokenDetailsTest, BehindATokenThatTheWorkerDrewItselfTheNextIsAhead) {
  GenerationRequest request = DetailedRequest();
  request.run_ahead = 4;
  Conversation talk(&decoder, request);
  talk.Run();
  ASSERT_EQ(talk.choice().details.size(), kTokens);
  EXPECT_FALSE(talk.choice().details[0].ahead());
  EXPECT_EQ(Count(talk.choice(), &v1::TokenDetail::ahead), kTokens - 1);
}

TEST_F(TokenDetailsTest, BehindATokenThatHadToBeFetchedOrThatTheWorkerDrewWrongNoneIsAhead) {
  GenerationRequest request = DetailedRequest();
  request.run_ahead = 4;
  request.sampling.temperature = 2.0f;
  request.sampling.min_p = 0.05f;
  request.sampling.seed = 11;
  request.sampling.num_top = 2;
  request.sampling.num_perturbed = 1;
  const int32_t wrong = static_cast<int32_t>(request.prompt.size()) + 7;
  decoder.options().tamper = [wrong](decode::v1::Candidates* message) {
    if (message->position() == wrong && message->has_drawn()) {
      message->set_drawn(message->drawn() == 5 ? 6 : 5);
    }
  };
  Conversation talk(&decoder, request);
  talk.Run();
  const ChoiceResult& choice = talk.choice();
  ASSERT_EQ(choice.details.size(), kTokens);
  int32_t ahead = 0, behind_fetched = 0;
  for (size_t i = 1; i < kTokens; ++i) {
    const bool fetched = choice.details[i - 1].fetched();
    EXPECT_EQ(choice.details[i].ahead(), !fetched && i != 8) << "token " << i;
    ahead += choice.details[i].ahead();
    behind_fetched += fetched;
  }
  EXPECT_GT(ahead, 0);
  EXPECT_GT(behind_fetched, 0);
  EXPECT_EQ(talk.finished().counters().misses(), 1);
}

TEST_F(TokenDetailsTest, TimeIsThatSinceTheTokenBefore) {
  GenerationRequest request = DetailedRequest();
  request.max_tokens = 3;
  request.received = 500'000;
  Conversation talk(&decoder, request);
  talk.now = 2'000'000;
  talk.Open();
  talk.Step();  // Opened
  talk.now = 4'500'000;
  talk.Step();
  talk.now = 4'750'000;
  talk.Step();
  talk.Step();
  ASSERT_EQ(talk.choice().details.size(), 3u);
  EXPECT_EQ(talk.choice().details[0].microseconds(), 4'000);
  EXPECT_EQ(talk.choice().details[1].microseconds(), 250);
  EXPECT_EQ(talk.choice().details[2].microseconds(), 0);
}

TEST_F(TokenDetailsTest, AChoiceThatIsOpenedAgainNamesTheWorkerOfEachToken) {
  test::ScriptedDecoder other{test::ScriptedDecoderOptions()};
  GenerationRequest request = DetailedRequest();
  request.run_ahead = 2;
  Conversation talk(&decoder, std::move(request));
  talk.connection = ConnectionsOf(2) + 5;
  talk.Open();
  for (int i = 0; i < 11; ++i) talk.Step();
  const size_t before = talk.choice().details.size();
  ASSERT_GT(before, 0u);
  talk.LoseWorker(&other);
  talk.connection = ConnectionsOf(0) + 1;
  talk.now += kNanosPerSecond;
  talk.Run();
  ASSERT_EQ(talk.choice().details.size(), kTokens);
  for (size_t i = 0; i < kTokens; ++i) {
    EXPECT_EQ(talk.choice().details[i].worker(), i < before ? 2 : 0) << "token " << i;
    EXPECT_EQ(talk.choice().details[i].ahead(), i != 0 && i != before) << "token " << i;
  }
  EXPECT_EQ(other.errors, std::vector<std::string>());
}

TEST_F(TokenDetailsTest, ProbabilityIsOneForGreedyAndTheRawOneWithoutAnyEdit) {
  GenerationRequest request = DetailedRequest();
  Conversation greedy(&decoder, request);
  greedy.Run();
  for (const v1::TokenDetail& detail : greedy.choice().details) {
    EXPECT_EQ(detail.probability(), 1.0f);
  }
  decoder.Reset();
  request.sampling.temperature = 1.0f;
  request.sampling.seed = 4;
  request.logprobs = true;
  request.sampling.want_raw = true;
  Conversation drawn(&decoder, request);
  drawn.Run();
  const ChoiceResult& choice = drawn.choice();
  ASSERT_EQ(choice.details.size(), choice.logprobs.size());
  for (size_t i = 0; i < choice.details.size(); ++i) {
    ASSERT_TRUE(choice.details[i].has_probability());
    // Ids that the tokenizer does not define have raw probability too.
    EXPECT_NEAR(choice.details[i].probability(), std::exp(choice.logprobs[i].chosen().logprob()),
                0.2f * choice.details[i].probability());
  }
}

TEST_F(TokenDetailsTest, ProbabilityIsAbsentWhereTheListsDoNotGiveIt) {
  GenerationRequest request = DetailedRequest();
  request.sampling.temperature = 100.0f;  // all ids about as likely
  request.sampling.top_p = 0.9f;
  request.sampling.num_top = 4;
  Conversation talk(&decoder, request);
  talk.Run();
  ASSERT_EQ(talk.choice().details.size(), kTokens);
  EXPECT_EQ(Count(talk.choice(), &v1::TokenDetail::has_probability), 0);
}

TEST_F(TokenDetailsTest, DeltasThatWaitAreJoinedWithThem) {
  Outbox outbox;
  for (int i = 0; i < 3; ++i) {
    v1::GenerateResponse message;
    message.mutable_delta()->set_text("x");
    message.mutable_delta()->add_token_details()->set_microseconds(i);
    outbox.Add(&message);
  }
  v1::GenerateResponse joined;
  ASSERT_TRUE(outbox.Take(&joined));
  ASSERT_EQ(joined.delta().token_details_size(), 3);
  EXPECT_EQ(joined.delta().token_details(2).microseconds(), 2);
  EXPECT_TRUE(outbox.empty());
}

}  // namespace
}  // namespace tandem::text
