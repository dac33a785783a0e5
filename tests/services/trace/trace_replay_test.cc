// A trace that contradicts itself is refused, and whatever differs from a new decision is told.
#include "services/trace/trace_replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "services/common/decode_codec.h"
#include "tests/support/scripted_decoder.h"

namespace tandem::test {
namespace {

using testing::HasSubstr;
namespace pb = trace::v1;
using Source = RecordedStep::Source;

constexpr uint64_t kConnection = 3;
constexpr uint64_t kHandle = 16;

// A generation of one choice as a session would have had it recorded, over rows made of hashes.
class TraceReplayTest : public testing::Test {
 protected:
  TraceReplayTest() {
    sampling_.temperature = 0.8f;
    sampling_.repetition_penalty = 1.2f;
    sampling_.seed = 9;
    trace_.header.set_version(kTraceVersion);
    trace_.header.set_vocab_size(kRowSize);
    trace_.header.set_choices(1);
    TokensToProto(tokens_, trace_.header.mutable_prompt());
  }
  Decider MakeDecider() const {
    return Decider(sampling_, 0, prompt_length_, tokens_, kRowSize, {});
  }
  pb::Record& Add() {
    pb::Record& record = trace_.records.emplace_back();
    record.set_connection(kConnection);
    record.set_nanos(static_cast<int64_t>(trace_.records.size()));
    return record;
  }
  void Open() {
    ToProto(sampling_, trace_.header.mutable_draw());
    decode::v1::Open& open = *Add().mutable_command()->mutable_open();
    open.set_choices(1);
    TokensToProto(tokens_, open.mutable_tokens());
    open.set_total_tokens(static_cast<int32_t>(tokens_.size()));
    pb::Handles& handles = *Add().mutable_handles();
    handles.set_first_handle(kHandle);
    handles.set_choices(1);
  }
  decode::v1::Candidates& AddCandidates() {
    decode::v1::Candidates& event = *Add().mutable_event()->mutable_candidates();
    event.set_handle(kHandle);
    event.set_position(static_cast<int32_t>(tokens_.size()));
    event.set_epoch(epoch_);
    const Candidates lists = MakeDecider().CandidatesFromRow(rows_(tokens_));
    ToProto(lists, event.mutable_lists());
    if (lists.summary.drawn >= 0) event.set_drawn(static_cast<uint32_t>(lists.summary.drawn));
    return event;
  }
  void AddRow(int32_t chunk) {
    const std::vector<float> row = rows_(tokens_);
    for (int32_t offset = 0; offset < kRowSize; offset += chunk) {
      decode::v1::Fetched& fetched = *Add().mutable_event()->mutable_fetched();
      fetched.set_handle(kHandle);
      fetched.set_position(static_cast<int32_t>(tokens_.size()));
      fetched.mutable_values()->set_row(true);
      fetched.mutable_values()->set_offset(offset);
      fetched.mutable_values()->set_total(kRowSize);
      for (int32_t i = offset; i < std::min(offset + chunk, kRowSize); ++i) {
        fetched.mutable_values()->add_values(row[i]);
      }
    }
  }
  int32_t TokenByRow() const { return MakeDecider().DecideFromRow(rows_(tokens_)).token; }
  decode::v1::Extend& Extend(int32_t token) {
    decode::v1::Extend& extend = *Add().mutable_command()->mutable_extend();
    extend.set_handle(kHandle);
    extend.set_position(static_cast<int32_t>(tokens_.size()));
    extend.set_epoch(epoch_);
    extend.add_tokens(static_cast<uint32_t>(token));
    tokens_.push_back(token);
    return extend;
  }
  void Generate(int32_t count) {
    for (int32_t i = 0; i < count; ++i) {
      AddCandidates();
      Extend(TokenByRow());
    }
  }
  absl::Status Run() {
    steps_.clear();
    const auto replay = TraceReplay::Make(&trace_);
    if (!replay.ok()) return replay.status();
    return (*replay)->Run([this](const RecordedStep& step) { steps_.push_back(step); });
  }

