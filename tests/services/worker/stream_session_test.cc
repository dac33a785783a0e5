#include "services/worker/stream_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tandem {
namespace {

namespace pb = ::tandem::decode::v1;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kStream = 7;
constexpr Nanos kNow = 1000 * kNanosPerSecond;

// One stream and what comes out of it on both sides.
class StreamSessionTest : public ::testing::Test {
 protected:
  pb::Open* AddOpen(uint64_t first_handle, int32_t num_tokens = 3, int32_t choices = 1) {
    pb::Open* open = frame_.add_commands()->mutable_open();
    open->set_first_handle(first_handle);
    open->set_choices(choices);
    for (int32_t i = 0; i < num_tokens; ++i) open->add_tokens(static_cast<uint32_t>(10 + i));
    open->set_total_tokens(num_tokens);
    open->set_prompt_length(num_tokens);
    open->mutable_draw()->set_num_top(20);
    open->mutable_draw()->set_num_perturbed(8);
    return open;
  }
  void AddMore(uint64_t first_handle, std::vector<uint32_t> tokens) {
    pb::OpenMore* more = frame_.add_commands()->mutable_open_more();
    more->set_first_handle(first_handle);
    more->mutable_tokens()->Assign(tokens.begin(), tokens.end());
  }
  void AddExtend(uint64_t handle) {
    pb::Extend* extend = frame_.add_commands()->mutable_extend();
    extend->set_handle(handle);
    extend->set_position(3);
    extend->set_epoch(2);
    extend->add_tokens(5);
    extend->add_tokens(0xffffffff);
  }
  void AddClose(uint64_t handle) { frame_.add_commands()->mutable_close()->set_handle(handle); }

  // Hands over what was added.
  absl::Status Send() { return session_.Handle(std::exchange(frame_, {}), kNow).status(); }

  // Commands that the engine would get, from all frames.
  std::vector<EngineCommand> TakeCommands() {
    std::vector<EngineCommand> commands;
    for (MailboxItem& item : mailbox_.TakeAll()) {
      if (auto* frame = std::get_if<CommandFrame>(&item)) {
        for (EngineCommand& command : frame->commands) commands.push_back(std::move(command));
        frame->window->Refund(frame->bytes);
      } else {
        ++streams_ended_;
      }
    }
    return commands;
  }
  // "handle reason detail" of each Closed that the peer would get.
  std::vector<std::string> TakeClosed() {
    std::vector<std::string> closed;
    pb::DecodeResponse frame;
    while (outbox_->NextFrame(&frame)) {
      for (const pb::Event& event : frame.events()) {
        closed.push_back(std::to_string(event.closed().handle()) + " " +
                         pb::CloseReason_Name(event.closed().reason()).substr(13) + " " +
                         event.closed().detail());
      }
    }
    return closed;
  }
  // The frame is taken, nothing reaches the engine, and handle 1 is refused for this.
  void ExpectRefused(const std::string& part) {
    EXPECT_TRUE(Send().ok());
    EXPECT_THAT(TakeCommands(), IsEmpty());
    EXPECT_THAT(TakeClosed(), ElementsAre(AllOf(HasSubstr("1 REFUSED"), HasSubstr(part))));
  }

