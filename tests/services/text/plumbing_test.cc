// Outbox, FramePacker, ModelTextCache, TaskPool, Hello: small parts, a few sentences each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "services/common/decode_codec.h"
#include "services/text/frame_packer.h"
#include "services/text/model_text_cache.h"
#include "services/text/outbox.h"
#include "services/text/task_pool.h"
#include "tests/services/text/session_fixture.h"

namespace tandem::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

v1::GenerateResponse DeltaOf(int32_t choice, const std::string& text) {
  v1::GenerateResponse out;
  out.mutable_delta()->set_choice(choice);
  out.mutable_delta()->set_text(text);
  out.mutable_delta()->add_token_ids(static_cast<int32_t>(text.size()));
  out.mutable_delta()->add_logprobs()->mutable_chosen()->set_rank(choice);
  return out;
}

void Put(Outbox& outbox, v1::GenerateResponse message) { outbox.Add(&message); }

std::optional<v1::GenerateResponse> Take(Outbox& outbox) {
  v1::GenerateResponse out;
  if (!outbox.Take(&out)) return std::nullopt;
  return out;
}

TEST(Outbox, JoinsTheDeltasOfAChoiceThatWait) {
  Outbox outbox;
  Put(outbox, DeltaOf(0, "a"));
  Put(outbox, DeltaOf(1, "x"));
  Put(outbox, DeltaOf(0, "bc"));
  v1::GenerateResponse finished;
  finished.mutable_finished()->set_choice(0);
  Put(outbox, finished);
  const auto first = Take(outbox);
  EXPECT_EQ(first->delta().text(), "abc");
  EXPECT_THAT(first->delta().token_ids(), ElementsAre(1, 2));
  EXPECT_EQ(first->delta().logprobs_size(), 2);
  EXPECT_EQ(Take(outbox)->delta().text(), "x");
  EXPECT_TRUE(Take(outbox)->has_finished());
  EXPECT_FALSE(Take(outbox).has_value());
  EXPECT_EQ(outbox.bytes(), 0);
}

TEST(Outbox, LeavesTextWithoutTokensApartFromTextWithThem) {
  Outbox outbox;
  Put(outbox, DeltaOf(0, "a"));
  Put(outbox, DeltaOf(0, "b"));
  v1::GenerateResponse held = DeltaOf(0, "held");
  held.mutable_delta()->clear_token_ids();
  Put(outbox, held);
  EXPECT_EQ(Take(outbox)->delta().text(), "ab");
  EXPECT_EQ(Take(outbox)->delta().text(), "held");
}

TEST(Outbox, KeepsTheLastProgressOnly) {
  Outbox outbox;
  for (int i = 1; i <= 3; ++i) {
    v1::GenerateResponse progress;
    progress.mutable_progress()->set_done_tokens(i);
    Put(outbox, progress);
  }
  EXPECT_EQ(Take(outbox)->progress().done_tokens(), 3);
  EXPECT_TRUE(outbox.empty());
}

TEST(Outbox, IsFullAboveItsLimitAndDrainedBelowHalfOfIt) {
  Outbox outbox(1000);
  while (!outbox.full()) {
    EXPECT_LE(outbox.bytes(), 1000);
    Put(outbox, DeltaOf(static_cast<int32_t>(outbox.bytes() % 16), std::string(90, 'x')));
  }
  EXPECT_FALSE(outbox.drained());
  while (!outbox.drained()) ASSERT_TRUE(Take(outbox).has_value());
  EXPECT_LE(outbox.bytes(), 500);
}

decode::v1::Command OpenOf(int32_t choices) {
  decode::v1::Command out;
  out.mutable_open()->set_choices(choices);
  return out;
}

TEST(FramePacker, HandlesRiseOverAllShardsAndSayWhoseTheyAre) {
  FramePacker packer(3);
  uint64_t last = 0;
  for (const int32_t shard : {2, 0, 0, 1, 2, 2, 1, 0}) {
    std::vector<decode::v1::Command> commands = {OpenOf(16), OpenOf(1)};
    commands[1].mutable_open()->set_choices(2);
    for (const uint64_t first : packer.Add(shard, commands)) {
      EXPECT_GT(first, last);
      EXPECT_EQ(packer.ShardOf(first), shard);
      EXPECT_EQ(packer.ShardOf(first + 15), shard);
      EXPECT_TRUE(packer.Given(first));
      last = first + 15;
    }
  }
  EXPECT_FALSE(packer.Given(last + 1));
}

TEST(FramePacker, OpenMoreGetsTheHandleOfItsOpen) {
  FramePacker packer(1);
  std::vector<decode::v1::Command> commands = {OpenOf(1), {}, OpenOf(1), {}};
  commands[1].mutable_open_more();
  commands[3].mutable_open_more();
  const std::vector<uint64_t> first = packer.Add(0, commands);
  decode::v1::DecodeRequest frame;
  packer.Next(&frame);
  EXPECT_EQ(frame.commands(1).open_more().first_handle(), first[0]);
  EXPECT_EQ(frame.commands(3).open_more().first_handle(), first[1]);
}

TEST(FramePacker, B143_FramesStayUnderTheLimitAndKeepTheOrder) {
  FramePacker packer(1);
  std::vector<decode::v1::Command> commands;
  for (int i = 0; i < 40; ++i) {
    decode::v1::Command open = OpenOf(1);
    open.mutable_open()->set_priority(i);
    for (int t = 0; t < 300 * i; ++t) open.mutable_open()->add_tokens(1);
    commands.push_back(open);
  }
  packer.Add(0, commands);
  int next = 0;
  int frames = 0;
  decode::v1::DecodeRequest frame;
  while (!packer.empty()) {
    packer.Next(&frame);
    EXPECT_LT(frame.ByteSizeLong(), static_cast<size_t>(kMaxFrameBytes));
    for (const auto& command : frame.commands()) EXPECT_EQ(command.open().priority(), next++);
    ++frames;
  }
  EXPECT_EQ(next, 40);
  EXPECT_GE(frames, 5);
}

