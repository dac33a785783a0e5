// Shards with a link whose worker answers at once: threads, but no network.
#include "services/text/shard.h"

#include <gmock/gmock.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "services/text/frame_packer.h"
#include "tests/services/text/session_fixture.h"

namespace tandem::text {
namespace {

using testing::HasSubstr;

constexpr uint64_t kConnection = 7;
constexpr std::chrono::seconds kPatience{30};
constexpr ReplayPolicy kNoReplay{.tries = 0};

// Collects one request's answer. Full whenever told to be.
class Sink final : public ResponseSink {
 public:
  bool Write(v1::GenerateResponse* written) override {
    const v1::GenerateResponse& message = *written;
    std::lock_guard lock(mutex_);
    if (message.has_delta()) {
      for (const int32_t id : message.delta().token_ids())
        tokens_[message.delta().choice()].push_back(id);
      text_ += message.delta().text();
    }
    if (message.has_finished()) reasons_.push_back(message.finished().reason());
    changed_.notify_all();
    return full_;
  }
  void Flush() override {}
  void Finish(absl::Status status) override {
    std::lock_guard lock(mutex_);
    EXPECT_FALSE(status_.has_value()) << "finished twice";
    status_ = std::move(status);
    changed_.notify_all();
  }
  bool cancelled() const override {
    std::lock_guard lock(mutex_);
    return cancelled_;
  }
  void set_cancelled() {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
  }
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
  bool WaitForTokens(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return tokens_[0].size() >= count; });
  }
  std::vector<int32_t> tokens(int32_t choice = 0) {
    std::lock_guard lock(mutex_);
    return tokens_[choice];
  }
  std::vector<v1::FinishReason> reasons() {
    std::lock_guard lock(mutex_);
    return reasons_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int32_t, std::vector<int32_t>> tokens_;
  std::string text_;
  std::vector<v1::FinishReason> reasons_;
  std::optional<absl::Status> status_;
  bool full_ = false;
  bool cancelled_ = false;
};

// A worker on the other end of a mutex. Its events can be held back.
class Link final : public WorkerLink {
 public:
  explicit Link(int32_t num_shards) : packer_(num_shards) {}

  std::vector<uint64_t> Send(int32_t shard, uint64_t connection,
                             std::span<decode::v1::Command> commands) override {
    EXPECT_EQ(connection, kConnection);
    std::lock_guard lock(mutex_);
    if (gone_) return {};
    ++sends_;
    std::vector<uint64_t> first_handles = packer_.Add(shard, commands);
    while (!packer_.empty()) {
      decode::v1::DecodeRequest frame;
      packer_.Next(&frame);
      for (const decode::v1::Command& command : frame.commands()) {
        for (decode::v1::Event& event : decoder.Apply(command)) held_.push_back(std::move(event));
      }
    }
    if (!hold_) ReleaseLocked();
    return first_handles;
  }
  void Drop(uint64_t, const absl::Status&) override { ADD_FAILURE() << "this worker is well"; }
  void Hold(bool hold) {
    std::lock_guard lock(mutex_);
    hold_ = hold;
    if (!hold) ReleaseLocked();
  }
  void SetGone() {
    std::lock_guard lock(mutex_);
    gone_ = true;
  }
  size_t live() {
    std::lock_guard lock(mutex_);
    return decoder.live().size();
  }
  int64_t extends() {
    std::lock_guard lock(mutex_);
    return decoder.extends;
  }
  std::vector<std::string> errors() {
    std::lock_guard lock(mutex_);
    return decoder.errors;
  }

  std::vector<Shard*> shards;
  test::ScriptedDecoder decoder{test::ScriptedDecoderOptions()};

 private:
  void ReleaseLocked() {
    const auto frame = FrameOf(std::exchange(held_, {}), packer_, shards.size());
    for (size_t i = 0; i < shards.size(); ++i) {
      if (!frame->OfShard(static_cast<int32_t>(i)).empty()) shards[i]->OnEvents(kConnection, frame);
    }
  }

  std::mutex mutex_;
  FramePacker packer_;
  std::vector<decode::v1::Event> held_;
  int64_t sends_ = 0;
  bool hold_ = false;
  bool gone_ = false;
};

class ShardTest : public testing::TestWithParam<int32_t> {
 protected:
  ShardTest() : link_(GetParam()) {
    model_ = ModelOf(link_.decoder.Hello(), link_.decoder.options().tokenizer);
    for (int32_t i = 0; i < GetParam(); ++i) {
      shards_.push_back(std::make_unique<Shard>(i, &router_, kNoReplay));
      link_.shards.push_back(shards_.back().get());
    }
    router_.Connected({.worker = 0, .connection = kConnection, .link = &link_, .model = model_});
  }
  ~ShardTest() override {
    shards_.clear();
    EXPECT_EQ(link_.errors(), std::vector<std::string>());
  }

