// Shards whose workers go away with many sessions: threads, but no network.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "services/text/frame_packer.h"
#include "services/text/shard.h"
#include "tests/services/text/session_fixture.h"

namespace tandem::text {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::chrono::seconds kPatience{30};

class Sink final : public ResponseSink {
 public:
  bool Write(v1::GenerateResponse* written) override {
    const v1::GenerateResponse& message = *written;
    std::lock_guard lock(mutex_);
    const google::protobuf::RepeatedField<int32_t>& ids = message.delta().token_ids();
    tokens_.insert(tokens_.end(), ids.begin(), ids.end());
    if (message.has_finished()) counters_ = message.finished().counters();
    changed_.notify_all();
    return full_;
  }
  void Flush() override {}
  void Finish(absl::Status status) override {
    std::lock_guard lock(mutex_);
    status_ = std::move(status);
    changed_.notify_all();
  }
  bool cancelled() const override { return false; }
  void set_full(bool full) {
    std::lock_guard lock(mutex_);
    full_ = full;
  }
  absl::Status Wait() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kPatience, [this] { return status_.has_value(); })) {
      return absl::UnknownError("it never finished");
    }
    return *status_;
  }
  std::vector<int32_t> tokens() {
    std::lock_guard lock(mutex_);
    return tokens_;
  }
  v1::Counters counters() {
    std::lock_guard lock(mutex_);
    return counters_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int32_t> tokens_;
  std::optional<absl::Status> status_;
  v1::Counters counters_;
  bool full_ = false;
};

// A worker with places for so many sessions, of one choice each, and a queue for so many more. It
// answers when it is asked to.
class SmallWorker final : public WorkerLink {
 public:
  SmallWorker(uint64_t connection, int32_t num_shards, size_t places, size_t queue)
      : connection_(connection), places_(places), queue_(queue), packer_(num_shards) {}

  std::vector<uint64_t> Send(int32_t shard, uint64_t connection,
                             std::span<decode::v1::Command> commands) override {
    EXPECT_EQ(connection, connection_);
    std::lock_guard lock(mutex_);
    if (gone_) return {};
    std::vector<uint64_t> first_handles = packer_.Add(shard, commands);
    while (!packer_.empty()) {
      decode::v1::DecodeRequest frame;
      packer_.Next(&frame);
      for (const decode::v1::Command& command : frame.commands()) ApplyLocked(command);
    }
    return first_handles;
  }
  void Drop(uint64_t connection, const absl::Status& status) override {
    EXPECT_EQ(connection, connection_);
    std::lock_guard lock(mutex_);
    dropped_ = std::string(status.message());
  }
  // Gives out what it has to say; false: nothing.
  bool Answer(const std::vector<std::unique_ptr<Shard>>& shards) {
    std::shared_ptr<const EventFrame> frame;
    {
      std::lock_guard lock(mutex_);
      while (!waiting_.empty() && decoder_.live().size() < places_) {
        AdmitLocked(waiting_.front());
        waiting_.pop_front();
      }
      if (gone_ || events_.empty()) return false;
      frame = FrameOf(std::exchange(events_, {}), packer_, shards.size());
    }
    for (size_t i = 0; i < shards.size(); ++i) {
      if (!frame->OfShard(static_cast<int32_t>(i)).empty()) shards[i]->OnEvents(connection_, frame);
    }
    return true;
  }
  void SetGone() {
    std::lock_guard lock(mutex_);
    gone_ = true;
    decoder_.Reset();
  }
  size_t live() {
    std::lock_guard lock(mutex_);
    return decoder_.live().size();
  }
  size_t waiting() {
    std::lock_guard lock(mutex_);
    return waiting_.size();
  }
  size_t longest_queue() {
    std::lock_guard lock(mutex_);
    return longest_queue_;
  }
  int64_t refused() {
    std::lock_guard lock(mutex_);
    return refused_;
  }
  std::string dropped() {
    std::lock_guard lock(mutex_);
    return dropped_;
  }
  std::vector<std::string> errors() {
    std::lock_guard lock(mutex_);
    return decoder_.errors;
  }
  test::ScriptedDecoder& decoder() { return decoder_; }

 private:
  void ApplyLocked(const decode::v1::Command& command) {
    const auto is_waiting = [&](const decode::v1::Command& open) {
      return open.open().first_handle() == command.close().handle();
    };
    if (command.has_close() && std::any_of(waiting_.begin(), waiting_.end(), is_waiting)) {
      std::erase_if(waiting_, is_waiting);
      AddClosed(command.close().handle(), decode::v1::CLOSE_REASON_DONE);
    } else if (!command.has_open()) {
      AdmitLocked(command);
    } else if (waiting_.size() + decoder_.live().size() < queue_ + places_) {
      waiting_.push_back(command);
      longest_queue_ = std::max(longest_queue_, waiting_.size());
    } else {
      ++refused_;
      AddClosed(command.open().first_handle(), decode::v1::CLOSE_REASON_REFUSED);
    }
  }
  void AddClosed(uint64_t handle, decode::v1::CloseReason reason) {
    decode::v1::Closed* closed = events_.emplace_back().mutable_closed();
    closed->set_handle(handle);
    closed->set_reason(reason);
  }
  void AdmitLocked(const decode::v1::Command& command) {
    for (auto& event : decoder_.Apply(command)) events_.push_back(std::move(event));
  }

