#include "services/text/session.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "engine/text/utf8.h"
#include "tests/services/text/session_fixture.h"

namespace tandem::text {
namespace {

using test::kEndOfText;
using test::kImEnd;
using test::kImStart;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(SessionTest, StartsWithWhatTheClientNeedsToRepeatIt) {
  Say("abc");
  GenerationRequest request = Request();
  request.sampling.seed = 77;
  request.max_tokens = 3;
  Conversation talk(&decoder, std::move(request));
  talk.Run();
  ASSERT_EQ(talk.started.size(), 1u);
  EXPECT_EQ(talk.started[0].request_id(), "test");
  EXPECT_EQ(talk.started[0].seed(), 77u);
  EXPECT_EQ(talk.started[0].prompt_tokens(), 4);
  EXPECT_EQ(talk.started[0].model(), "scripted");
  EXPECT_EQ(talk.started[0].worker_fingerprint(),
            std::string(32, 'a') + "-" + std::string(32, 'b'));
}

TEST_F(SessionTest, EndsAtMaxTokens) {
  Say("abcdef");
  GenerationRequest request = Request();
  request.max_tokens = 3;
  Conversation talk(&decoder, std::move(request));
  talk.Run();
  EXPECT_EQ(talk.choice().text, "abc");
  EXPECT_EQ(talk.finished().reason(), v1::FINISH_REASON_MAX_TOKENS);
  EXPECT_EQ(talk.finished().usage().prompt_tokens(), 4);
  EXPECT_EQ(talk.finished().usage().output_tokens(), 3);
  EXPECT_EQ(talk.finished().counters().from_lists(), 3);
  EXPECT_TRUE(talk.session().done());
  EXPECT_TRUE(talk.session().FinalStatus().ok());
  EXPECT_THAT(decoder.live(), ElementsAre());
}

TEST_F(SessionTest, B129_EndsExactlyWhenTheContextIsFull) {
  decoder.options().context_length = 10;
  Say("abcdefghij");
  Conversation talk(&decoder, Request());
  talk.Run();
  EXPECT_EQ(talk.choice().text, "abcdef");
  EXPECT_EQ(talk.finished().reason(), v1::FINISH_REASON_CONTEXT_FULL);
}

TEST_F(SessionTest, EndsAtAnEndTokenOfTheModelWithoutItsText) {
  SayTokens({'h', 'i', kImEnd});
  Conversation talk(&decoder, Request());
  talk.Run();
  EXPECT_EQ(talk.choice().text, "hi");
  EXPECT_EQ(talk.finished().reason(), v1::FINISH_REASON_END_OF_TEXT);
  EXPECT_EQ(talk.finished().stop_token_id(), kImEnd);
  EXPECT_EQ(talk.finished().usage().output_tokens(), 3);
  EXPECT_THAT(talk.choice().token_ids, ElementsAre('h', 'i', kImEnd));
}

TEST_F(SessionTest, GoesOnBehindEndTokensWhereTheyAreIgnored) {
  SayTokens({'h', kImEnd, 'i'});
  GenerationRequest request = Request();
  request.ignore_eos = true;
  request.max_tokens = 3;
  Conversation talk(&decoder, std::move(request));
  talk.Run();
  EXPECT_EQ(talk.choice().text, "hi");
  EXPECT_EQ(talk.finished().reason(), v1::FINISH_REASON_MAX_TOKENS);
  EXPECT_FALSE(talk.finished().has_stop_token_id());
}

TEST_F(SessionTest, EndsAtAStopTokenAndKeepsItsTextOnlyIfAsked) {
  for (const bool include : {false, true}) {
    for (const int32_t stop : {int32_t{'!'}, kImStart, kEndOfText}) {
      SayTokens({'h', 'i', stop});
      GenerationRequest request = Request();
      request.stop_token_ids = {stop};
      request.include_stop = include;
      Conversation talk(&decoder, std::move(request));
      talk.Run();
      const std::string stop_text =
          stop == '!' ? "!" : (stop == kImStart ? "<|im_start|>" : "<|endoftext|>");
      EXPECT_EQ(talk.choice().text, include ? "hi" + stop_text : "hi");
      EXPECT_EQ(talk.finished().reason(), v1::FINISH_REASON_STOP_TOKEN);
      EXPECT_EQ(talk.finished().stop_token_id(), stop);
      decoder.Reset();
    }
  }
}

TEST_F(SessionTest, B021_SaysWhichStopStringMatchedAndKeepsItOnlyIfAsked) {
  for (const bool include : {false, true}) {
    Say("one two three");
    GenerationRequest request = Request();
    request.stop_strings = {"three", "two", "x"};
    request.include_stop = include;
    Conversation talk(&decoder, std::move(request));
    talk.Run();
    EXPECT_EQ(talk.choice().text, include ? "one two" : "one ");
    EXPECT_EQ(talk.finished().reason(), v1::FINISH_REASON_STOP_STRING);
    EXPECT_EQ(talk.finished().stop(), "two");
    decoder.Reset();
  }
}

// Every substring of the text as stop string, over every way to spell "hello" in tokens.
TEST_F(SessionTest, B015_B017_CutsAtEveryStopStringHoweverTheTextIsSplit) {
  const std::string text = "a hello b";
  const std::vector<std::vector<int32_t>> spellings = {
      {'h', 'e', 'l', 'l', 'o'}, {256, 'l', 'l', 'o'}, {256, 257, 'o'}, {258, 'o'}, {259}};
  for (const std::vector<int32_t>& spelling : spellings) {
    std::vector<int32_t> tokens = {'a', ' '};
    tokens.insert(tokens.end(), spelling.begin(), spelling.end());
    tokens.insert(tokens.end(), {' ', 'b', kImEnd});
    SayTokens(tokens);
    for (size_t begin = 0; begin < text.size(); ++begin) {
      for (size_t size = 1; begin + size <= text.size(); ++size) {
        const std::string stop = text.substr(begin, size);
        GenerationRequest request = Request();
        request.stop_strings = {stop};
        Conversation talk(&decoder, std::move(request));
        talk.Run();
        ASSERT_EQ(talk.choice().text, text.substr(0, text.find(stop))) << stop;
        ASSERT_EQ(talk.finished().reason(), v1::FINISH_REASON_STOP_STRING) << stop;
        ASSERT_EQ(talk.finished().stop(), stop);
        decoder.Reset();
      }
    }
  }
}

TEST_F(SessionTest, B019_GivesOutTheHeldTailOnEveryEndButAStopString) {
  SayTokens({'a', 'E', 'N', kImEnd});
  const auto request_with_stop = [this] {
    GenerationRequest request = Request();
    request.stop_strings = {"END"};
    return request;
  };
  {
    Conversation talk(&decoder, request_with_stop());
    talk.Run();
    EXPECT_EQ(talk.choice().text, "aEN") << "end of text";
    decoder.Reset();
  }
  {
    GenerationRequest request = request_with_stop();
    request.max_tokens = 3;
    Conversation talk(&decoder, std::move(request));
    talk.Run();
    EXPECT_EQ(talk.choice().text, "aEN") << "max_tokens";
    decoder.Reset();
  }
  Say("aENENENEN");
  const auto interrupt = [&](auto how) {
    GenerationRequest request = request_with_stop();
    request.deadline = 2'000'000;
    Conversation talk(&decoder, std::move(request));
    talk.Open();
    for (int i = 0; i < 4; ++i) talk.Step();  // Opened, then three tokens
    EXPECT_EQ(talk.choice().text, "a");
    how(talk);
    talk.Continue();
    EXPECT_EQ(talk.choice().text, "aEN");
    decoder.Reset();
    return talk.finished().reason();
  };
  EXPECT_EQ(interrupt([](Conversation& talk) {
              talk.now = 2'000'000;
              talk.Do([&](Session& s, SessionOutput* out) { s.OnTimer(talk.now, out); });
            }),
            v1::FINISH_REASON_DEADLINE);
  EXPECT_EQ(interrupt([](Conversation& talk) {
              talk.Do([&](Session& s, SessionOutput* out) {
                s.Cancel(absl::UnavailableError("drain"), talk.now, out);
              });
            }),
            v1::FINISH_REASON_CANCELLED);
  EXPECT_EQ(interrupt([](Conversation& talk) {
              talk.events.clear();
              talk.Close(decode::v1::CLOSE_REASON_NON_FINITE);
            }),
            v1::FINISH_REASON_ERROR);
}

TEST_F(SessionTest, B023_ClosesAtTheStopAtOnceAndDropsWhatTheWorkerMadeBeyondIt) {
  Say("abSTOPzzzzzzzzzz");
  GenerationRequest request = Request();
  request.stop_strings = {"STOP"};
  request.run_ahead = 6;
  Conversation talk(&decoder, std::move(request));
  talk.Run();
  EXPECT_EQ(talk.choice().text, "ab");
  EXPECT_THAT(talk.choice().token_ids, ElementsAre('a', 'b', 'S', 'T', 'O', 'P'));
  EXPECT_TRUE(talk.sent.back().has_close());
  EXPECT_EQ(decoder.extends, 5) << "nothing is confirmed behind the stop";
  EXPECT_THAT(decoder.live(), ElementsAre());
}

TEST_F(SessionTest, B025_ReportsTheTokensThatTheWorkerHoldsAlsoWhereTextWasCut) {
  Say("abSTOP");
  GenerationRequest request = Request();
  request.stop_strings = {"STOP"};
  Conversation talk(&decoder, std::move(request));
  talk.Open();
  std::vector<int32_t> held;
  while (!talk.session().done()) {
    ASSERT_TRUE(talk.Step());
    if (const std::vector<int32_t> now = decoder.Held(16); !now.empty()) held = now;
  }
  // The last token too: nobody confirmed it, but it was the worker's own draw.
  std::vector<int32_t> told = BytesAsTokens(kPrompt);
  const std::vector<int32_t>& ids = talk.choice().token_ids;
  told.insert(told.end(), ids.begin(), ids.end());
  EXPECT_EQ(held, told);
  EXPECT_EQ(talk.finished().usage().output_tokens(), static_cast<int32_t>(ids.size()));
}

TEST_F(SessionTest, B001_B003_DeltasAreValidUtf8AndJoinToTheWholeText) {
  // Characters of one to four bytes, and bytes that are none.
  const std::string text = "a\xC3\xA9\xE4\xBD\xA0\xF0\x9F\x98\x80\xFFz\xE4\xBD";
  Say(text);
  GenerationRequest request = Request();
  request.max_tokens = static_cast<int32_t>(text.size());
  Conversation talk(&decoder, std::move(request));
  talk.Run();
  EXPECT_EQ(talk.choice().text, ReplaceInvalidUtf8(text));
  for (const std::string& delta : talk.choice().deltas) EXPECT_LT(FindInvalidUtf8(delta), 0);
}

TEST_F(SessionTest, B005_APromptThatEndsInsideACharacterIsNotEmitted) {
  GenerationRequest request = Request();
  request.prompt = {'x', 0xE4};
  decoder.options().rows = test::ScriptedRows(test::kRowSize, 2, {0xBD, 0xA0, 'y'});
  request.max_tokens = 3;
  Conversation talk(&decoder, std::move(request));
  talk.Run();
  EXPECT_EQ(talk.choice().text, "\xEF\xBF\xBD\xEF\xBF\xBDy");
}

TEST_F(SessionTest, MinTokensHoldsEndAndStopTokensBack) {
  decoder.options().rows = [](std::span<const int32_t> tokens) {
    std::vector<float> row = test::HashRows(test::kRowSize, 1.0f)(tokens);
    row[kImEnd] = 30.0f;
    row['!'] = 20.0f;
    return row;
  };
  GenerationRequest request = Request();
  request.sampling.min_tokens = 5;
  request.sampling.end_ids = {'!', kImEnd, kEndOfText};
  request.stop_token_ids = {'!'};
  Conversation talk(&decoder, std::move(request));
  talk.Run();
  EXPECT_EQ(talk.finished().usage().output_tokens(), 6);
  EXPECT_EQ(talk.finished().reason(), v1::FINISH_REASON_END_OF_TEXT);
}

TEST_F(SessionTest, ChoicesShareOneOpenAndEachGivesWhatItGivesAlone) {
  GenerationRequest request = Request();
  request.choices = 4;
  request.sampling.temperature = 1.0f;
  request.sampling.seed = 5;
  request.ignore_eos = true;
  request.max_tokens = 20;
  const GenerationRequest copy = request;
  Conversation talk(&decoder, std::move(request));
  talk.Run();
  EXPECT_EQ(decoder.open_commands.size(), 1u);
  for (int32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(talk.choice(i).token_ids, TokensByRows(copy, i, 20)) << "choice " << i;
    EXPECT_EQ(talk.finished(i).reason(), v1::FINISH_REASON_MAX_TOKENS);
  }
  EXPECT_NE(talk.choice(0).token_ids, talk.choice(1).token_ids);
}

TEST_F(SessionTest, AChoiceThatFailsLeavesTheOthersRunning) {
  GenerationRequest request = Request();
  request.choices = 2;
  request.max_tokens = 6;
  request.ignore_eos = true;
  Conversation talk(&decoder, std::move(request));
  talk.Open();
  for (int i = 0; i < 4; ++i) talk.Step();
  talk.Close(decode::v1::CLOSE_REASON_NON_FINITE, "broken");
  talk.Continue();
  EXPECT_EQ(talk.finished(0).reason(), v1::FINISH_REASON_ERROR);
  EXPECT_EQ(talk.finished(1).reason(), v1::FINISH_REASON_MAX_TOKENS);
  EXPECT_TRUE(absl::IsInternal(talk.session().FinalStatus()));
}

TEST_F(SessionTest, LongPromptsAreCutIntoSeveralCommands) {
  decoder.options().context_length = 100'000;
  GenerationRequest request = Request();
  request.prompt.assign(40'000, 'x');
  request.max_tokens = 1;
  Conversation talk(&decoder, std::move(request));
  talk.Run();
  ASSERT_EQ(talk.sent.size(), 4u);
  EXPECT_TRUE(talk.sent[0].has_open());
  EXPECT_TRUE(talk.sent[1].has_open_more());
  EXPECT_TRUE(talk.sent[2].has_open_more());
  for (const auto& command : talk.sent) EXPECT_LT(command.ByteSizeLong(), 100'000u);
  EXPECT_EQ(talk.finished().reason(), v1::FINISH_REASON_MAX_TOKENS);
}

TEST_F(SessionTest, ReportsHowFarALongPromptIsReadOnlyIfAsked) {
  decoder.options().prefill_chunk = 10;
  for (const bool asked : {false, true}) {
    GenerationRequest request = Request();
    request.prompt.assign(35, 'x');
    request.choices = 2;
    request.max_tokens = 1;
    request.prefill_progress = asked;
    Conversation talk(&decoder, std::move(request));
    talk.Run();
    std::vector<int32_t> done;
    for (const v1::Progress& progress : talk.progress) {
      EXPECT_EQ(progress.total_tokens(), 35);
      done.push_back(progress.done_tokens());
    }
    EXPECT_EQ(done, asked ? std::vector<int32_t>({10, 20, 30}) : std::vector<int32_t>());
    decoder.Reset();
  }
}

TEST_F(SessionTest, TimingsSplitTheTimeIntoQueuePrefillAndDecode) {
  Say("abc");
  GenerationRequest request = Request();
  request.received = 1'000'000;
  request.max_tokens = 3;
  Conversation talk(&decoder, std::move(request));
  talk.Open();
  talk.now += 10;
  talk.Step();  // Opened
  talk.now += 200;
  talk.Step();  // first token
  talk.now += 3000;
  talk.Step();
  talk.now += 3000;
  talk.Step();
  EXPECT_EQ(talk.finished().timings().queue().nanos(), 10);
  EXPECT_EQ(talk.finished().timings().prefill().nanos(), 200);
  EXPECT_EQ(talk.finished().timings().decode().nanos(), 6000);
}

TEST_F(SessionTest, CountsTheCachedTokensThatWereFoundAtAdmissionOrLater) {
  decoder.options().prefill_chunk = 10;
  GenerationRequest request = Request();
  request.prompt.assign(35, 'x');
  request.choices = 2;
  request.max_tokens = 1;
  Conversation talk(&decoder, std::move(request));
  talk.Open();
  for (auto& event : talk.events) {
    if (event.has_opened()) event.mutable_opened()->set_cached_tokens(5);
    // Told of the first handle alone.
    if (event.has_prefill() && event.prefill().handle() == Conversation::kFirstHandle) {
      event.mutable_prefill()->set_cached_tokens(event.prefill().done_tokens() == 20 ? 16 : 3);
    }
  }
  talk.Continue();
  EXPECT_EQ(talk.started[0].cached_tokens(), 5);
  EXPECT_EQ(talk.finished(0).usage().cached_tokens(), 16);
  EXPECT_EQ(talk.finished(1).usage().cached_tokens(), 16);
}

TEST_F(SessionTest, TheOpenCarriesWhatTheRequestSaysOfTheCache) {
  for (const bool bypass : {false, true}) {
    GenerationRequest request = Request();
    request.cache_salt = "tenant 7";
    request.cache_bypass = bypass;
    request.max_tokens = 1;
    Conversation talk(&decoder, std::move(request));
    talk.Run();
    EXPECT_EQ(decoder.open_commands.back().salt(), "tenant 7");
    EXPECT_EQ(decoder.open_commands.back().no_cache(), bypass);
    decoder.Reset();
  }
}

TEST_F(SessionTest, TheOpenCarriesTheRequestsIdToAWorkerThatTakesIt) {
  for (const bool takes : {true, false}) {
    GenerationRequest request = Request();
    request.request_id = "r-7";
    auto model = std::make_shared<ServedModel>(*request.model);
    model->limits.request_id = takes;
    request.model = model;
    request.max_tokens = 1;
    Conversation talk(&decoder, std::move(request));
    talk.Run();
    EXPECT_EQ(decoder.open_commands.back().request_id(), takes ? "r-7" : "");
    decoder.Reset();
  }
}

TEST_F(SessionTest, TheOpenCarriesTheTimeThatIsLeft) {
  GenerationRequest request = Request();
  request.deadline = 1'000'000 + 2 * kNanosPerSecond + 7;
  request.max_tokens = 1;
  Conversation talk(&decoder, std::move(request));
  talk.Run();
  EXPECT_EQ(decoder.open_commands[0].time_left().seconds(), 2);
  EXPECT_EQ(decoder.open_commands[0].time_left().nanos(), 7);
}

}  // namespace
}  // namespace tandem::text