  GenerationRequest Request(uint64_t seed) {
    GenerationRequest request;
    request.request_id = std::to_string(seed);
    request.model = model_;
    request.prompt = BytesAsTokens("prompt " + std::to_string(seed % 7));
    request.sampling.temperature = 0.1f * static_cast<float>(seed % 12);
    request.sampling.seed = seed;
    request.token_ids = true;
    request.ignore_eos = true;
    request.max_tokens = 20;
    return request;
  }
  std::vector<int32_t> TokensByRows(const GenerationRequest& request, int32_t choice) {
    const test::RowFunction rows = test::HashRows(test::kRowSize);
    Decider decider(request.sampling, static_cast<uint32_t>(choice),
                    static_cast<int32_t>(request.prompt.size()), request.prompt, model_->vocab_size,
                    model_->defined_bits);
    std::vector<int32_t> out;
    for (int32_t i = 0; i < *request.max_tokens; ++i) {
      out.push_back(decider.DecideFromRow(rows(decider.tokens())).token);
      decider.Append(out.back());
    }
    return out;
  }
  Shard& shard(uint64_t key) { return *shards_[key % shards_.size()]; }
  bool Eventually(const std::function<bool()>& holds) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!holds()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

  Router router_;
  Link link_;
  std::shared_ptr<const ServedModel> model_;
  std::vector<std::unique_ptr<Shard>> shards_;
};

INSTANTIATE_TEST_SUITE_P(Shards, ShardTest, testing::Values(1, 2, 3));

TEST_P(ShardTest, B041_B043_B111_ManyAtOnceGiveWhatEachGivesAlone) {
  std::vector<std::shared_ptr<Sink>> sinks;
  for (uint64_t key = 0; key < 40; ++key) {
    sinks.push_back(std::make_shared<Sink>());
    GenerationRequest request = Request(key);
    request.choices = 1 + static_cast<int32_t>(key % 3);
    shard(key).Submit(key, std::move(request), sinks.back());
  }
  for (uint64_t key = 0; key < 40; ++key) {
    ASSERT_TRUE(sinks[key]->Wait().ok());
    for (int32_t choice = 0; choice < 1 + static_cast<int32_t>(key % 3); ++choice) {
      EXPECT_EQ(sinks[key]->tokens(choice), TokensByRows(Request(key), choice)) << key;
    }
  }
  EXPECT_TRUE(Eventually([this] { return link_.live() == 0; }));
}

TEST_P(ShardTest, B113_B115_CancelsAmongThemChangeNothingForTheOthers) {
  std::vector<std::shared_ptr<Sink>> sinks;
  for (uint64_t key = 0; key < 60; ++key) {
    sinks.push_back(std::make_shared<Sink>());
    shard(key).Submit(key, Request(key), sinks.back());
    if (key >= 5 && key % 2 == 0) shard(key - 5).Cancel(key - 5);
  }
  int whole = 0;
  for (uint64_t key = 0; key < 60; ++key) {
    const absl::Status status = sinks[key]->Wait();
    const std::vector<int32_t> expected = TokensByRows(Request(key), 0);
    const std::vector<int32_t> tokens = sinks[key]->tokens();
    // Also what a cancelled one gave is its own.
    EXPECT_EQ(tokens, std::vector<int32_t>(expected.begin(), expected.begin() + tokens.size()));
    EXPECT_TRUE(status.ok() ? tokens == expected : absl::IsCancelled(status)) << status;
    whole += status.ok();
  }
  EXPECT_GE(whole, 30);
  EXPECT_TRUE(Eventually([this] { return link_.live() == 0; }));
}

TEST_P(ShardTest, ACancelThatComesFirstIsNotLost) {
  const auto sink = std::make_shared<Sink>();
  sink->set_cancelled();
  shard(1).Cancel(1);
  shard(1).Submit(1, Request(1), sink);
  EXPECT_TRUE(absl::IsCancelled(sink->Wait()));
  EXPECT_EQ(link_.live(), 0u);
}

// Submit and Cancel in one wake-up: the Open is on its way, its handles are not known yet.
TEST_P(ShardTest, ASessionThatEndsBeforeItHasHandlesIsClosed) {
  link_.Hold(true);
  for (uint64_t key = 1; key <= 50; ++key) {
    const auto sink = std::make_shared<Sink>();
    shard(key).Submit(key, Request(key), sink);
    shard(key).Cancel(key);
    EXPECT_TRUE(absl::IsCancelled(sink->Wait()));
  }
  EXPECT_TRUE(Eventually([this] { return link_.live() == 0; }));
}

TEST_P(ShardTest, CancelStopsTheWorkerAtOnce) {
  const auto sink = std::make_shared<Sink>();
  link_.Hold(true);
  GenerationRequest request = Request(1);
  request.max_tokens = 400;
  shard(1).Submit(1, std::move(request), sink);
  ASSERT_TRUE(Eventually([this] { return link_.live() == 1; }));
  shard(1).Cancel(1);
  EXPECT_TRUE(absl::IsCancelled(sink->Wait()));
  EXPECT_TRUE(Eventually([this] { return link_.live() == 0; }));
}

TEST_P(ShardTest, B121_LateEventsOfACancelledRequestReachNobody) {
  const auto first = std::make_shared<Sink>();
  const auto second = std::make_shared<Sink>();
  link_.Hold(true);
  shard(1).Submit(1, Request(1), first);
  ASSERT_TRUE(Eventually([this] { return link_.live() == 1; }));
  shard(1).Cancel(1);
  ASSERT_TRUE(absl::IsCancelled(first->Wait()));
  const size_t shards = shards_.size();
  shard(1).Submit(1 + shards, Request(5), second);
  link_.Hold(false);  // the first one's candidates come now
  ASSERT_TRUE(second->Wait().ok());
  EXPECT_EQ(second->tokens(), TokensByRows(Request(5), 0));
  EXPECT_TRUE(first->tokens().empty());
}

TEST_P(ShardTest, ADeadlineFiresWithoutAnythingElseHappening) {
  const auto sink = std::make_shared<Sink>();
  link_.Hold(true);
  GenerationRequest request = Request(1);
  request.deadline = SteadyNow() + kNanosPerSecond / 20;
  shard(1).Submit(1, std::move(request), sink);
  EXPECT_TRUE(absl::IsDeadlineExceeded(sink->Wait()));
  EXPECT_TRUE(Eventually([this] { return link_.live() == 0; }));
}

TEST_P(ShardTest, B147_ARequestThatExpiredIsNotSent) {
  const auto sink = std::make_shared<Sink>();
  GenerationRequest request = Request(1);
  request.deadline = SteadyNow() - 1;
  shard(1).Submit(1, std::move(request), sink);
  EXPECT_TRUE(absl::IsDeadlineExceeded(sink->Wait()));
  EXPECT_EQ(link_.decoder.opens, 0);
}

TEST_P(ShardTest, ASlowClientIsPausedAndOthersGoOn) {
  const auto slow = std::make_shared<Sink>();
  const auto quick = std::make_shared<Sink>();
  slow->set_full(true);
  const size_t shards = shards_.size();
  shard(1).Submit(1, Request(1), slow);
  shard(1).Submit(1 + shards, Request(2), quick);
  ASSERT_TRUE(quick->Wait().ok());
  EXPECT_LT(slow->tokens().size(), 3u);
  slow->set_full(false);
  shard(1).Resume(1);
  ASSERT_TRUE(slow->Wait().ok());
  EXPECT_EQ(slow->tokens(), TokensByRows(Request(1), 0));
}

TEST_P(ShardTest, ALostWorkerEndsItsSessionsAndFreesTheirPlace) {
  const auto sink = std::make_shared<Sink>();
  link_.Hold(true);
  shard(1).Submit(1, Request(1), sink);
  ASSERT_TRUE(Eventually([this] { return link_.live() == 1; }));
  router_.Lost(kConnection);
  for (const auto& s : shards_) s->OnWorkerLost(kConnection, absl::UnavailableError("gone"));
  EXPECT_TRUE(absl::IsUnavailable(sink->Wait()));
  const auto next = std::make_shared<Sink>();
  shard(1).Submit(2, Request(2), next);
  const absl::Status status = next->Wait();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("scripted"));
}

TEST_P(ShardTest, AnOpenThatCannotBeSentIsUnavailable) {
  link_.SetGone();
  const auto sink = std::make_shared<Sink>();
  shard(1).Submit(1, Request(1), sink);
  EXPECT_TRUE(absl::IsUnavailable(sink->Wait()));
}

TEST_P(ShardTest, DestructionEndsWhatRuns) {
  const auto sink = std::make_shared<Sink>();
  link_.Hold(true);
  shard(1).Submit(1, Request(1), sink);
  shards_.clear();
  EXPECT_TRUE(absl::IsUnavailable(sink->Wait()));
  EXPECT_EQ(link_.live(), 0u);
}

}  // namespace
}  // namespace tandem::text
