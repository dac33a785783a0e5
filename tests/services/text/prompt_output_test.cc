// What a client hears of its prompt: logprobs of every position once, however often the worker is
// lost, and the echo; and how many tokens a delta has.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "services/text/outbox.h"
#include "tests/services/text/session_fixture.h"

namespace tandem::text {
namespace {

namespace pb = decode::v1;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

constexpr char kText[] = "Once upon a midnight dreary, \xc3\xa9";

class PromptOutputTest : public SessionTest {
 protected:
  ~PromptOutputTest() override { EXPECT_EQ(other.errors, std::vector<std::string>()); }

  // Chance over a prompt of 31 tokens, the last two of which are one character.
  GenerationRequest Wanting(std::optional<int32_t> prompt_logprobs) {
    GenerationRequest request = Request();
    request.prompt = BytesAsTokens(kText);
    request.sampling.temperature = 1.0f;
    request.sampling.seed = 5;
    request.max_tokens = 6;
    request.run_ahead = 2;
    request.prompt_logprobs = prompt_logprobs;
    return request;
  }
  static std::vector<std::string> Serialised(const std::vector<v1::PositionLogprobs>& positions) {
    std::vector<std::string> out;
    for (const auto& position : positions) out.push_back(position.SerializeAsString());
    return out;
  }
  void ExpectLogprob(const v1::TokenLogprob& got, int32_t position) {
    const std::vector<int32_t> prompt = BytesAsTokens(kText);
    const std::vector<float> row = decoder.options().rows(std::span(prompt).first(position));
    double sum = 0.0;
    int32_t rank = 0;
    for (size_t id = 0; id < row.size(); ++id) {
      sum += std::exp(static_cast<double>(row[id]));
      rank += row[id] > row[got.id()] ? 1 : 0;
    }
    EXPECT_NEAR(got.logprob(), row[got.id()] - std::log(sum), 1e-5);
    EXPECT_EQ(got.rank(), rank);
  }

