#include "services/worker/stream_outbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "services/common/decode_codec.h"

namespace tandem {
namespace {

namespace pb = ::tandem::decode::v1;
using ::testing::ElementsAre;

constexpr int64_t kMegabyte = 1 << 20;

SessionHandle Handle(uint64_t number) { return {1, number}; }

CandidatesEvent CandidatesAt(uint64_t handle, int32_t position, int32_t num_top = 20) {
  CandidatesEvent event;
  event.handle = Handle(handle);
  event.position = position;
  event.candidates.summary.first_nonfinite = -1;
  event.candidates.summary.drawn = -1;
  event.candidates.summary.num_in_row = 100'000;
  event.candidates.summary.num_top = num_top;
  for (int32_t i = 0; i < num_top; ++i) event.candidates.top.push_back({i, 1.0f, 1.0f, -1});
  return event;
}

FetchedEvent Row(uint64_t handle, int32_t position, int32_t count) {
  FetchedEvent event;
  event.handle = Handle(handle);
  event.position = position;
  event.what = FetchCommand::What::kRow;
  for (int32_t i = 0; i < count; ++i) event.values.push_back(static_cast<float>(i));
  return event;
}

ClosedEvent ClosedOf(uint64_t handle) { return {Handle(handle), ClosedEvent::Reason::kDone, ""}; }

class StreamOutboxTest : public ::testing::Test {
 protected:
  template <typename... Events>
  bool Push(Events... events) {
    std::vector<EngineEvent> all;
    (all.push_back(std::move(events)), ...);
    return outbox_.Push(std::move(all), EngineLoad{});
  }

  // Every frame that there is now. Each must keep the frame's limit.
  std::vector<pb::DecodeResponse> TakeFrames() {
    std::vector<pb::DecodeResponse> frames;
    pb::DecodeResponse frame;
    while (outbox_.NextFrame(&frame)) {
      EXPECT_LE(frame.ByteSizeLong(), static_cast<size_t>(kMaxFrameBytes));
      frames.push_back(frame);
    }
    return frames;
  }

