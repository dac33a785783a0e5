// A token costs no allocation once its session is warm: each stage of its way, run over and over in
// one thread, asks operator new for nothing.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "services/text/event_frame.h"
#include "services/text/frame_packer.h"
#include "services/text/outbox.h"
#include "tests/services/text/session_fixture.h"
#include "tests/support/allocation_counter.h"

namespace tandem::text {
namespace {

using test::AllocatedBytes;

constexpr int kWarm = 16;  // tokens or rounds that may still allocate
constexpr int kRounds = 400;

class SteadyStateTest : public SessionTest {
 protected:
  GenerationRequest PlainRequest() {
    GenerationRequest request = Request();
    request.sampling.temperature = 0.7f;
    request.sampling.top_p = 0.9f;
    request.sampling.seed = 5;
    request.stop_strings = {"never said", "nor this"};
    request.ignore_eos = true;
    request.run_ahead = 4;
    request.max_tokens = kWarm + kRounds;
    return request;
  }
  void ExpectNoAllocation(GenerationRequest request);
};

TEST_F(SteadyStateTest, DecidingATokenAllocatesNothing) { ExpectNoAllocation(PlainRequest()); }

TEST_F(SteadyStateTest, SayingHowATokenCameAboutAllocatesNothing) {
  GenerationRequest request = PlainRequest();
  request.token_details = true;
  ExpectNoAllocation(std::move(request));
}

void SteadyStateTest::ExpectNoAllocation(GenerationRequest request) {
  Session session(std::move(request));
  SessionOutput out;
  session.Begin(0, &out);
  const auto opening = session.Open(*session.NextOpening(0), 1, *Model(), 0, &out);
  session.SetHandles(opening, 1, 16, &out);
  out.commands[0].command.mutable_open()->set_first_handle(16);
  std::deque<decode::v1::Event> events;
  const auto give = [&](const decode::v1::Command& command) {
    for (auto& event : decoder.Apply(command)) events.push_back(std::move(event));
  };
  give(out.commands[0].command);
  int tokens = 0, grown = 0, measured = 0;
  while (!session.done()) {
    ASSERT_FALSE(events.empty());
    const decode::v1::Event event = std::move(events.front());
    events.pop_front();
    // The list of all tokens doubles now and then.
    const size_t room = session.choice(0).tokens().capacity();
    const int64_t before = AllocatedBytes();
    out.clear();
    session.OnEvent(event, 0, 0, &out);
    const int64_t bytes = AllocatedBytes() - before;
    tokens += event.has_candidates();
    const bool last = session.done();
    if (session.choice(0).tokens().capacity() != room) {
      ++grown;
    } else if (tokens > kWarm && !last) {
      EXPECT_EQ(bytes, 0) << "token " << tokens;
      ++measured;
    }
    for (const WorkerCommand& command : out.commands) give(command.command);
  }
  EXPECT_EQ(tokens, kWarm + kRounds);
  EXPECT_LE(grown, 10);
  EXPECT_GE(measured, kRounds - 10);
  EXPECT_EQ(session.choice(0).counters().from_lists(), kWarm + kRounds) << "none was fetched";
}

TEST(SteadyState, ExtendsOnTheirWayIntoFramesAllocateNothing) {
  FramePacker packer(1);
  RecycledVector<decode::v1::Command> commands;
  decode::v1::DecodeRequest frame;
  int64_t before = 0;
  for (int round = 0; round < kWarm + kRounds; ++round) {
    if (round == kWarm) before = AllocatedBytes();
    for (int i = 0; i < 64; ++i) {
      decode::v1::Extend* extend = commands.emplace_back().mutable_extend();
      ASSERT_TRUE(extend->tokens().empty()) << "nothing is left of an earlier one";
      extend->set_handle(16 * static_cast<uint64_t>(i));
      extend->set_position(round);
      extend->add_tokens(static_cast<uint32_t>(round));
    }
    packer.Add(0, commands.span());
    commands.clear();
    packer.Next(&frame);
    ASSERT_TRUE(packer.empty());
    ASSERT_EQ(frame.commands_size(), 64);
    ASSERT_EQ(frame.commands(63).extend().position(), round);
  }
  EXPECT_EQ(AllocatedBytes() - before, 0);
}

TEST(SteadyState, DeltasOnTheirWayThroughTheOutboxAllocateNothing) {
  Outbox outbox;
  RecycledVector<v1::GenerateResponse> messages;
  v1::GenerateResponse taken;
  int64_t before = 0;
  for (int round = 0; round < kWarm + kRounds; ++round) {
    if (round == kWarm) before = AllocatedBytes();
    for (int i = 0; i < 3; ++i) {
      v1::Delta* delta = messages.emplace_back().mutable_delta();
      ASSERT_TRUE(delta->text().empty() && delta->token_ids().empty());
      delta->mutable_text()->append(" more than fits into a string itself");
      delta->add_token_ids(round);
      outbox.Add(&messages.back());
    }
    messages.clear();
    ASSERT_TRUE(outbox.Take(&taken));
    ASSERT_EQ(taken.delta().token_ids_size(), 3);
    ASSERT_FALSE(outbox.Take(&taken));
  }
  EXPECT_EQ(AllocatedBytes() - before, 0);
}

TEST(SteadyState, ParsingAFrameOfEventsAllocatesNothing) {
  decode::v1::DecodeResponse sent;
  for (int i = 0; i < 100; ++i) {
    decode::v1::Candidates* candidates = sent.add_events()->mutable_candidates();
    candidates->set_handle(16 * static_cast<uint64_t>(i + 1));
    for (uint32_t id = 0; id < 20; ++id) candidates->mutable_lists()->add_top_ids(id);
  }
  const std::string bytes = sent.SerializeAsString();
  const FramePacker packer(2);
  EventFrame frame;
  int64_t before = 0;
  for (int round = 0; round < kWarm + kRounds; ++round) {
    if (round == kWarm) before = AllocatedBytes();
    ASSERT_TRUE(frame.mutable_message()->ParseFromString(bytes));
    frame.Cut(packer, 2);
    ASSERT_EQ(frame.OfShard(0).size() + frame.OfShard(1).size(), 100u);
    ASSERT_EQ(HandleOf(*frame.OfShard(1).front()) / 16 % 2, 1u);
    frame.Reset();
  }
  EXPECT_EQ(AllocatedBytes() - before, 0);
}

}  // namespace
}  // namespace tandem::text