  test::ScriptedDecoder other{test::ScriptedDecoderOptions()};
};

TEST_F(PromptOutputTest, EveryPositionHasTheSoftmaxOfItsRow) {
  GenerationRequest request = Wanting(4);
  request.logprobs = true;
  request.sampling.want_raw = true;
  request.sampling.num_raw_top = 1;
  request.sampling.report_ids = {0, 264};
  Conversation talk(&decoder, request);
  talk.Run();
  ASSERT_TRUE(talk.session().FinalStatus().ok()) << talk.session().FinalStatus();
  const std::vector<int32_t> prompt = BytesAsTokens(kText);
  ASSERT_EQ(talk.prompt.size(), prompt.size() - 1);
  for (size_t i = 0; i < talk.prompt.size(); ++i) {
    const int32_t position = static_cast<int32_t>(i) + 1;
    SCOPED_TRACE(position);
    const v1::PositionLogprobs& got = talk.prompt[i];
    EXPECT_EQ(got.chosen().id(), prompt[position]);
    EXPECT_EQ(got.chosen().token(), std::string(1, kText[position]));
    ExpectLogprob(got.chosen(), position);
    ASSERT_EQ(got.top_size(), 4);
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(got.top(rank).rank(), rank);
      ExpectLogprob(got.top(rank), position);
    }
    ASSERT_EQ(got.reported_size(), 2);
    EXPECT_EQ(got.reported(1).id(), 264);
    for (const v1::TokenLogprob& entry : got.reported()) ExpectLogprob(entry, position);
  }
  // Those of the output are as they were asked for.
  ASSERT_EQ(talk.choice().logprobs.size(), 6u);
  EXPECT_EQ(talk.choice().logprobs[0].top_size(), 1);
}

TEST_F(PromptOutputTest, ChangeNoTokenAndComeOnceForAllChoices) {
  GenerationRequest request = Wanting(std::nullopt);
  request.choices = 3;
  Conversation plain(&decoder, request);
  plain.Run();
  EXPECT_TRUE(plain.prompt.empty());
  decoder.Reset();
  request.prompt_logprobs = 0;
  Conversation talk(&decoder, request);
  talk.Run();
  EXPECT_EQ(talk.prompt.size(), 30u);
  EXPECT_EQ(talk.prompt[0].top_size(), 0);
  for (int32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(talk.choice(i).token_ids, plain.choice(i).token_ids);
  }
}

TEST_F(PromptOutputTest, APromptOfOneTokenHasNone) {
  GenerationRequest request = Wanting(5);
  request.prompt.resize(1);
  request.echo = request.logprobs = request.sampling.want_raw = true;
  Conversation talk(&decoder, request);
  talk.Run();
  EXPECT_TRUE(talk.session().FinalStatus().ok());
  EXPECT_TRUE(talk.prompt.empty());
  EXPECT_FALSE(decoder.open_commands[0].has_prompt_logprobs());
  EXPECT_EQ(talk.choice().echo.text(), "O");
  EXPECT_EQ(talk.choice().echo.logprobs_size(), 1);
}

// Lost behind each event once: the rest comes from the next worker, which is asked for nothing that
// has come.
TEST_F(PromptOutputTest, AWorkerThatIsLostLeavesTheRestToTheNext) {
  for (const int32_t choices : {1, 2}) {
    GenerationRequest request = Wanting(2);
    request.choices = choices;
    request.echo = request.logprobs = request.sampling.want_raw = true;
    decoder.Reset();
    Conversation reference(&decoder, request);
    reference.Run();
    for (int events = 0;; ++events) {
      SCOPED_TRACE(events);
      decoder.Reset();
      other.Reset();
      other.open_commands.clear();
      Conversation talk(&decoder, request);
      talk.Open();
      for (int i = 0; i < events; ++i) talk.Step();
      if (talk.session().done()) break;
      const size_t had = talk.prompt.size();
      talk.LoseWorker(&other);
      talk.now += kNanosPerSecond;
      talk.Run();
      ASSERT_TRUE(talk.session().done());
      ASSERT_FALSE(other.open_commands.empty());
      const pb::Open& again = other.open_commands[0];
      ASSERT_EQ(again.has_prompt_logprobs(), had < 30);
      if (had < 30) {
        EXPECT_EQ(again.prompt_logprobs().first_position(), static_cast<int32_t>(had) + 1);
      }
      EXPECT_EQ(Serialised(talk.prompt), Serialised(reference.prompt));
      for (int32_t i = 0; i < choices; ++i) {
        EXPECT_EQ(talk.choice(i).token_ids, reference.choice(i).token_ids);
        EXPECT_EQ(talk.choice(i).echo.SerializeAsString(),
                  reference.choice(i).echo.SerializeAsString());
      }
    }
  }
}

// The first choice is evicted while the prompt is read, and opened again beside the second, which
// goes on: both bring what is left, and it goes out once.
TEST_F(PromptOutputTest, ChoicesThatAreOpenedApartGiveEachPositionOnce) {
  GenerationRequest request = Wanting(2);
  request.choices = 2;
  Conversation reference(&decoder, request);
  reference.Run();
  decoder.Reset();
  decoder.open_commands.clear();
  Conversation talk(&decoder, request);
  talk.Open();
  for (int i = 0; i < 5; ++i) talk.Step();
  const size_t had = talk.prompt.size();
  EXPECT_EQ(had, 9u);
  // What is on its way comes for the second choice, as an engine does it.
  for (pb::Event& event : talk.events) {
    if (event.has_prompt_logprobs()) {
      event.mutable_prompt_logprobs()->set_handle(Conversation::kFirstHandle + 1);
    }
  }
  std::erase_if(talk.events, [](const pb::Event& event) {
    return event.has_candidates() && event.candidates().handle() == Conversation::kFirstHandle;
  });
  for (auto& event : decoder.Close(Conversation::kFirstHandle, pb::CLOSE_REASON_PREEMPTED)) {
    talk.events.push_front(event);
  }
  talk.Step();
  talk.now += kNanosPerSecond;
  talk.Run();
  ASSERT_EQ(decoder.open_commands.size(), 2u);
  EXPECT_EQ(decoder.open_commands[1].prompt_logprobs().first_position(), 10);
  EXPECT_EQ(Serialised(talk.prompt), Serialised(reference.prompt));
  for (int32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(talk.choice(i).token_ids, reference.choice(i).token_ids);
  }
}

TEST_F(PromptOutputTest, AWorkerThatLeavesAPositionOutBreaksTheProtocol) {
  for (const bool gap : {false, true}) {
    decoder.Reset();
    Conversation talk(&decoder, Wanting(2));
    talk.Open();
    const auto first = std::find_if(talk.events.begin(), talk.events.end(),
                                    [](const auto& event) { return event.has_prompt_logprobs(); });
    if (gap) {
      talk.events.erase(first);
    } else {
      first->mutable_prompt_logprobs()->mutable_values()->RemoveLast();
    }
    talk.Continue();
    ASSERT_TRUE(talk.session().done());
    EXPECT_THAT(std::string(talk.session().FinalStatus().message()),
                HasSubstr("broke the protocol"));
    EXPECT_TRUE(talk.prompt.empty());
    EXPECT_THAT(decoder.live(), ElementsAre());
  }
}

TEST_F(PromptOutputTest, AWorkerThatGivesNoneEndsTheChoiceWithUnimplemented) {
  decoder.options().prompt_logprobs = false;
  Conversation talk(&decoder, Wanting(2));
  talk.Run();
  ASSERT_TRUE(talk.session().done());
  EXPECT_TRUE(absl::IsUnimplemented(talk.session().FinalStatus()));
  EXPECT_FALSE(decoder.open_commands[0].has_prompt_logprobs());
}

TEST_F(PromptOutputTest, ACancelInTheMiddleClosesIt) {
  Conversation talk(&decoder, Wanting(2));
  talk.Open();
  for (int i = 0; i < 4; ++i) talk.Step();
  talk.Do([&](Session& session, SessionOutput* out) {
    session.Cancel(absl::CancelledError("gone"), talk.now, out);
  });
  const size_t had = talk.prompt.size();
  talk.Continue();
  EXPECT_EQ(talk.prompt.size(), had);
  EXPECT_THAT(decoder.live(), ElementsAre());
}

TEST_F(PromptOutputTest, TheEchoIsThePromptsTextAndTokensForEachChoice) {
  decoder.options().prompt_logprobs = false;  // it needs no worker for that
  GenerationRequest request = Wanting(std::nullopt);
  request.choices = 2;
  Conversation plain(&decoder, request);
  plain.Run();
  decoder.Reset();
  request.echo = true;
  Conversation talk(&decoder, request);
  talk.Run();
  for (int32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(talk.choice(i).echo.text(), kText);
    EXPECT_THAT(talk.choice(i).echo.token_ids(), ElementsAreArray(BytesAsTokens(kText)));
    EXPECT_EQ(talk.choice(i).echo.logprobs_size(), 0);
    EXPECT_EQ(talk.choice(i).text, plain.choice(i).text);
    EXPECT_EQ(talk.finished(i).usage().output_tokens(), 6);
  }
}

TEST_F(PromptOutputTest, TheEchoEndsWithAReplacementWhereItsLastCharacterIsUnfinished) {
  GenerationRequest request = Wanting(std::nullopt);
  request.echo = true;
  request.prompt.pop_back();
  request.prompt.push_back(test::kImEnd);  // special: no text
  Conversation talk(&decoder, request);
  talk.Run();
  EXPECT_EQ(talk.choice().echo.text(), "Once upon a midnight dreary, \xef\xbf\xbd");
}

TEST_F(PromptOutputTest, TheEchosLogprobsAreTheOutputsAndThoseOfThePromptAreItsOwn) {
  GenerationRequest request = Wanting(3);
  request.echo = request.logprobs = request.sampling.want_raw = true;
  request.sampling.num_raw_top = 1;
  Conversation talk(&decoder, request);
  talk.Run();
  EXPECT_EQ(decoder.open_commands[0].prompt_logprobs().num_raw_top(), 3);
  ASSERT_EQ(talk.prompt.size(), 30u);
  ASSERT_EQ(talk.choice().echo.logprobs_size(), 31);
  EXPECT_EQ(talk.choice().echo.logprobs(0).ByteSizeLong(), 0u);
  for (int i = 1; i <= 30; ++i) {
    v1::PositionLogprobs of_prompt = talk.prompt[i - 1];
    EXPECT_EQ(of_prompt.top_size(), 3);
    of_prompt.mutable_top()->DeleteSubrange(1, 2);
    EXPECT_EQ(talk.choice().echo.logprobs(i).SerializeAsString(), of_prompt.SerializeAsString());
  }
  EXPECT_EQ(talk.choice().echo.text(), kText);
}

TEST_F(PromptOutputTest, NothingOfThePromptComesAgainWithResumedTokens) {
  GenerationRequest request = Wanting(3);
  request.echo = request.logprobs = request.sampling.want_raw = true;
  Conversation whole(&decoder, request);
  whole.Run();
  decoder.Reset();
  decoder.open_commands.clear();
  const std::vector<int32_t> ids = whole.choice().token_ids;
  request.resume.assign(ids.begin(), ids.begin() + 2);
  Conversation talk(&decoder, request);
  talk.Run();
  EXPECT_FALSE(decoder.open_commands[0].has_prompt_logprobs());
  EXPECT_TRUE(talk.prompt.empty());
  EXPECT_EQ(talk.choice().echo.ByteSizeLong(), 0u);
  EXPECT_THAT(talk.choice().token_ids, ElementsAreArray(ids.begin() + 2, ids.end()));
}

TEST_F(PromptOutputTest, AnIntervalJoinsTokensAndTheLastDeltaHasWhatIsLeft) {
  Say("abcdefghij");
  GenerationRequest request = Request();
  request.max_tokens = 10;
  request.stream_interval = 4;
  Conversation talk(&decoder, request);
  talk.Run();
  EXPECT_THAT(talk.choice().deltas, ElementsAre("abcd", "efgh", "ij"));
  EXPECT_EQ(talk.choice().token_ids, BytesAsTokens("abcdefghij"));
}

TEST_F(PromptOutputTest, AnEndFromOutsideGivesOutWhatTheIntervalHolds) {
  Say("abcdefghij");
  GenerationRequest request = Request();
  request.stream_interval = 1000;
  Conversation talk(&decoder, request);
  talk.Open();
  for (int i = 0; i < 4; ++i) talk.Step();
  EXPECT_TRUE(talk.choice().deltas.empty());
  talk.Do([&](Session& session, SessionOutput* out) {
    session.Cancel(absl::CancelledError("gone"), talk.now, out);
  });
  EXPECT_THAT(talk.choice().deltas, ElementsAre("abc"));
  EXPECT_EQ(talk.choice().token_ids, BytesAsTokens("abc"));
}

v1::GenerateResponse DeltaOf(const std::string& text, bool echo) {
  v1::GenerateResponse message;
  message.mutable_delta()->set_text(text);
  message.mutable_delta()->set_echo(echo);
  return message;
}

void Put(Outbox& outbox, v1::GenerateResponse message) { outbox.Add(&message); }

std::string TakeText(Outbox& outbox) {
  v1::GenerateResponse message;
  EXPECT_TRUE(outbox.Take(&message));
  return message.delta().text();
}

TEST(PromptOutbox, EchoAndOutputAreNotJoined) {
  Outbox outbox;
  Put(outbox, DeltaOf("a", true));
  Put(outbox, DeltaOf("b", true));
  Put(outbox, DeltaOf("c", false));
  Put(outbox, DeltaOf("d", false));
  EXPECT_EQ(TakeText(outbox), "ab");
  EXPECT_EQ(TakeText(outbox), "cd");
  EXPECT_TRUE(outbox.empty());
}

TEST(PromptOutbox, ALargeDeltaTakesNoMore) {
  Outbox outbox;
  Put(outbox, DeltaOf(std::string(300 << 10, 'a'), true));
  Put(outbox, DeltaOf("b", true));
  Put(outbox, DeltaOf("c", true));
  EXPECT_EQ(TakeText(outbox).size(), size_t{300} << 10);
  EXPECT_EQ(TakeText(outbox), "bc");
}

}  // namespace
}  // namespace tandem::text