  std::vector<int32_t> tokens_ = {5, 6, 7};
  const int32_t prompt_length_ = 3;
  SamplingParameters sampling_;
  RowFunction rows_ = HashRows(kRowSize);
  uint32_t epoch_ = 0;
  Trace trace_;
  std::vector<RecordedStep> steps_;
};

TEST_F(TraceReplayTest, DecidesEachTokenAgain) {
  Open();
  Generate(8);
  ASSERT_TRUE(Run().ok());
  ASSERT_EQ(steps_.size(), 8u);
  for (const RecordedStep& step : steps_) {
    EXPECT_TRUE(step.agrees()) << "position " << step.position;
    EXPECT_EQ(step.source, Source::kLists);
  }
}

TEST_F(TraceReplayTest, TheTokenThatEndsAChoiceIsDecidedToo) {
  Open();
  Generate(2);
  AddCandidates();
  const int32_t last = TokenByRow();
  pb::Ended& ended = *Add().mutable_ended();
  ended.set_total_tokens(static_cast<int32_t>(tokens_.size()) + 1);
  ended.set_last_token(static_cast<uint32_t>(last));
  ASSERT_TRUE(Run().ok());
  ASSERT_EQ(steps_.size(), 3u);
  EXPECT_TRUE(steps_.back().agrees());
  ended.set_last_token(static_cast<uint32_t>(last ^ 1));
  ASSERT_TRUE(Run().ok());
  EXPECT_FALSE(steps_.back().agrees());
}

TEST_F(TraceReplayTest, ATokenThatIsNotTheOneDecidedIsTold) {
  Open();
  Generate(2);
  AddCandidates();
  Extend(TokenByRow() ^ 1);
  ASSERT_TRUE(Run().ok());
  ASSERT_EQ(steps_.size(), 3u);
  EXPECT_TRUE(steps_[1].agrees());
  EXPECT_FALSE(steps_[2].agrees());
}

TEST_F(TraceReplayTest, ATokenWithNothingToDecideItFromIsTold) {
  Open();
  Generate(1);
  Extend(4);
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(steps_.back().source, Source::kNothing);
  EXPECT_FALSE(steps_.back().agrees());
}

TEST_F(TraceReplayTest, WiderListsAndRowsDecideWhereTheyWereFetched) {
  sampling_.num_top = sampling_.num_perturbed = 1;
  sampling_.top_k = 8;
  Open();
  for (int32_t i = 0; i < 12; ++i) {
    const int32_t token = TokenByRow();
    const bool undecided = !AddCandidates().has_drawn();
    if (undecided && i % 2 == 0) {
      SamplingParameters wide = sampling_;
      wide.num_top = 20;
      decode::v1::Fetched& fetched = *Add().mutable_event()->mutable_fetched();
      fetched.set_handle(kHandle);
      fetched.set_position(static_cast<int32_t>(tokens_.size()));
      const Decider decider(wide, 0, prompt_length_, tokens_, kRowSize, {});
      ToProto(decider.CandidatesFromRow(rows_(tokens_)), fetched.mutable_more());
    } else if (undecided) {
      AddRow(100);
    }
    Extend(token);
  }
  ASSERT_TRUE(Run().ok());
  int32_t wider = 0, by_row = 0;
  for (const RecordedStep& step : steps_) {
    EXPECT_TRUE(step.agrees()) << "position " << step.position;
    wider += step.source == Source::kWiderLists;
    by_row += step.source == Source::kRow;
  }
  EXPECT_GT(wider, 0);
  EXPECT_GT(by_row, 0);
}

TEST_F(TraceReplayTest, AFaultThatWentToTheRowIsNamed) {
  Open();
  AddCandidates().mutable_lists()->set_top_raw(0, 77.0f);
  const int32_t token = TokenByRow();
  AddRow(kRowSize);
  Extend(token);
  ASSERT_TRUE(Run().ok());
  EXPECT_TRUE(steps_[0].agrees());
  EXPECT_THAT(steps_[0].fault, HasSubstr("top[0]"));
}

TEST_F(TraceReplayTest, ListsOfAnOldEpochDecideNothing) {
  Open();
  AddCandidates();
  const int32_t token = TokenByRow();
  ++epoch_;
  Extend(token);
  --epoch_;
  AddCandidates().mutable_lists()->set_row_max(99.0f);
  ++epoch_;
  Generate(1);
  ASSERT_TRUE(Run().ok());
  ASSERT_EQ(steps_.size(), 2u);
  EXPECT_TRUE(steps_[0].agrees());
  EXPECT_TRUE(steps_[1].agrees());
}

TEST_F(TraceReplayTest, ContradictionsAreRefusedByRecord) {
  Open();
  Generate(2);
  const Trace good = trace_;
  trace_.records[3].mutable_command()->mutable_extend()->set_position(9);
  EXPECT_THAT(std::string(Run().message()), HasSubstr("record 4"));
  trace_ = good;
  trace_.records[3].mutable_command()->mutable_extend()->set_handle(9);
  EXPECT_THAT(std::string(Run().message()), HasSubstr("handle"));
  trace_ = good;
  trace_.records[0].mutable_command()->mutable_open()->set_tokens(0, 200);
  EXPECT_THAT(std::string(Run().message()), HasSubstr("other tokens"));
  trace_ = good;
  trace_.header.set_vocab_size(-1);
  EXPECT_THAT(std::string(Run().message()), HasSubstr("vocab_size"));
  trace_ = good;
  trace_.header.mutable_draw()->set_temperature(-1.0f);
  EXPECT_THAT(std::string(Run().message()), HasSubstr("temperature"));
}

// Whatever a file holds, reading it ends with an answer.
TEST_F(TraceReplayTest, DamagedBytesAreSurvived) {
  Open();
  Generate(3);
  pb::Record header;
  *header.mutable_header() = trace_.header;
  std::string bytes = std::string(kTraceMagic) + DelimitedRecord(header);
  for (const pb::Record& record : trace_.records) bytes += DelimitedRecord(record);
  std::mt19937 random(1);
  int32_t parsed = 0, ran = 0;
  for (int32_t i = 0; i < 3000; ++i) {
    std::string damaged = bytes;
    const size_t count = 1 + random() % 3;
    for (size_t n = 0; n < count; ++n) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    const auto trace = ParseTrace(damaged);
    if (!trace.ok()) continue;
    ++parsed;
    const auto replay = TraceReplay::Make(&*trace);
    if (!replay.ok()) continue;
    ran += (*replay)->Run([](const RecordedStep&) {}).ok();
  }
  EXPECT_GT(parsed, 1000);
  EXPECT_GT(ran, 100);
}

}  // namespace
}  // namespace tandem::test
