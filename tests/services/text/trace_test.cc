// Generations that are recorded: what is in the files decides every token again, whatever happened
// to the workers; and recording changes nothing but that there are files.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "services/trace/trace_replay.h"
#include "tests/services/text/service_fixture.h"
#include "tests/services/text/session_fixture.h"
#include "tests/support/process.h"

namespace tandem::text {
namespace {

using testing::HasSubstr;
using Source = RecordedStep::Source;

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    out.push_back(entry.path().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

// What a trace says, decided again.
struct Told {
  Trace trace;
  std::map<int32_t, std::vector<int32_t>> tokens;  // by choice
  std::map<Source, int32_t> sources;
  int32_t disagreeing = 0;
  int32_t most_reopened = 0;
  int32_t faults = 0;
  int32_t ahead = 0;
  std::map<int32_t, std::string> texts;
};

Told Read(const std::string& path) {
  Told out;
  auto trace = ReadTrace(path);
  EXPECT_TRUE(trace.ok()) << trace.status();
  if (!trace.ok()) return out;
  out.trace = *std::move(trace);
  const auto replay = TraceReplay::Make(&out.trace);
  EXPECT_TRUE(replay.ok()) << replay.status();
  if (!replay.ok()) return out;
  const absl::Status status = (*replay)->Run([&](const RecordedStep& step) {
    out.tokens[step.choice].push_back(step.token);
    ++out.sources[step.source];
    out.disagreeing += !step.agrees();
    out.most_reopened = std::max(out.most_reopened, step.reopened);
    out.faults += !step.fault.empty();
    out.ahead += step.ran_ahead;
  });
  EXPECT_TRUE(status.ok()) << status;
  out.texts = (*replay)->texts();
  return out;
}

class TraceTest : public ServiceTest {
 protected:
  TraceTest() { options_.trace.folder = folder_.File("."); }

  static v1::GenerateRequest Sampled(int32_t max_tokens) {
    v1::GenerateRequest request = Prompt("tell me ", max_tokens);
    request.set_request_id("one");
    v1::Sampling& sampling = *request.mutable_sampling();
    sampling.set_temperature(0.9f);
    sampling.set_seed(77);
    sampling.set_repetition_penalty(1.2f);
    sampling.set_presence_penalty(0.3f);
    return request;
  }
  // The only trace, once it is whole.
  Told OnlyTrace() {
    EXPECT_TRUE(Eventually([this] {
      const std::vector<std::string> files = FilesIn(folder_.File("."));
      if (files.size() != 1) return false;
      const auto trace = ReadTrace(files[0]);
      return trace.ok() && trace->end.reason() != trace::v1::End::REASON_UNSPECIFIED;
    }));
    const std::vector<std::string> files = FilesIn(folder_.File("."));
    return files.size() == 1 ? Read(files[0]) : Told();
  }

  const test::TemporaryFolder folder_;
};

TEST_F(TraceTest, HasWhatDecidedEachTokenOfEachChoice) {
  AddWorker();
  Serve();
  v1::GenerateRequest request = Sampled(30);
  request.mutable_sampling()->set_n(2);
  request.mutable_sampling()->set_top_p(0.95f);
  const Answer answer = Ask(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  const Told told = OnlyTrace();
  EXPECT_EQ(told.trace.header.request_id(), "one");
  EXPECT_EQ(told.trace.header.draw().seed(), 77u);
  std::string prompt;
  for (const uint32_t id : told.trace.header.prompt()) {
    prompt += told.texts.at(static_cast<int32_t>(id));
  }
  EXPECT_EQ(prompt, "tell me ");
  EXPECT_THAT(told.trace.header.contents(), HasSubstr("rivate"));
  EXPECT_EQ(told.trace.end.reason(), trace::v1::End::REASON_DONE);
  EXPECT_EQ(told.tokens, answer.token_ids);
  EXPECT_EQ(told.disagreeing, 0);
  // Tokens that spell one byte each.
  for (const int32_t token : answer.token_ids.at(0)) {
    ASSERT_EQ(told.texts.count(token), 1u) << token;
    if (token < 256) {
      EXPECT_EQ(told.texts.at(token), std::string(1, static_cast<char>(token)));
    }
  }
}

TEST_F(TraceTest, SaysWhereTheWorkerRanAhead) {
  AddWorker();
  Serve();
  ASSERT_TRUE(Ask(Sampled(30)).status.ok());
  // The scripted worker sends all that it may at once.
  EXPECT_GT(OnlyTrace().ahead, 0);
}

TEST_F(TraceTest, FollowsAChoiceFromWorkerToWorker) {
  AddWorker({.step_time = std::chrono::milliseconds(5)});
  Serve();
  v1::GenerateRequest request = Sampled(100);
  request.mutable_sampling()->set_n(2);
  int64_t deltas = 0;
  const Answer answer = Ask(request, [&](grpc::ClientContext&, const v1::GenerateResponse& m) {
    deltas += m.has_delta();
    if (m.has_delta() && (deltas == 10 || deltas == 30)) workers_[0]->DropStreams();
  });
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  const Told told = OnlyTrace();
  EXPECT_EQ(told.tokens, answer.token_ids);
  EXPECT_EQ(told.disagreeing, 0);
  EXPECT_GE(told.most_reopened, 1);
}

TEST_F(TraceTest, HasFetchedListsAndTheRowsOfFaults) {
  int32_t sent = 0;
  AddWorker({.decoder = {.tamper = [&sent](decode::v1::Candidates* event) {
               if (++sent == 6) event->mutable_lists()->set_top_raw(0, 50.0f);
             }}});
  Serve();
  v1::GenerateRequest request = Sampled(20);
  request.mutable_sampling()->set_temperature(3.0f);
  request.mutable_sampling()->set_min_p(0.1f);
  const Answer answer = Ask(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  const Told told = OnlyTrace();
  EXPECT_EQ(told.tokens, answer.token_ids);
  EXPECT_EQ(told.disagreeing, 0);
  EXPECT_EQ(told.faults, 1);
  EXPECT_GT(told.sources.at(Source::kLists), 0);
  EXPECT_GT(told.sources.at(Source::kRow), 0);
}

TEST_F(TraceTest, ARequestGoesOnWhenItsTraceIsFull) {
  options_.trace.bytes = kMinTraceFile;
  AddWorker();
  Serve();
  const Answer answer = Ask(Sampled(300));
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.token_ids.at(0).size(), 300u);
  const Told told = OnlyTrace();
  EXPECT_EQ(told.trace.end.reason(), trace::v1::End::REASON_BYTES);
  EXPECT_LE(std::filesystem::file_size(FilesIn(folder_.File("."))[0]),
            static_cast<uint64_t>(kMinTraceFile));
  EXPECT_EQ(told.disagreeing, 0);
  const std::vector<int32_t>& some = told.tokens.at(0);
  EXPECT_GT(some.size(), 0u);
  EXPECT_LT(some.size(), 300u);
  EXPECT_TRUE(std::equal(some.begin(), some.end(), answer.token_ids.at(0).begin()));
}

TEST_F(TraceTest, TokensAreTheSameWithoutATrace) {
  AddWorker();
  Serve();
  const Answer recorded = Ask(Sampled(30));
  OnlyTrace();
  options_.trace.folder.clear();
  stub_.reset();
  channel_.reset();
  server_.reset();
  Serve();
  EXPECT_EQ(Ask(Sampled(30)), recorded);
  EXPECT_EQ(FilesIn(folder_.File(".")).size(), 1u);
}

TEST_F(TraceTest, KeepsTheNewestFilesOnly) {
  options_.trace.requests = 3;
  AddWorker();
  Serve();
  for (int i = 0; i < 6; ++i) {
    v1::GenerateRequest request = Sampled(2);
    request.set_request_id("number/" + std::to_string(i));
    ASSERT_TRUE(Ask(request).status.ok());
  }
  ASSERT_TRUE(Eventually([this] {
    const std::vector<std::string> files = FilesIn(folder_.File("."));
    return std::any_of(files.begin(), files.end(), [](const std::string& file) {
      return file.find("number_5") != std::string::npos;
    });
  }));
  const std::vector<std::string> files = FilesIn(folder_.File("."));
  ASSERT_EQ(files.size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_THAT(files[i], HasSubstr("number_" + std::to_string(i + 3)));
}

TEST_F(TraceTest, ClientsThatLeaveAndRequestsThatFailAreRecordedToTheirEnd) {
  AddWorker({.decoder = {.refuse = "there is no room"}});
  Serve();
  EXPECT_FALSE(Ask(Sampled(5)).status.ok());
  const Told told = OnlyTrace();
  EXPECT_EQ(told.trace.end.reason(), trace::v1::End::REASON_DONE);
  EXPECT_THAT(told.trace.end.detail(), HasSubstr("there is no room"));
  EXPECT_TRUE(told.tokens.empty());
}

TEST_F(TraceTest, FlagsOutOfTheirRangeAreRefusedByName) {
  AddWorker();
  options_.trace.folder = folder_.File("none");
  EXPECT_THAT(std::string(TextServer::Start(options_).status().message()),
              HasSubstr("--trace-dir"));
  options_.trace.folder = folder_.File(".");
  options_.trace.requests = 0;
  EXPECT_THAT(std::string(TextServer::Start(options_).status().message()),
              HasSubstr("--trace-requests"));
  options_.trace.requests = 1;
  options_.trace.bytes = 10;
  EXPECT_THAT(std::string(TextServer::Start(options_).status().message()),
              HasSubstr("--trace-bytes"));
}

// The recorder alone.
class RecorderTest : public SessionTest {
 protected:
  std::unique_ptr<TraceRecorder> Start(TraceOptions options) {
    options.folder = folder_.File(".");
    auto recorder = TraceRecorder::Start(options);
    EXPECT_TRUE(recorder.ok()) << recorder.status();
    return *std::move(recorder);
  }
  static decode::v1::Event LongEvent() {
    decode::v1::Event event;
    event.mutable_closed()->set_detail(std::string(3000, 'x'));
    return event;
  }
  const test::TemporaryFolder folder_;
};

TEST_F(RecorderTest, WhatDoesNotFitIntoTheQueueEndsTheTraceWithAMarker) {
  auto recorder = Start({.queue_bytes = 2000});
  auto trace = recorder->Begin(Request(), 0);
  ASSERT_NE(trace, nullptr);
  trace->OnEvent(1, LongEvent(), 1);
  trace->OnLost(1, absl::UnavailableError("not recorded any more"), 2);
  trace->End(absl::OkStatus());
  trace.reset();
  recorder.reset();
  const auto files = FilesIn(folder_.File("."));
  ASSERT_EQ(files.size(), 1u);
  const auto read = ReadTrace(files[0]);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->end.reason(), trace::v1::End::REASON_OVERFLOW);
  for (const trace::v1::Record& record : read->records) EXPECT_TRUE(record.has_texts());
}

TEST_F(RecorderTest, NoMoreAreBegunThanMayBeRecordedAtOnce) {
  auto recorder = Start({.requests = 2});
  auto first = recorder->Begin(Request(), 0);
  auto second = recorder->Begin(Request(), 0);
  EXPECT_NE(second, nullptr);
  EXPECT_EQ(recorder->Begin(Request(), 0), nullptr);
  first->End(absl::OkStatus());
  EXPECT_TRUE(first != nullptr);
  first.reset();
  std::unique_ptr<RequestTrace> third;
  while (third == nullptr) third = recorder->Begin(Request(), 0);  // once the first is closed
  second.reset();
  third.reset();
  recorder.reset();
  EXPECT_EQ(FilesIn(folder_.File(".")).size(), 2u);
}

TEST_F(RecorderTest, ATraceWithoutAnEndReadsAsCutOff) {
  auto recorder = Start({});
  auto trace = recorder->Begin(Request(), 0);
  trace->OnEvent(1, LongEvent(), 1);
  trace.reset();
  recorder.reset();
  const auto read = ReadTrace(FilesIn(folder_.File("."))[0]);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->end.reason(), trace::v1::End::REASON_UNSPECIFIED);
  EXPECT_EQ(read->records.back().event().closed().detail().size(), 3000u);
}

TEST_F(RecorderTest, AFolderThatIsGoneCostsTheTraceAlone) {
  auto recorder = Start({});
  std::filesystem::remove_all(folder_.File(""));
  auto trace = recorder->Begin(Request(), 0);
  ASSERT_NE(trace, nullptr);
  trace->OnEvent(1, LongEvent(), 1);
  trace->End(absl::OkStatus());
  trace.reset();
  recorder.reset();
  EXPECT_FALSE(std::filesystem::exists(folder_.File("")));
}

}  // namespace
}  // namespace tandem::text