  const uint64_t connection_;
  const size_t places_;
  const size_t queue_;
  std::mutex mutex_;
  FramePacker packer_;
  test::ScriptedDecoder decoder_{test::ScriptedDecoderOptions()};
  std::deque<decode::v1::Command> waiting_;
  std::vector<decode::v1::Event> events_;
  std::string dropped_;
  size_t longest_queue_ = 0;
  int64_t refused_ = 0;
  bool gone_ = false;
};

class ShardReplayTest : public testing::Test {
 protected:
  static constexpr int32_t kShards = 2;

  ~ShardReplayTest() override {
    shards_.clear();
    for (const auto& worker : workers_) {
      EXPECT_EQ(worker->errors(), std::vector<std::string>());
    }
  }
  void Start(const ReplayPolicy& policy = ReplayPolicy()) {
    for (int32_t i = 0; i < kShards; ++i) {
      shards_.push_back(std::make_unique<Shard>(i, &router_, policy));
    }
  }
  SmallWorker& Connect(uint64_t connection, size_t places, size_t queue) {
    workers_.push_back(std::make_unique<SmallWorker>(connection, kShards, places, queue));
    SmallWorker& worker = *workers_.back();
    model_ = ModelOf(worker.decoder().Hello(), worker.decoder().options().tokenizer);
    router_.Connected({.worker = static_cast<int32_t>(connection),
                       .connection = connection,
                       .link = &worker,
                       .model = model_});
    return worker;
  }
  void Lose(uint64_t connection) {
    workers_.at(connection - 1)->SetGone();
    router_.Lost(connection);
    for (const auto& shard : shards_) {
      shard->OnWorkerLost(connection, absl::UnavailableError("gone"));
    }
  }
  std::shared_ptr<Sink> Submit(uint64_t key) {
    auto sink = std::make_shared<Sink>();
    GenerationRequest request = Request(key);
    shards_[key % kShards]->Submit(key, std::move(request), sink);
    return sink;
  }
  GenerationRequest Request(uint64_t seed) {
    GenerationRequest request;
    request.request_id = std::to_string(seed);
    request.model = model_;
    request.prompt = BytesAsTokens("prompt " + std::to_string(seed % 7));
    request.sampling.temperature = 0.8f;
    request.sampling.presence_penalty = 0.4f;
    request.sampling.seed = seed;
    request.token_ids = true;
    request.ignore_eos = true;
    request.max_tokens = 12;
    return request;
  }
  std::vector<int32_t> TokensByRows(const GenerationRequest& request) {
    const test::RowFunction rows = test::HashRows(test::kRowSize);
    Decider decider(request.sampling, 0, static_cast<int32_t>(request.prompt.size()),
                    request.prompt, model_->vocab_size, model_->defined_bits);
    std::vector<int32_t> out;
    for (int32_t i = 0; i < *request.max_tokens; ++i) {
      out.push_back(decider.DecideFromRow(rows(decider.tokens())).token);
      decider.Append(out.back());
    }
    return out;
  }
  static bool Eventually(const std::function<bool()>& holds) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!holds()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }
  // Lets the workers answer until it holds.
  bool AnswerUntil(const std::function<bool()>& holds) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!holds()) {
      if (std::chrono::steady_clock::now() > end) return false;
      bool any = false;
      for (const auto& worker : workers_) any |= worker->Answer(shards_);
      if (!any) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

  Router router_;
  std::vector<std::unique_ptr<SmallWorker>> workers_;
  std::shared_ptr<const ServedModel> model_;
  std::vector<std::unique_ptr<Shard>> shards_;
};

TEST_F(ShardReplayTest, B125_AWorkerThatDiesWithManySessionsDoesNotFillTheQueueOfTheOther) {
  SmallWorker& first = Connect(1, 400, 400);
  Start();
  std::vector<std::shared_ptr<Sink>> sinks;
  for (uint64_t key = 0; key < 300; ++key) sinks.push_back(Submit(key));
  // All are there before any is answered: a session that is opened for the first time only now
  // would come to the other worker whatever waits there.
  ASSERT_TRUE(Eventually([&] { return first.waiting() == sinks.size(); }));
  ASSERT_TRUE(AnswerUntil([&] { return first.live() == sinks.size(); }));
  // Far too small for all of them at once.
  SmallWorker& second = Connect(2, 10, 40);
  Lose(1);
  for (size_t i = 0; i < sinks.size(); ++i) {
    ASSERT_TRUE(AnswerUntil([&] { return sinks[i]->tokens().size() == 12; })) << i;
    EXPECT_TRUE(sinks[i]->Wait().ok());
    EXPECT_EQ(sinks[i]->tokens(), TokensByRows(Request(i))) << i;
  }
  EXPECT_LE(second.longest_queue(), static_cast<size_t>(Router::kMaxReopening));
  EXPECT_EQ(second.refused(), 0);
}