  int wakes_ = 0;
  StreamOutbox outbox_{kMegabyte, [this] { ++wakes_; }};
};

TEST_F(StreamOutboxTest, ManyEventsLeaveInOneFrameInOrder) {
  Push(OpenedEvent{Handle(1), 0}, PrefillEvent{Handle(1), 64, 100, 32}, CandidatesAt(1, 100),
       ClosedOf(2));
  const auto frames = TakeFrames();
  ASSERT_EQ(frames.size(), 1u);
  ASSERT_EQ(frames[0].events_size(), 4);
  EXPECT_EQ(frames[0].events(0).opened().handle(), 1u);
  EXPECT_EQ(frames[0].events(1).prefill().done_tokens(), 64);
  EXPECT_EQ(frames[0].events(1).prefill().total_tokens(), 100);
  EXPECT_EQ(frames[0].events(1).prefill().cached_tokens(), 32);
  EXPECT_EQ(frames[0].events(2).candidates().position(), 100);
  EXPECT_FALSE(frames[0].events(2).candidates().has_drawn());
  EXPECT_EQ(frames[0].events(3).closed().handle(), 2u);
  EXPECT_TRUE(frames[0].has_load());
  EXPECT_EQ(wakes_, 1);
}

TEST_F(StreamOutboxTest, FramesOfTheLargestListsKeepTheLimit) {
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(Push(CandidatesAt(1, i, kernels::kMaxTop)));
  int32_t next = 0;
  const auto frames = TakeFrames();
  EXPECT_GT(frames.size(), 1u);
  for (const auto& frame : frames) {
    for (const auto& event : frame.events()) EXPECT_EQ(event.candidates().position(), next++);
  }
  EXPECT_EQ(next, 60);
}

TEST_F(StreamOutboxTest, TheBoundIsNoLessThanWhatTheListsTakeOnTheWire) {
  // With every number at its longest encoding, a full frame still keeps the limit.
  CandidatesEvent event = CandidatesAt(std::numeric_limits<uint64_t>::max(), INT32_MAX, 50);
  event.epoch = std::numeric_limits<uint32_t>::max();
  kernels::RowSummary& summary = event.candidates.summary;
  summary.drawn = INT32_MAX;
  summary.num_in_row = INT32_MAX;
  summary.total_weight = summary.top_k_weight = summary.raw_total = ~uint64_t{0};
  summary.row_max = summary.next_perturbed = summary.raw_max = 1.5f;
  for (auto& entry : event.candidates.top) entry.raw_rank = 1;
  for (int i = 0; i < kernels::kMaxPerturbed; ++i) {
    event.candidates.perturbed.push_back({i, 1, 1, 1, 1, 1, ~uint64_t{0}});
  }
  for (int i = 0; i < kernels::kMaxRawTop; ++i) event.candidates.raw_top.push_back({i, 1, i});
  for (int i = 0; i < kernels::kMaxReported; ++i) event.candidates.reported.push_back({i, 1, i});
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(Push(event));
  EXPECT_GT(TakeFrames().size(), 1u);
}

TEST_F(StreamOutboxTest, FramesOfTheLargestPromptLogprobsKeepTheLimit) {
  PromptLogprobsEvent event;
  event.handle = Handle(std::numeric_limits<uint64_t>::max());
  PromptLogprobs& logprobs = event.logprobs;
  logprobs.num_raw_top = kernels::kMaxRawTop;
  logprobs.num_reported = kernels::kMaxReported;
  for (int32_t i = 0; i < kMaxPromptLogprobs; ++i) {
    logprobs.tokens.push_back({i, 1.5f, i});
    logprobs.raw_max.push_back(1.5f);
    logprobs.raw_total.push_back(~uint64_t{0});
    logprobs.raw_top.insert(logprobs.raw_top.end(), kernels::kMaxRawTop, {1, 1.5f, 0});
    logprobs.reported.insert(logprobs.reported.end(), kernels::kMaxReported, {1, 1.5f, 0});
  }
  // A row that waits keeps room for its chunk in each frame.
  ASSERT_TRUE(Push(Row(1, 10, 3 * kChunkValues)));
  for (int32_t i = 0; i < 10; ++i) {
    logprobs.position = INT32_MAX - i;
    ASSERT_TRUE(Push(event));
  }
  int32_t next = INT32_MAX;
  for (const auto& frame : TakeFrames()) {
    for (const auto& sent : frame.events()) {
      if (sent.has_prompt_logprobs()) {
        EXPECT_EQ(sent.prompt_logprobs().first_position(), next--);
        EXPECT_EQ(sent.prompt_logprobs().reported_ranks_size(), 64 * 64);
      }
    }
  }
  EXPECT_EQ(next, INT32_MAX - 10);
}

TEST_F(StreamOutboxTest, ARowIsCutIntoChunksThatOtherEventsPassBetween) {
  const int32_t count = 3 * kChunkValues + 5;
  ASSERT_TRUE(Push(Row(1, 10, count)));
  std::vector<float> values;
  pb::DecodeResponse frame;
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(Push(CandidatesAt(2, 100 + i)));
    ASSERT_TRUE(outbox_.NextFrame(&frame));
    ASSERT_EQ(frame.events_size(), 2);
    EXPECT_EQ(frame.events(0).candidates().position(), 100 + i);
    const pb::Fetched& fetched = frame.events(1).fetched();
    EXPECT_EQ(fetched.position(), 10);
    EXPECT_TRUE(fetched.values().row());
    EXPECT_EQ(fetched.values().offset(), static_cast<int32_t>(values.size()));
    EXPECT_EQ(fetched.values().total(), count);
    values.insert(values.end(), fetched.values().values().begin(), fetched.values().values().end());
  }
  EXPECT_FALSE(outbox_.NextFrame(&frame));
  EXPECT_EQ(values, Row(1, 10, count).values);
}

TEST_F(StreamOutboxTest, RowsLeaveOneAfterTheOther) {
  ASSERT_TRUE(Push(Row(1, 10, kChunkValues + 1), Row(1, 11, 2)));
  std::vector<std::pair<int32_t, int32_t>> chunks;  // position, offset
  for (const auto& frame : TakeFrames()) {
    for (const auto& event : frame.events()) {
      chunks.emplace_back(event.fetched().position(), event.fetched().values().offset());
    }
  }
  EXPECT_THAT(chunks, ElementsAre(std::pair(10, 0), std::pair(10, kChunkValues), std::pair(11, 0)));
}

TEST_F(StreamOutboxTest, NothingFollowsClosedOfAHandle) {
  ASSERT_TRUE(Push(Row(1, 10, 2 * kChunkValues), Row(2, 20, 3)));
  pb::DecodeResponse frame;
  ASSERT_TRUE(outbox_.NextFrame(&frame));
  ASSERT_EQ(frame.events(0).fetched().handle(), 1u) << "the first chunk is out";
  ASSERT_TRUE(Push(ClosedOf(1)));
  bool closed = false;
  for (const auto& later : TakeFrames()) {
    for (const auto& event : later.events()) {
      if (event.has_closed()) closed = true;
      if (event.has_fetched()) {
        EXPECT_EQ(event.fetched().handle(), 2u);
      }
    }
  }
  EXPECT_TRUE(closed);
}

TEST_F(StreamOutboxTest, FetchedListsTravelWhole) {
  FetchedEvent more;
  more.handle = Handle(1);
  more.position = 7;
  more.what = FetchCommand::What::kMore;
  more.candidates = CandidatesAt(1, 7, kernels::kMaxTop).candidates;
  ASSERT_TRUE(Push(more));
  const auto frames = TakeFrames();
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].events(0).fetched().more().top_ids_size(), kernels::kMaxTop);
}