// The largest Open that CheckRequest lets through is one frame.
TEST(FramePacker, B143_TheLargestOpenFitsIntoAFrame) {
  test::ScriptedDecoder decoder{test::ScriptedDecoderOptions()};
  GenerationRequest request;
  request.model = ModelOf(decoder.Hello(), decoder.options().tokenizer);
  request.prompt.assign(20'000, 1);
  for (int32_t i = 0; i < kMaxListedIds; ++i) {
    request.sampling.allowed_ids.push_back((1 << 18) - 1 - i);
    request.sampling.banned_ids.push_back((1 << 18) - 1 - i);
  }
  for (int32_t i = 0; i < kMaxBias; ++i)
    request.sampling.logit_bias.emplace_back(100'000 + i, 1.0f);
  decode::v1::Command open;
  ToProto(request.sampling, open.mutable_open()->mutable_draw());
  for (int32_t i = 0; i < Session::kTokensPerCommand; ++i) open.mutable_open()->add_tokens(1);
  EXPECT_LT(open.ByteSizeLong(), static_cast<size_t>(FramePacker::kTargetBytes));
}

TEST(ModelTextCache, FetchesAFingerprintOnce) {
  const TokenizerData data = test::SmallTokenizer();
  const std::string fingerprint = TokenizerFingerprint(data);
  ModelTextCache cache;
  int fetches = 0;
  const auto fetch = [&]() -> absl::StatusOr<TokenizerData> {
    ++fetches;
    return data;
  };
  const auto first = cache.Get(fingerprint, fetch);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(*cache.Get(fingerprint, fetch), *first);
  EXPECT_EQ(fetches, 1);
}

TEST(ModelTextCache, RefusesDataOfAnotherFingerprint) {
  TokenizerData data = test::SmallTokenizer();
  const std::string fingerprint = TokenizerFingerprint(data);
  data.merges.pop_back();
  ModelTextCache cache;
  const auto got = cache.Get(fingerprint, [&]() -> absl::StatusOr<TokenizerData> { return data; });
  EXPECT_TRUE(absl::IsDataLoss(got.status()));
}

TEST(ModelText, ATemplateThatCannotBeReadIsNoErrorOfTheModel) {
  TokenizerData data = test::SmallTokenizer();
  data.chat_template = "{% for";
  const auto text = MakeModelText("f", data);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ((*text)->chat_template, nullptr);
  EXPECT_FALSE((*text)->chat_template_status.ok());
}

TEST(Hello, IsHeldAgainstWhatThisSideCanDo) {
  const test::ScriptedDecoder decoder{test::ScriptedDecoderOptions()};
  EXPECT_TRUE(CheckHello(decoder.Hello()).ok());
  struct Case {
    std::function<void(decode::v1::Hello&)> change;
    const char* part;
  };
  const Case cases[] = {
      {[](auto& h) { h.set_protocol_major(2); }, "protocol 2"},
      {[](auto& h) { h.set_model(""); }, "model"},
      {[](auto& h) { h.set_vocab_size(0); }, "vocab_size"},
      {[](auto& h) { h.set_vocab_size(INT32_MAX); }, "vocab_size"},
      {[](auto& h) { h.set_context_length(-1); }, "context_length"},
      {[](auto& h) { h.set_max_top(0); }, "max_top"},
      {[](auto& h) { h.add_end_ids(100'000); }, "end_ids"},
  };
  for (const Case& c : cases) {
    decode::v1::Hello hello = decoder.Hello();
    c.change(hello);
    const absl::Status status = CheckHello(hello);
    EXPECT_FALSE(status.ok()) << c.part;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.part));
  }
}

TEST(Hello, ATokenizerLargerThanTheRowsIsRefused) {
  test::ScriptedDecoder decoder{test::ScriptedDecoderOptions()};
  decode::v1::Hello hello = decoder.Hello();
  hello.set_vocab_size(100);
  const TokenizerData& data = decoder.options().tokenizer;
  const auto text = MakeModelText(TokenizerFingerprint(data), data);
  const absl::Status status = MakeServedModel(hello, *text).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("265"));
}

TEST(Hello, AWorkerIsAskedForDraftsOnlyWithTheFeature) {
  test::ScriptedDecoder decoder{test::ScriptedDecoderOptions()};
  decode::v1::Hello hello = decoder.Hello();
  hello.set_max_drafts(6);
  const TokenizerData& data = decoder.options().tokenizer;
  EXPECT_EQ(ModelOf(hello, data)->limits.max_drafts, 0);
  hello.add_features(kDraftsFeature);
  EXPECT_EQ(ModelOf(hello, data)->limits.max_drafts, 6);
}

TEST(TaskPool, RunsWhatItTookAndRefusesBeyondItsLimit) {
  std::atomic<int> ran{0};
  {
    TaskPool pool(2, 3);
    std::mutex gate;
    gate.lock();
    std::atomic<int> started{0};
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(pool.Post([&] {
        ++started;
        std::lock_guard lock(gate);
        ++ran;
      }));
    }
    while (started < 2) std::this_thread::yield();
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(pool.Post([&] { ++ran; }));
    EXPECT_FALSE(pool.Post([&] { ++ran; }));
    gate.unlock();
  }
  EXPECT_EQ(ran, 5);
}

}  // namespace
}  // namespace tandem::text