TEST_F(ShardReplayTest, ARefusedReopeningIsTriedUntilThereIsRoom) {
  SmallWorker& first = Connect(1, 100, 100);
  Start();
  std::vector<std::shared_ptr<Sink>> sinks;
  for (uint64_t key = 0; key < 20; ++key) sinks.push_back(Submit(key));
  ASSERT_TRUE(AnswerUntil([&] { return first.live() == 20; }));
  SmallWorker& second = Connect(2, 2, 1);
  Lose(1);
  for (uint64_t key = 0; key < 20; ++key) {
    ASSERT_TRUE(AnswerUntil([&] { return sinks[key]->tokens().size() == 12; }));
    EXPECT_EQ(sinks[key]->tokens(), TokensByRows(Request(key)));
  }
  EXPECT_GT(second.refused(), 0);
}

TEST_F(ShardReplayTest, WhatWaitsForAWorkerGoesOnWhenOneComes) {
  SmallWorker& first = Connect(1, 100, 100);
  Start();
  const auto sink = Submit(1);
  ASSERT_TRUE(AnswerUntil([&] { return first.live() == 1; }));
  Lose(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  Connect(2, 10, 10);
  ASSERT_TRUE(AnswerUntil([&] { return sink->tokens().size() == 12; }));
  EXPECT_TRUE(sink->Wait().ok());
  EXPECT_EQ(sink->tokens(), TokensByRows(Request(1)));
  EXPECT_EQ(sink->counters().reopened(), 1);
}

TEST_F(ShardReplayTest, NothingIsOpenedAgainWithoutTries) {
  SmallWorker& first = Connect(1, 100, 100);
  Connect(2, 10, 10);
  Start({.tries = 0});
  router_.SetSuspect(2, true);
  const auto sink = Submit(1);
  ASSERT_TRUE(AnswerUntil([&] { return first.live() == 1; }));
  router_.SetSuspect(2, false);
  Lose(1);
  const absl::Status status = sink->Wait();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("tries")));
}

TEST_F(ShardReplayTest, AWorkerWithoutStepsIsDroppedIfASessionHasWaitedForItAllTheTime) {
  SmallWorker& worker = Connect(1, 100, 100);
  Start();
  const Nanos before = SteadyNow();
  const auto sink = Submit(1);
  const auto is_open = [&] { return worker.live() + worker.waiting() == 1; };
  ASSERT_TRUE(AnswerUntil(is_open));
  // It has waited less long; and the other shard has no session there.
  shards_[1]->OnNoStep(1, before);
  shards_[0]->OnNoStep(1, SteadyNow());
  const auto later = Submit(2);  // behind both in the mailboxes of its shard
  ASSERT_TRUE(AnswerUntil([&] { return later->tokens().size() == 12; }));
  EXPECT_EQ(worker.dropped(), "");
  const auto stuck = Submit(3);
  const auto reached = [&] { return worker.waiting() == 1; };
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!reached() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  ASSERT_TRUE(reached());
  shards_[1]->OnNoStep(1, SteadyNow());
  while (worker.dropped().empty() && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  EXPECT_THAT(worker.dropped(), HasSubstr("no step"));
}

TEST_F(ShardReplayTest, AClientThatDoesNotReadFreesItsPlaceAndGetsItBackWhenItReads) {
  SmallWorker& worker = Connect(1, 1, 10);
  Start();
  const auto slow = std::make_shared<Sink>();
  slow->set_full(true);
  shards_[1]->Submit(1, Request(1), slow);
  ASSERT_TRUE(AnswerUntil([&] { return worker.live() == 1; }));
  const auto other = Submit(2);
  ASSERT_TRUE(AnswerUntil([&] { return other->tokens().size() == 12; }))
      << "there was one place, and the first one has it";
  EXPECT_LT(slow->tokens().size(), 12u);
  slow->set_full(false);
  shards_[1]->Resume(1);
  ASSERT_TRUE(AnswerUntil([&] { return slow->tokens().size() == 12; }));
  EXPECT_TRUE(slow->Wait().ok());
  EXPECT_EQ(slow->tokens(), TokensByRows(Request(1)));
  EXPECT_EQ(slow->counters().reopened(), 1);
}

}  // namespace
}  // namespace tandem::text