  Mailbox mailbox_;
  int resumes_ = 0;
  int streams_ended_ = 0;
  std::shared_ptr<StreamOutbox> outbox_ = std::make_shared<StreamOutbox>(1 << 20, [] {});
  std::shared_ptr<ReadWindow> window_ =
      std::make_shared<ReadWindow>(1 << 20, [this] { ++resumes_; });
  static constexpr StreamLimits kLimits = {.context_length = 100,
                                           .max_choices = 4,
                                           .max_run_ahead = 2,
                                           .max_drafts = 7,
                                           .max_retain = 5000};
  StreamSession session_{kStream, kLimits, mailbox_, outbox_, window_};
  pb::DecodeRequest frame_;
};

TEST_F(StreamSessionTest, AnOpenAsksForTheLogprobsOfItsPrompt) {
  AddOpen(1);
  pb::Open* open = AddOpen(2);
  open->mutable_prompt_logprobs()->set_first_position(2);
  open->mutable_prompt_logprobs()->set_num_raw_top(5);
  EXPECT_TRUE(Send().ok());
  const std::vector<EngineCommand> commands = TakeCommands();
  ASSERT_EQ(commands.size(), 2u);
  EXPECT_EQ(std::get<OpenCommand>(commands[0]).prompt_logprobs_from, 0);
  EXPECT_EQ(std::get<OpenCommand>(commands[1]).prompt_logprobs_from, 2);
  EXPECT_EQ(std::get<OpenCommand>(commands[1]).prompt_raw_top, 5);
}

TEST_F(StreamSessionTest, LogprobsOfAPromptFromBeforeItsSecondTokenAreRefused) {
  AddOpen(1)->mutable_prompt_logprobs()->set_num_raw_top(5);
  ExpectRefused("prompt_logprobs.first_position is 0: it must be 1 to 3");
}

TEST_F(StreamSessionTest, ARequestIdOfMoreThan128BytesIsRefused) {
  AddOpen(1)->set_request_id(std::string(129, 'r'));
  ExpectRefused("request_id has 129 bytes: at most 128");
}

TEST_F(StreamSessionTest, AnOpenBecomesTheEnginesCommand) {
  pb::Open* open = AddOpen(5, 3, 2);
  open->set_first_choice(6);
  open->set_prompt_length(2);
  open->set_max_new(9);
  open->set_priority(-1);
  open->mutable_draw()->set_temperature(0.5f);
  open->mutable_time_left()->set_seconds(2);
  open->mutable_time_left()->set_nanos(3);
  open->mutable_age()->set_seconds(4);
  open->mutable_age()->set_nanos(5);
  open->set_run_ahead(2);
  open->set_drafts(7);
  open->set_salt(std::string(64, '\0'));
  open->set_request_id(std::string(128, 'r'));
  open->set_no_cache(true);
  ASSERT_TRUE(Send().ok());
  const auto commands = TakeCommands();
  ASSERT_EQ(commands.size(), 1u);
  const auto& command = std::get<OpenCommand>(commands[0]);
  EXPECT_EQ(command.first, (SessionHandle{kStream, 5}));
  EXPECT_EQ(command.choices, 2);
  EXPECT_EQ(command.first_choice, 6u);
  EXPECT_THAT(command.tokens, ElementsAre(10, 11, 12));
  EXPECT_EQ(command.prompt_length, 2);
  EXPECT_EQ(command.max_new, 9);
  EXPECT_EQ(command.priority, -1);
  EXPECT_EQ(command.sampling.temperature, 0.5f);
  EXPECT_EQ(command.deadline, kNow + 2 * kNanosPerSecond + 3);
  EXPECT_EQ(command.age, 4 * kNanosPerSecond + 5);
  EXPECT_EQ(command.run_ahead, 2);
  EXPECT_EQ(command.drafts, 7);
  EXPECT_EQ(command.salt, std::string(64, '\0'));
  EXPECT_EQ(command.request_id, std::string(128, 'r'));
  EXPECT_FALSE(command.use_cache);
}

TEST_F(StreamSessionTest, WhatAnOpenDoesNotSayIsOrdinary) {
  AddOpen(1);
  ASSERT_TRUE(Send().ok());
  const auto commands = TakeCommands();
  const auto& command = std::get<OpenCommand>(commands[0]);
  EXPECT_EQ(command.max_new, 0);
  EXPECT_EQ(command.deadline, kNoDeadline);
  EXPECT_EQ(command.age, 0);
  EXPECT_EQ(command.run_ahead, 0);
  EXPECT_EQ(command.drafts, 0);
  EXPECT_EQ(command.salt, "");
  EXPECT_TRUE(command.use_cache);
}

TEST_F(StreamSessionTest, AnAgeBeyondTheClockIsTheGreatestThereIs) {
  AddOpen(1)->mutable_age()->set_seconds(std::numeric_limits<int64_t>::max());
  ASSERT_TRUE(Send().ok());
  EXPECT_EQ(std::get<OpenCommand>(TakeCommands()[0]).age, std::numeric_limits<Nanos>::max());
}

TEST_F(StreamSessionTest, ACloseCarriesHowLongToRetainForTheEngineToCheck) {
  AddOpen(1);
  const std::pair<int64_t, Nanos> cases[] = {
      {0, 0},
      {7, 7 * kNanosPerSecond},
      {-7, -7 * kNanosPerSecond},
      {std::numeric_limits<int64_t>::max(), std::numeric_limits<Nanos>::max()},
      {std::numeric_limits<int64_t>::min(), std::numeric_limits<Nanos>::min()}};
  for (const auto& [seconds, nanos] : cases) {
    AddClose(1);
    if (seconds != 0) {
      frame_.mutable_commands()->rbegin()->mutable_close()->mutable_retain()->set_seconds(seconds);
    }
  }
  ASSERT_TRUE(Send().ok());
  const auto commands = TakeCommands();
  ASSERT_EQ(commands.size(), 1 + std::size(cases));
  for (size_t i = 0; i < std::size(cases); ++i) {
    EXPECT_EQ(std::get<CloseCommand>(commands[1 + i]).retain, cases[i].second);
  }
}

TEST_F(StreamSessionTest, OtherCommandsPassThrough) {
  AddOpen(1);
  AddExtend(1);
  pb::Fetch* fetch = frame_.add_commands()->mutable_fetch();
  fetch->set_handle(1);
  fetch->set_position(4);
  fetch->mutable_ids()->add_ids(6);
  AddClose(1);
  ASSERT_TRUE(Send().ok());
  const auto commands = TakeCommands();
  ASSERT_EQ(commands.size(), 4u);
  const auto& extend = std::get<ExtendCommand>(commands[1]);
  EXPECT_EQ(extend.handle, (SessionHandle{kStream, 1}));
  EXPECT_EQ(extend.position, 3);
  EXPECT_EQ(extend.epoch, 2u);
  EXPECT_THAT(extend.tokens, ElementsAre(5, INT32_MAX)) << "an id that no vocabulary holds";
  const auto& fetched = std::get<FetchCommand>(commands[2]);
  EXPECT_EQ(fetched.what, FetchCommand::What::kIds);
  EXPECT_EQ(fetched.position, 4);
  EXPECT_THAT(fetched.ids, ElementsAre(6));
  EXPECT_EQ(std::get<CloseCommand>(commands[3]).handle, (SessionHandle{kStream, 1}));
}

TEST_F(StreamSessionTest, HandlesMustRise) {
  AddOpen(5, 3, 2);
  ASSERT_TRUE(Send().ok());
  AddOpen(6);
  EXPECT_TRUE(absl::IsInvalidArgument(Send())) << "6 belongs to the first open";
  AddOpen(7);
  EXPECT_TRUE(Send().ok());
}

TEST_F(StreamSessionTest, HandleZeroAndHandlesThatWrapEndTheStream) {
  AddOpen(0);
  EXPECT_TRUE(absl::IsInvalidArgument(Send()));
  AddOpen(std::numeric_limits<uint64_t>::max(), 3, 2);
  EXPECT_TRUE(absl::IsInvalidArgument(Send()));
  AddOpen(std::numeric_limits<uint64_t>::max(), 3, 1);
  EXPECT_TRUE(Send().ok());
}

TEST_F(StreamSessionTest, ACommandForAHandleThatWasNeverOpenedEndsTheStream) {
  AddOpen(1);
  AddExtend(2);
  EXPECT_TRUE(absl::IsInvalidArgument(Send()));
  EXPECT_THAT(TakeCommands(), IsEmpty()) << "nothing of a broken frame is applied";
  AddClose(0);
  EXPECT_TRUE(absl::IsInvalidArgument(Send()));
  AddMore(9, {1});
  EXPECT_TRUE(absl::IsInvalidArgument(Send()));
}

TEST_F(StreamSessionTest, AnUnsetOneofEndsTheStreamWithUnimplemented) {
  frame_.add_commands();
  EXPECT_TRUE(absl::IsUnimplemented(Send()));
  AddOpen(1);
  frame_.add_commands()->mutable_fetch()->set_handle(1);
  EXPECT_TRUE(absl::IsUnimplemented(Send()));
}

struct BadOpen {
  const char* part;  // of the detail
  void (*apply)(pb::Open*);
};

TEST_F(StreamSessionTest, WhatIsWrongWithAnOpenClosesItWithTheFieldAndTheLimit) {
  const BadOpen cases[] = {
      {"choices is 0: it must be 1 to 4", [](pb::Open* o) { o->set_choices(0); }},
      {"choices is -1", [](pb::Open* o) { o->set_choices(-1); }},
      {"choices is 512", [](pb::Open* o) { o->set_choices(512); }},
      {"total_tokens is 0: it must be 1 to 100", [](pb::Open* o) { o->set_total_tokens(0); }},
      {"total_tokens is 101", [](pb::Open* o) { o->set_total_tokens(101); }},
      {"tokens has 3",
       [](pb::Open* o) {
         o->set_total_tokens(2);
         o->set_prompt_length(2);
       }},
      {"prompt_length is 0", [](pb::Open* o) { o->set_prompt_length(0); }},
      {"prompt_length is 4", [](pb::Open* o) { o->set_prompt_length(4); }},
      {"max_new is 0", [](pb::Open* o) { o->set_max_new(0); }},
      {"max_new is -3", [](pb::Open* o) { o->set_max_new(-3); }},
      {"run_ahead is 3: it must be 0 to 2", [](pb::Open* o) { o->set_run_ahead(3); }},
      {"run_ahead is -1", [](pb::Open* o) { o->set_run_ahead(-1); }},
      {"drafts is 8: it must be 0 to 7", [](pb::Open* o) { o->set_drafts(8); }},
      {"drafts is -1", [](pb::Open* o) { o->set_drafts(-1); }},
      {"salt has 65 bytes: at most 64", [](pb::Open* o) { o->set_salt(std::string(65, 's')); }},
      {"age is -1 s and 0 ns: it must be at least 0",
       [](pb::Open* o) { o->mutable_age()->set_seconds(-1); }},
      {"age is 0 s and -1 ns", [](pb::Open* o) { o->mutable_age()->set_nanos(-1); }},
      {"age is 0 s and 1000000000 ns: nanos must be below a second",
       [](pb::Open* o) { o->mutable_age()->set_nanos(1'000'000'000); }},
      {"draw is absent", [](pb::Open* o) { o->clear_draw(); }},
      {"bias_values", [](pb::Open* o) { o->mutable_draw()->add_bias_ids(1); }},
      {"time_left", [](pb::Open* o) { o->mutable_time_left()->set_nanos(1'000'000'000); }},
      {"time_left",
       [](pb::Open* o) {
         o->mutable_time_left()->set_seconds(1);
         o->mutable_time_left()->set_nanos(-1);
       }},
  };
  for (const BadOpen& bad : cases) {
    SCOPED_TRACE(bad.part);
    StreamSession fresh(kStream, kLimits, mailbox_, outbox_, window_);
    bad.apply(AddOpen(1));
    EXPECT_TRUE(fresh.Handle(std::exchange(frame_, {}), kNow).ok());
    EXPECT_THAT(TakeCommands(), IsEmpty());
    EXPECT_THAT(TakeClosed(), ElementsAre(AllOf(HasSubstr("1 REFUSED"), HasSubstr(bad.part))));
  }
}

TEST_F(StreamSessionTest, EveryHandleOfARefusedOpenIsClosed) {
  AddOpen(1, 3, 3)->set_run_ahead(3);
  ASSERT_TRUE(Send().ok());
  EXPECT_THAT(TakeClosed(),
              ElementsAre(HasSubstr("1 REFUSED"), HasSubstr("2 REFUSED"), HasSubstr("3 REFUSED")));
  AddOpen(4);
  ASSERT_TRUE(Send().ok());
  EXPECT_EQ(TakeCommands().size(), 1u) << "the stream goes on";
}

TEST_F(StreamSessionTest, TimeThatIsOverIsADeadlineNowAndTimeWithoutEndIsNone) {
  AddOpen(1)->mutable_time_left()->set_seconds(-5);
  AddOpen(2)->mutable_time_left();
  AddOpen(3)->mutable_time_left()->set_seconds(std::numeric_limits<int64_t>::max());
  ASSERT_TRUE(Send().ok());
  const auto commands = TakeCommands();
  EXPECT_EQ(std::get<OpenCommand>(commands[0]).deadline, kNow);
  EXPECT_EQ(std::get<OpenCommand>(commands[1]).deadline, kNow);
  EXPECT_EQ(std::get<OpenCommand>(commands[2]).deadline, kNoDeadline);
}

TEST_F(StreamSessionTest, TokensInPiecesOpenOnceTheyAreAllThere) {
  AddOpen(1, 2)->set_total_tokens(5);
  AddMore(1, {20, 21});
  ASSERT_TRUE(Send().ok());
  EXPECT_THAT(TakeCommands(), IsEmpty());
  AddOpen(2);
  AddMore(1, {22});
  ASSERT_TRUE(Send().ok());
  const auto commands = TakeCommands();
  ASSERT_EQ(commands.size(), 2u) << "another open may come between";
  EXPECT_EQ(std::get<OpenCommand>(commands[0]).first.number, 2u);
  EXPECT_THAT(std::get<OpenCommand>(commands[1]).tokens, ElementsAre(10, 11, 20, 21, 22));
  AddMore(1, {23});
  EXPECT_TRUE(Send().ok()) << "late pieces are ignored";
  EXPECT_THAT(TakeCommands(), IsEmpty());
}

TEST_F(StreamSessionTest, MoreTokensThanAnnouncedAreRefused) {
  AddOpen(1, 2)->set_total_tokens(3);
  AddMore(1, {20, 21});
  ExpectRefused("OpenMore brings 4 tokens: total_tokens is 3");
}

TEST_F(StreamSessionTest, UsingAHandleBeforeItsTokensAreThereIsRefused) {
  AddOpen(1, 2)->set_total_tokens(3);
  AddExtend(1);
  ExpectRefused("Extend before the tokens");
}

TEST_F(StreamSessionTest, ClosingAHandleBeforeItsTokensAreThereClosesThatOpen) {
  AddOpen(1, 2, 2)->set_total_tokens(3);
  AddClose(2);
  AddMore(1, {20});
  ASSERT_TRUE(Send().ok());
  EXPECT_THAT(TakeCommands(), IsEmpty());
  EXPECT_THAT(TakeClosed(), ElementsAre(HasSubstr("1 REFUSED"), HasSubstr("2 DONE")));
}

TEST_F(StreamSessionTest, ACloseThatRetainsForTooLongBeforeTheTokensAreThereIsRefused) {
  for (const int32_t nanos : {5001, -1}) {
    SCOPED_TRACE(nanos);
    const uint64_t handle = nanos > 0 ? 1 : 2;
    AddOpen(handle, 2)->set_total_tokens(3);
    AddClose(handle);
    frame_.mutable_commands()->rbegin()->mutable_close()->mutable_retain()->set_nanos(nanos);
    ASSERT_TRUE(Send().ok());
    EXPECT_THAT(TakeClosed(),
                ElementsAre(HasSubstr(absl::StrCat(handle, " REFUSED retain is ", nanos,
                                                   " ns: it must be 0 to 5000"))));
  }
}

TEST_F(StreamSessionTest, OnlySoManyOpensMayWaitForTheirTokens) {
  for (int i = 1; i <= kMaxPartialOpens + 1; ++i) AddOpen(i, 2)->set_total_tokens(3);
  ASSERT_TRUE(Send().ok());
  EXPECT_THAT(TakeClosed(), ElementsAre(HasSubstr("17 REFUSED 16 opens wait")));
}

TEST_F(StreamSessionTest, EndFreesTheStreamOnceAndNothingFollows) {
  AddOpen(1);
  ASSERT_TRUE(Send().ok());
  session_.End();
  session_.End();
  AddOpen(2);
  EXPECT_TRUE(Send().ok()) << "a frame that was in flight";
  EXPECT_EQ(TakeCommands().size(), 1u);
  EXPECT_EQ(streams_ended_, 1);
}

TEST_F(StreamSessionTest, AStreamThatIsEndingOpensNothingMore) {
  outbox_->Abort(absl::ResourceExhaustedError("the peer does not read"));
  AddOpen(1);
  EXPECT_TRUE(Send().ok());
  EXPECT_THAT(TakeCommands(), IsEmpty());
}

TEST_F(StreamSessionTest, APeerThatWritesAheadOfTheEngineIsReadAgainAfterIt) {
  int frames = 0;
  bool read_on = true;
  while (read_on && frames < 1'000'000) {
    AddOpen(static_cast<uint64_t>(++frames));
    const absl::StatusOr<bool> handled = session_.Handle(std::exchange(frame_, {}), kNow);
    ASSERT_TRUE(handled.ok());
    read_on = *handled;
  }
  EXPECT_FALSE(read_on);
  EXPECT_GT(frames, 10);
  EXPECT_LT(frames, 10'000) << "the memory of commands counts, not only their bytes on the wire";
  EXPECT_EQ(resumes_, 0);
  TakeCommands();
  EXPECT_EQ(resumes_, 1);
}

TEST_F(StreamSessionTest, APeerThatDoesNotReadItsRefusalsLosesTheStream) {
  absl::Status status;
  uint64_t handle = 0;
  for (int i = 0; i < 1000 && status.ok(); ++i) {
    for (int j = 0; j < 100; ++j) AddOpen(++handle)->set_run_ahead(3);
    status = Send();
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
}

}  // namespace
}  // namespace tandem
