// What gRPC's threads, the engine thread and the dispatcher share, driven by plain threads.
// ThreadSanitizer does not see the order that gRPC itself keeps, so that it is kept from looking
// into gRPC's callbacks; here it sees everything.
#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "services/common/decode_codec.h"
#include "services/worker/backend.h"
#include "services/worker/dispatcher.h"
#include "services/worker/engine_loop.h"
#include "services/worker/mailbox.h"
#include "services/worker/stream_session.h"
#include "tests/support/process.h"
#include "tests/support/tiny_model.h"

namespace tandem {
namespace {

namespace pb = ::tandem::decode::v1;

constexpr int32_t kNewTokens = 8;
constexpr int kSessions = 3;  // of a stream

// The peer of one stream and the worker's end of it, in one thread of its own.
class LocalStream final {
 public:
  LocalStream(int64_t stream, Mailbox& mailbox, Dispatcher& dispatcher)
      : stream_(stream), dispatcher_(dispatcher) {
    outbox_ = std::make_shared<StreamOutbox>(1 << 20, [this] { Wake(); });
    const auto window = std::make_shared<ReadWindow>(1 << 20, [] {});
    session_ = std::make_unique<StreamSession>(stream, StreamLimits{512, 4, 0, 0}, mailbox, outbox_,
                                               window);
    dispatcher_.Add(stream_, outbox_);
  }
  ~LocalStream() {
    End();
    dispatcher_.Remove(stream_);
    session_.reset();
    // The dispatcher may still hold the outbox for the wake-up that it is in.
    while (outbox_.use_count() > 1) std::this_thread::yield();
  }

  // Runs its sessions to the end, or until the stream has ended. Tokens by handle.
  std::map<uint64_t, std::vector<int32_t>> Generate() {
    pb::DecodeRequest opens;
    for (uint64_t handle = 1; handle <= kSessions; ++handle) {
      pb::Open* open = opens.add_commands()->mutable_open();
      open->set_first_handle(handle);
      open->set_choices(1);
      const std::vector<int32_t> prompt = {static_cast<int32_t>(20 + handle), 70, 71, 72};
      TokensToProto(prompt, open->mutable_tokens());
      open->set_total_tokens(4);
      open->set_prompt_length(4);
      open->set_max_new(kNewTokens + 1);
      ToProto(SamplingParameters(), open->mutable_draw());
    }
    EXPECT_TRUE(session_->Handle(opens, SteadyNow()).ok());
    std::map<uint64_t, std::vector<int32_t>> tokens;
    int done = 0;
    pb::DecodeResponse frame;
    while (done < kSessions && WaitForFrame(&frame)) {
      pb::DecodeRequest answer;
      for (const pb::Event& event : frame.events()) {
        if (event.has_closed()) ++done;
        if (event.has_candidates()) Answer(event.candidates(), &tokens, &answer);
      }
      EXPECT_TRUE(session_->Handle(answer, SteadyNow()).ok());
    }
    return tokens;
  }

  // As a cancel does, from any thread.
  void End() {
    session_->End();
    outbox_->Abort(absl::CancelledError("gone"));
  }

 private:
  static void Answer(const pb::Candidates& candidates,
                     std::map<uint64_t, std::vector<int32_t>>* tokens, pb::DecodeRequest* answer) {
    std::vector<int32_t>& list = (*tokens)[candidates.handle()];
    list.push_back(static_cast<int32_t>(candidates.drawn()));
    if (list.size() == static_cast<size_t>(kNewTokens)) {
      answer->add_commands()->mutable_close()->set_handle(candidates.handle());
      return;
    }
    pb::Extend* extend = answer->add_commands()->mutable_extend();
    extend->set_handle(candidates.handle());
    extend->set_position(candidates.position());
    extend->add_tokens(candidates.drawn());
  }

  void Wake() {
    std::lock_guard lock(mutex_);
    woken_ = true;
    changed_.notify_all();
  }
  // False: the stream has ended.
  bool WaitForFrame(pb::DecodeResponse* frame) {
    while (!outbox_->NextFrame(frame)) {
      if (outbox_->ended()) return false;
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return woken_; });
      woken_ = false;
    }
    return true;
  }

  const int64_t stream_;
  Dispatcher& dispatcher_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;  // guarded by mutex_
  std::shared_ptr<StreamOutbox> outbox_;
  std::unique_ptr<StreamSession> session_;
};

// With one step in flight, and with two.
class ThreadsTest : public ::testing::TestWithParam<bool> {
 protected:
  ThreadsTest() {
    const test::TemporaryFolder folder;
    EXPECT_TRUE(test::WriteFile(folder.File("tiny.gguf"), test::TinyModel({})));
    const auto checkpoint = OpenCheckpoint(folder.File("tiny.gguf"));
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    EngineOptions options;
    options.max_sessions = 16;
    options.step_tokens = 32;
    options.kv_tokens = 2048;
    ops_ = *MakeOps("cpu", 1);
    model_ = *Model::Load(**checkpoint, options.kv_format, {.max_rows = options.step_tokens}, *ops_,
                          nullptr);
    options.drain_spread = 0;
    loop_ = std::make_unique<EngineLoop>(
        *DecodeEngine::Make(options, {}, *model_, *ops_), /*asynchronous=*/GetParam(), mailbox_,
        dispatcher_, ends_, [](const absl::Status& status) { ADD_FAILURE() << status; });
  }

  std::unique_ptr<kernels::Ops> ops_;
  std::unique_ptr<Model> model_;
  Mailbox mailbox_;
  Dispatcher dispatcher_{mailbox_};
  SessionEnds ends_;
  std::unique_ptr<EngineLoop> loop_;
};

INSTANTIATE_TEST_SUITE_P(StepsInFlight, ThreadsTest, ::testing::Bool());

TEST_P(ThreadsTest, StreamsThatComeAndGoLeaveTheTokensOfTheOthersAlone) {
  const auto expected = LocalStream(100, mailbox_, dispatcher_).Generate();
  ASSERT_EQ(expected.size(), static_cast<size_t>(kSessions));
  ASSERT_EQ(expected.at(1).size(), static_cast<size_t>(kNewTokens));
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 4; ++round) {
        LocalStream stream(10 * i + round, mailbox_, dispatcher_);
        EXPECT_EQ(stream.Generate(), expected);
      }
    });
  }
  // Streams that are cancelled from another thread while they run.
  threads.emplace_back([&] {
    for (int round = 0; round < 6; ++round) {
      LocalStream stream(200 + round, mailbox_, dispatcher_);
      std::thread canceller([&] { stream.End(); });
      stream.Generate();
      canceller.join();
    }
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(loop_->Drain(20 * kNanosPerSecond));
  const EngineLoad load = dispatcher_.load().value();
  EXPECT_EQ(load.running + load.queued, 0);
  EXPECT_EQ(load.free_pages, load.total_pages);
}

TEST_P(ThreadsTest, ADrainClosesWhatRunsAndEndsEveryStream) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      LocalStream stream(i, mailbox_, dispatcher_);
      stream.Generate();
    });
  }
  EXPECT_TRUE(loop_->Drain(20 * kNanosPerSecond));
  dispatcher_.EndAll(absl::UnavailableError("draining"));
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tandem