TEST_F(StreamOutboxTest, AQueueBeyondItsBoundAbortsTheStream) {
  const int32_t row = 100'000;
  EXPECT_TRUE(Push(Row(1, 1, row)));
  EXPECT_TRUE(Push(Row(1, 2, row)));
  EXPECT_FALSE(Push(Row(1, 3, row))) << "1.2 MB in a queue of 1 MiB";
  ASSERT_TRUE(outbox_.ended().has_value());
  EXPECT_TRUE(absl::IsResourceExhausted(*outbox_.ended()));
  EXPECT_TRUE(TakeFrames().empty()) << "what was queued is dropped";
  EXPECT_TRUE(Push(Row(1, 4, row))) << "and later events are ignored";
}

TEST_F(StreamOutboxTest, WhatWasSentDoesNotCountAgainstTheBound) {
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(Push(Row(1, i, 100'000), CandidatesAt(1, i), ClosedOf(2)));
    TakeFrames();
  }
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(Push(Row(1, i, 100'000), ClosedOf(1))) << "dropped rows do not count either";
    TakeFrames();
  }
}

TEST_F(StreamOutboxTest, ABeatIsOneFrameWithTheLoad) {
  EngineLoad load;
  load.running = 5;
  outbox_.Beat(load);
  outbox_.Beat(load);
  const auto frames = TakeFrames();
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].events_size(), 0);
  EXPECT_EQ(frames[0].load().running(), 5);
}

TEST_F(StreamOutboxTest, HelloGoesFirst) {
  Push(OpenedEvent{Handle(1), 0});
  pb::Hello hello;
  hello.set_model("m");
  EngineLoad load;
  load.queued = 3;
  outbox_.PushHello(hello, load);
  const auto frames = TakeFrames();
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].events(0).hello().model(), "m");
  EXPECT_TRUE(frames[0].events(1).has_opened());
  EXPECT_EQ(frames[0].load().queued(), 3);
}

TEST_F(StreamOutboxTest, EndWaitsForWhatIsQueuedAndAbortDoesNot) {
  Push(CandidatesAt(1, 1));
  outbox_.End(absl::UnavailableError("draining"));
  EXPECT_FALSE(outbox_.ended().has_value());
  EXPECT_EQ(TakeFrames().size(), 1u);
  ASSERT_TRUE(outbox_.ended().has_value());
  EXPECT_TRUE(absl::IsUnavailable(*outbox_.ended()));

  StreamOutbox other(kMegabyte, [] {});
  other.Push({CandidatesAt(1, 1)}, std::nullopt);
  EXPECT_FALSE(other.ending());
  other.Abort(absl::CancelledError("gone"));
  ASSERT_TRUE(other.ended().has_value());
  EXPECT_TRUE(other.ending());
  other.End(absl::OkStatus());
  EXPECT_TRUE(absl::IsCancelled(*other.ended())) << "the first end counts";
}

}  // namespace
}  // namespace tandem
