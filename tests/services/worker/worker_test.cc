// The worker over real streams: generation, refusals, isolation, limits.
#include "services/worker/worker.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "engine/text/tokenizer_data.h"
#include "services/common/channel.h"
#include "services/common/decode_codec.h"
#include "tests/services/worker/decode_client.h"
#include "tests/services/worker/live_worker.h"

namespace tandem {
namespace {

namespace pb = ::tandem::decode::v1;
using test::DecodeClient;
using test::LiveWorker;
using ::testing::HasSubstr;

const std::vector<int32_t> kPrompt = {5, 70, 71, 72, 73, 74, 75};

bool IsIdle(const pb::Load& load) {
  return load.running() == 0 && load.queued() == 0 && load.free_pages() == load.total_pages();
}

// What is wrong with the frame ends the stream with this.
grpc::Status EndOf(DecodeClient& client) {
  client.Send();
  return client.Finish();
}

// One worker for all: a test leaves no session behind.
class WorkerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { worker_ = new LiveWorker; }
  static void TearDownTestSuite() {
    delete worker_;
    worker_ = nullptr;
  }
  void TearDown() override {
    DecodeClient observer(worker_->address());
    EXPECT_TRUE(observer.WaitForLoad(IsIdle))
        << "a session outlives its stream; the observer's own ended with: "
        << observer.Finish().error_message();
  }
  static LiveWorker* worker_;
};
LiveWorker* WorkerTest::worker_ = nullptr;

TEST_F(WorkerTest, HelloIsTheFirstEventAndNamesTheLimits) {
  DecodeClient client(worker_->address());
  const auto frame = client.ReadFrame();
  ASSERT_TRUE(frame.has_value());
  ASSERT_GE(frame->events_size(), 1);
  ASSERT_TRUE(frame->events(0).has_hello());
  const pb::Hello& hello = frame->events(0).hello();
  EXPECT_EQ(hello.protocol_major(), 1u);
  EXPECT_EQ(hello.model(), "tiny");
  EXPECT_EQ(hello.architecture(), "llama");
  EXPECT_EQ(hello.vocab_size(), test::TinyVocabSize());
  EXPECT_EQ(hello.context_length(), 512);
  EXPECT_EQ(hello.page_tokens(), 64);
  EXPECT_GT(hello.total_pages(), 0);
  EXPECT_EQ(hello.max_sessions(), 8);
  EXPECT_EQ(hello.max_run_ahead(), 8);
  EXPECT_EQ(hello.max_drafts(), 8);
  EXPECT_THAT(hello.features(), testing::Contains(kDraftsFeature));
  EXPECT_THAT(hello.features(), testing::Contains(kPromptLogprobsFeature));
  EXPECT_THAT(hello.features(), testing::Contains(kRequestIdFeature));
  EXPECT_EQ(hello.max_top(), kernels::kMaxTop);
  EXPECT_EQ(hello.max_perturbed(), kernels::kMaxPerturbed);
  EXPECT_EQ(hello.max_choices(), 16);
  EXPECT_EQ(hello.max_salt_bytes(), 64);
  EXPECT_EQ(hello.max_retain().seconds(), 600);
  EXPECT_EQ(hello.weights_fingerprint().size(), 32u);
  EXPECT_EQ(hello.tokenizer_fingerprint(), TokenizerFingerprint(worker_->tokenizer()));
  EXPECT_EQ(hello.numerics_fingerprint().size(), 32u);
  EXPECT_EQ(hello.incarnation().size(), 32u);
  DecodeClient second(worker_->address());
  EXPECT_EQ(second.ReadFrame()->events(0).hello().incarnation(), hello.incarnation());
}

TEST_F(WorkerTest, GreedyTokensOverAStreamAreTheEnginesOwn) {
  DecodeClient client(worker_->address());
  const std::vector<int32_t> tokens = client.Generate(1, kPrompt, 24);
  EXPECT_EQ(tokens, worker_->GenerateWithoutService(kPrompt, 24));
}

TEST_F(WorkerTest, EveryHandleIsOpenedBeforeAndClosedAfterEverythingElseAndOnce) {
  DecodeClient client(worker_->address());
  client.AddOpen(1, kPrompt)->set_choices(3);
  client.Send();
  std::map<uint64_t, std::string> seen;
  bool extended = false;
  while (const auto event = client.ReadEvent([](const pb::Event& e) { return !e.has_hello(); })) {
    if (event->has_opened()) seen[event->opened().handle()] += "O";
    if (event->has_candidates()) {
      seen[event->candidates().handle()] += "C";
      client.AddClose(event->candidates().handle());
      client.Send();
      extended = true;
    }
    if (event->has_closed()) {
      EXPECT_EQ(event->closed().reason(), pb::CLOSE_REASON_DONE);
      seen[event->closed().handle()] += "X";
    }
    if (seen.size() == 3 && seen[1].back() == 'X' && seen[2].back() == 'X' &&
        seen[3].back() == 'X') {
      client.HalfClose();
    }
  }
  EXPECT_TRUE(extended);
  EXPECT_EQ(seen, (std::map<uint64_t, std::string>{{1, "OCX"}, {2, "OCX"}, {3, "OCX"}}));
  EXPECT_TRUE(client.Finish().ok()) << "a half-closed stream ends well";
}

TEST_F(WorkerTest, APromptInPiecesGivesTheTokensOfThePromptAsAWhole) {
  DecodeClient client(worker_->address());
  pb::Open* open = client.AddOpen(1, kPrompt);
  open->mutable_tokens()->Truncate(2);
  pb::OpenMore* more = client.frame().add_commands()->mutable_open_more();
  more->set_first_handle(1);
  TokensToProto(std::vector<int32_t>(kPrompt.begin() + 2, kPrompt.end()), more->mutable_tokens());
  client.Send();
  const auto pieces = client.ReadCandidates(1);
  ASSERT_TRUE(pieces.has_value());
  client.AddOpen(2, kPrompt);
  client.Send();
  const auto whole = client.ReadCandidates(2);
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(pieces->lists().SerializeAsString(), whole->lists().SerializeAsString());
}

TEST_F(WorkerTest, AFetchedRowHasEveryLogitAndTheListsAreItsHead) {
  DecodeClient client(worker_->address());
  client.AddOpen(1, kPrompt);
  client.Send();
  const auto candidates = client.ReadCandidates(1);
  ASSERT_TRUE(candidates.has_value());
  client.AddFetchRow(1, candidates->position());
  client.Send();
  const std::vector<float> row = client.ReadRow(1);
  ASSERT_EQ(row.size(), static_cast<size_t>(test::TinyVocabSize()));
  EXPECT_EQ(row[candidates->lists().top_ids(0)], candidates->lists().top_raw(0));
}

TEST_F(WorkerTest, ABadCommandClosesItsSessionAndTheStreamGoesOn) {
  DecodeClient client(worker_->address());
  std::map<uint64_t, std::string> details;
  const auto read_closed = [&](size_t count) {
    while (details.size() < count) {
      const auto event = client.ReadEvent([](const pb::Event& e) { return e.has_closed(); });
      ASSERT_TRUE(event.has_value());
      EXPECT_EQ(event->closed().reason(), pb::CLOSE_REASON_REFUSED);
      details[event->closed().handle()] = event->closed().detail();
    }
  };
  client.AddOpen(1, {5, test::TinyVocabSize()});
  client.AddOpen(2, kPrompt)->mutable_draw()->set_top_p(1.5f);
  client.AddOpen(3, kPrompt)->mutable_draw()->set_num_top(kernels::kMaxTop + 1);
  client.AddOpen(4, kPrompt)->set_run_ahead(9);
  client.Send();
  read_closed(4);
  EXPECT_THAT(details[1], HasSubstr("tokens[1]"));
  EXPECT_THAT(details[2], HasSubstr("top_p"));
  EXPECT_THAT(details[3], HasSubstr("num_top"));
  EXPECT_THAT(details[4], HasSubstr("run_ahead"));

  for (uint64_t handle : {5, 6, 7}) {
    client.AddOpen(handle, kPrompt);
    client.Send();
    ASSERT_TRUE(client.ReadCandidates(handle).has_value());
  }
  client.AddExtend(5, 7, 0, {-1});
  client.AddExtend(6, 100, 0, {5});
  client.AddFetchRow(7, 9999);
  client.Send();
  read_closed(7);
  EXPECT_THAT(details[5], HasSubstr("2147483647"));
  EXPECT_THAT(details[6], HasSubstr("position"));
  EXPECT_THAT(details[7], HasSubstr("position"));
  EXPECT_EQ(client.Generate(8, kPrompt, 3).size(), 3u);
}

TEST_F(WorkerTest, B127_MoreChoicesThanTheLimitAreRefusedAtOnce) {
  DecodeClient client(worker_->address());
  client.AddOpen(1, kPrompt)->set_choices(512);
  client.Send();
  const auto closed = client.ReadClosed(1);
  ASSERT_TRUE(closed.has_value());
  EXPECT_EQ(closed->reason(), pb::CLOSE_REASON_REFUSED);
  EXPECT_THAT(closed->detail(), HasSubstr("512"));
}

TEST_F(WorkerTest, ABrokenFrameEndsTheStreamAndFreesItsSessions) {
  DecodeClient falling(worker_->address());
  falling.AddOpen(5, kPrompt);
  falling.AddOpen(5, kPrompt);
  EXPECT_EQ(EndOf(falling).error_code(), grpc::StatusCode::INVALID_ARGUMENT);

  DecodeClient later(worker_->address());
  later.AddOpen(5, kPrompt);
  later.Send();
  ASSERT_TRUE(later.ReadCandidates(5).has_value());
  later.AddOpen(4, kPrompt);
  EXPECT_EQ(EndOf(later).error_code(), grpc::StatusCode::INVALID_ARGUMENT);

  DecodeClient unset(worker_->address());
  unset.frame().add_commands();
  EXPECT_EQ(EndOf(unset).error_code(), grpc::StatusCode::UNIMPLEMENTED);

  DecodeClient unset_fetch(worker_->address());
  unset_fetch.AddOpen(1, kPrompt);
  unset_fetch.frame().add_commands()->mutable_fetch()->set_handle(1);
  EXPECT_EQ(EndOf(unset_fetch).error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(WorkerTest, AMessageThatIsNoFrameEndsTheStreamWithInvalidArgument) {
  ChannelOptions options;
  options.target = worker_->address();
  grpc::GenericStub stub(*MakeChannel(options));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  const grpc::Slice slice(std::string("\xff\xff\xff\xff"));
  const grpc::ByteBuffer garbage(&slice, 1);
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(&context, "/tandem.decode.v1.DecodeWorker/Decode", &queue);
  const auto wait = [&] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  call->StartCall(nullptr);
  ASSERT_TRUE(wait());
  call->Write(garbage, nullptr);
  ASSERT_TRUE(wait());
  grpc::ByteBuffer answer;
  do {
    call->Read(&answer, nullptr);
  } while (wait());
  grpc::Status status;
  call->Finish(&status, nullptr);
  wait();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
}

TEST_F(WorkerTest, B143_AFrameAtTheLimitIsTakenAndOneByteMoreEndsTheStream) {
  const auto pad_to = [](DecodeClient& client, size_t bytes) {
    // A field that this version does not know, as a newer peer might send.
    pb::DecodeRequest& frame = client.frame();
    std::string* padding =
        frame.GetReflection()->MutableUnknownFields(&frame)->AddLengthDelimited(1000);
    padding->resize(bytes - frame.ByteSizeLong() - 3, 'x');
    padding->resize(padding->size() + bytes - frame.ByteSizeLong(), 'x');
    ASSERT_EQ(frame.ByteSizeLong(), bytes);
  };
  DecodeClient client(worker_->address());
  client.AddOpen(1, kPrompt);
  pad_to(client, kMaxFrameBytes);
  client.Send();
  EXPECT_TRUE(client.ReadCandidates(1).has_value());
  client.AddClose(1);
  pad_to(client, kMaxFrameBytes + 1);
  EXPECT_EQ(EndOf(client).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(WorkerTest, B117_ACancelledStreamFreesItsSessions) {
  DecodeClient observer(worker_->address());
  DecodeClient client(worker_->address());
  for (uint64_t handle = 1; handle <= 4; ++handle) client.AddOpen(handle, kPrompt);
  client.Send();
  ASSERT_TRUE(client.ReadCandidates(4).has_value());
  ASSERT_TRUE(observer.WaitForLoad([](const pb::Load& load) { return load.running() == 4; }));
  client.Cancel();
  EXPECT_EQ(client.Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(observer.WaitForLoad(IsIdle));
}

TEST_F(WorkerTest, AHalfClosedStreamFreesItsSessions) {
  DecodeClient client(worker_->address());
  client.AddOpen(1, kPrompt);
  client.Send();
  ASSERT_TRUE(client.ReadCandidates(1).has_value());
  client.HalfClose();
  EXPECT_TRUE(client.Finish().ok());
}

TEST_F(WorkerTest, TwoStreamsWithTheSameHandlesDoNotTouchEachOther) {
  const std::vector<int32_t> other_prompt = {9, 80, 81};
  DecodeClient one(worker_->address());
  DecodeClient two(worker_->address());
  one.AddOpen(1, kPrompt);
  one.Send();
  two.AddOpen(1, other_prompt);
  two.Send();
  const auto first = one.ReadCandidates(1);
  const auto second = two.ReadCandidates(1);
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_EQ(first->position(), 7);
  EXPECT_EQ(second->position(), 3);
  one.Cancel();
  one.Finish();
  two.AddExtend(1, 3, 0, {static_cast<int32_t>(second->drawn())});
  two.Send();
  const auto next = two.ReadCandidates(1);
  ASSERT_TRUE(next.has_value()) << "the other stream's end closed this session";
  const std::vector<int32_t> expected = worker_->GenerateWithoutService(other_prompt, 2);
  EXPECT_EQ(static_cast<int32_t>(second->drawn()), expected[0]);
  EXPECT_EQ(static_cast<int32_t>(next->drawn()), expected[1]);
}

TEST_F(WorkerTest, B147_TimeThatRunsOutExpiresTheSessionWithoutAnyCommand) {
  DecodeClient client(worker_->address());
  client.AddOpen(1, kPrompt)->mutable_time_left()->set_nanos(0);
  client.AddOpen(2, kPrompt)->mutable_time_left()->set_nanos(300'000'000);
  client.Send();
  const auto before = client.ReadClosed(1);
  ASSERT_TRUE(before.has_value());
  EXPECT_EQ(before->reason(), pb::CLOSE_REASON_EXPIRED) << "no step is spent on it";
  const auto closed = client.ReadClosed(2);
  ASSERT_TRUE(closed.has_value());
  EXPECT_EQ(closed->reason(), pb::CLOSE_REASON_EXPIRED);
}

TEST_F(WorkerTest, AQuietStreamStillGetsFrames) {
  DecodeClient client(worker_->address());
  client.ReadFrame();
  for (int i = 0; i < 3; ++i) {
    const auto frame = client.ReadFrame();
    ASSERT_TRUE(frame.has_value());
    EXPECT_EQ(frame->events_size(), 0);
    EXPECT_TRUE(frame->has_load());
  }
}

TEST_F(WorkerTest, APeerThatDoesNotReadHoldsUpNobodyAndIsEnded) {
  DecodeClient silent(worker_->address());
  silent.AddOpen(1, kPrompt);
  silent.Send();
  ASSERT_TRUE(silent.ReadCandidates(1).has_value());
  DecodeClient observer(worker_->address());
  ASSERT_TRUE(observer.WaitForLoad([](const pb::Load& load) { return load.running() == 1; }));
  // Refusals, which cost the worker nothing, until more of them wait than it keeps for one peer.
  uint64_t handle = 1;
  bool open = true;
  for (int i = 0; i < 200 && open; ++i) {
    for (int j = 0; j < 1000; ++j) silent.AddOpen(++handle, {1})->set_run_ahead(9);
    open = silent.Send();
  }
  EXPECT_TRUE(observer.WaitForLoad(IsIdle))
      << "its sessions are freed though it still does not read";
  EXPECT_EQ(observer.Generate(1, kPrompt, 8), worker_->GenerateWithoutService(kPrompt, 8));
  const grpc::Status status = silent.Finish();
  EXPECT_TRUE(status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED ||
              status.error_code() == grpc::StatusCode::CANCELLED)
      << status.error_code() << " " << status.error_message();
}

TEST_F(WorkerTest, TheTokenizerArrivesAsTheCheckpointHasIt) {
  ChannelOptions options;
  options.target = worker_->address();
  options.max_receive_bytes = kMaxFrameBytes;
  const auto stub = pb::DecodeWorker::NewStub(*MakeChannel(options));
  grpc::ClientContext context;
  const auto stream = stub->GetTokenizer(&context, pb::GetTokenizerRequest());
  pb::GetTokenizerResponse response;
  std::string bytes;
  while (stream->Read(&response)) bytes += response.chunk();
  ASSERT_TRUE(stream->Finish().ok());
  pb::TokenizerData message;
  ASSERT_TRUE(message.ParseFromString(bytes));
  const absl::StatusOr<TokenizerData> tokenizer = FromProto(message);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(TokenizerFingerprint(*tokenizer), worker_->hello().tokenizer_fingerprint());
}

TEST(WorkerWithALargeTokenizer, SendsItInChunks) {
  LiveWorker::Options options;
  options.chat_template = "{# " + std::string(700'000, 'x') + " #}";
  LiveWorker worker(options);
  ChannelOptions channel;
  channel.target = worker.address();
  channel.max_receive_bytes = kMaxFrameBytes;
  const auto stub = pb::DecodeWorker::NewStub(*MakeChannel(channel));
  grpc::ClientContext context;
  const auto stream = stub->GetTokenizer(&context, pb::GetTokenizerRequest());
  pb::GetTokenizerResponse response;
  std::string bytes;
  int chunks = 0;
  int64_t total = 0;
  while (stream->Read(&response)) {
    if (chunks++ == 0) {
      total = response.total_bytes();
      EXPECT_EQ(response.fingerprint(), worker.hello().tokenizer_fingerprint());
    }
    bytes += response.chunk();
  }
  ASSERT_TRUE(stream->Finish().ok());
  EXPECT_GE(chunks, 4);
  EXPECT_EQ(static_cast<int64_t>(bytes.size()), total);
  pb::TokenizerData message;
  ASSERT_TRUE(message.ParseFromString(bytes));
  EXPECT_EQ(message.chat_template(), options.chat_template);
}

TEST(WorkerWithOnePlace, B125_RefusesAtOnceWhatItCannotQueue) {
  LiveWorker::Options options;
  options.engine.max_sessions = 1;
  options.engine.max_queued = 1;
  LiveWorker worker(options);
  DecodeClient client(worker.address());
  client.AddOpen(1, kPrompt);
  client.Send();
  ASSERT_TRUE(client.ReadCandidates(1).has_value());
  client.AddOpen(2, kPrompt);
  client.AddOpen(3, kPrompt);
  client.Send();
  const auto closed = client.ReadClosed(3);
  ASSERT_TRUE(closed.has_value());
  EXPECT_EQ(closed->reason(), pb::CLOSE_REASON_REFUSED);
  EXPECT_THAT(closed->detail(), HasSubstr("queue"));
  client.AddClose(1);
  client.Send();
  EXPECT_TRUE(client.ReadCandidates(2).has_value()) << "what was queued gets the free place";
}

}  // namespace
}  // namespace tandem
