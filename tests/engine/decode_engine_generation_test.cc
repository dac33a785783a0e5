// What a DecodeEngine generates: the same tokens and bits, whatever runs beside it and however the
// work is cut.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/engine/decode_engine_harness.h"

namespace tandem::test {
namespace {

EngineOptions Options(int32_t max_sessions = 8) {
  EngineOptions options;
  options.max_sessions = max_sessions;
  options.step_tokens = 64;
  options.kv_tokens = max_sessions * 512;
  return options;
}

void ExpectSound(const Outcome& outcome, const Request& request) {
  EXPECT_EQ(outcome.misses, 0);
  EXPECT_TRUE(outcome.faults.empty()) << outcome.faults.front();
  ASSERT_EQ(outcome.closed.size(), 1u);
  EXPECT_EQ(outcome.closed[0].reason, ClosedEvent::Reason::kDone) << outcome.closed[0].detail;
  EXPECT_EQ(static_cast<int32_t>(outcome.output.size()), request.wanted);
}

void ExpectSameGeneration(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.output, b.output);
  ASSERT_EQ(a.candidates.size(), b.candidates.size());
  for (size_t i = 0; i < a.candidates.size(); ++i) {
    EXPECT_TRUE(SameBits(a.candidates[i], b.candidates[i])) << "token " << i;
  }
}

TEST(DecodeEngineGeneration, GreedyOutputIsTheArgmaxOfTheModelsLogits) {
  const TinyWorld& world = PlainWorld();
  Request request;
  request.tokens = RandomTokens(1, 70, world.vocab_size());
  request.wanted = 12;
  const Outcome outcome = RunAlone(world, Options(), request);
  ExpectSound(outcome, request);
  std::vector<int32_t> tokens = request.tokens;
  for (const int32_t token : outcome.output) {
    EXPECT_EQ(token, ArgMax(world.Logits(tokens)));
    tokens.push_back(token);
  }
}

TEST(DecodeEngineGeneration, EveryTokenIsTheOneThatTheFullRowGives) {
  const TinyWorld& world = PlainWorld();
  int32_t fetched = 0;
  for (const Request& request : MixedRequests(24, world.vocab_size())) {
    const Outcome outcome = RunAlone(world, Options(), request);
    ExpectSound(outcome, request);
    fetched += outcome.fetched;
    std::vector<int32_t> tokens = request.tokens;
    for (const int32_t token : outcome.output) {
      const Decider decider(request.sampling, request.choice, request.prompt_length, tokens,
                            world.vocab_size(), {});
      const Decision decision = decider.DecideFromRow(world.Logits(tokens));
      ASSERT_EQ(decision.kind, Decision::Kind::kToken);
      EXPECT_EQ(token, decision.token);
      tokens.push_back(token);
    }
  }
  EXPECT_GT(fetched, 0) << "no request needed more than its lists: the path was not tried";
}

TEST(DecodeEngineGeneration, B111_B113_ThirtyTwoTogetherAreEachAsAlone) {
  const TinyWorld& world = PlainWorld();
  const std::vector<Request> requests = MixedRequests(32, world.vocab_size());
  for (const int32_t depth : {1, 2}) {
    const std::unique_ptr<DecodeEngine> engine = world.MakeEngine(Options(32));
    TextTier tier(*engine, world.vocab_size());
    for (const Request& request : requests) tier.Start(request);
    tier.Run(depth);
    EXPECT_EQ(engine->CheckQuiescent().ToString(), "OK");
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(i);
      const Outcome& together = tier.outcome(i + 1);
      ExpectSound(together, requests[i]);
      if (depth == 2 && i % 4 != 0) continue;
      ExpectSameGeneration(together, RunAlone(world, Options(), requests[i]));
    }
  }
}

// The second request of each pair has penalties, a longer prompt and no seed in common.
TEST(DecodeEngineGeneration, B039_B041_ARowIsTheSameBesideARowWithOtherParameters) {
  const TinyWorld& world = PlainWorld();
  Request plain;
  plain.tokens = RandomTokens(5, 9, world.vocab_size());
  plain.sampling.temperature = 1.0f;
  plain.sampling.seed = 42;
  Request beside;
  beside.tokens = RandomTokens(6, 120, world.vocab_size());
  beside.sampling.temperature = 1.0f;
  beside.sampling.seed = 7;
  beside.sampling.frequency_penalty = 1.05f;
  beside.sampling.repetition_penalty = 1.5f;
  const Outcome alone = RunAlone(world, Options(), plain);
  const std::unique_ptr<DecodeEngine> engine = world.MakeEngine(Options());
  TextTier tier(*engine, world.vocab_size());
  tier.Start(beside);
  tier.Start(plain);
  tier.Start(beside);
  tier.Run();
  ExpectSameGeneration(tier.outcome(2), alone);
}

TEST(DecodeEngineGeneration, B043_EqualSeedsGiveEqualTokensInEverySlot) {
  const TinyWorld& world = PlainWorld();
  Request request;
  request.tokens = RandomTokens(8, 20, world.vocab_size());
  request.sampling.temperature = 1.5f;
  request.sampling.seed = 99;
  const std::unique_ptr<DecodeEngine> engine = world.MakeEngine(Options());
  TextTier tier(*engine, world.vocab_size());
  for (int i = 0; i < 8; ++i) tier.Start(request);
  tier.Run();
  for (uint64_t i = 2; i <= 8; ++i) ExpectSameGeneration(tier.outcome(i), tier.outcome(1));
}

TEST(DecodeEngineGeneration, AnyChunkSizeGivesTheSameBits) {
  const TinyWorld& world = PlainWorld();
  Request request;
  request.tokens = RandomTokens(11, 300, world.vocab_size());
  request.sampling.temperature = 1.0f;
  request.sampling.seed = 3;
  request.sampling.repetition_penalty = 1.2f;
  request.wanted = 10;
  const Outcome whole = RunAlone(world, Options(), request);
  for (const int32_t step_tokens : {1, 7, 64, 256}) {
    SCOPED_TRACE(step_tokens);
    EngineOptions options = Options();
    options.step_tokens = step_tokens;
    const Outcome chunked = RunAlone(world, options, request);
    ExpectSound(chunked, request);
    ExpectSameGeneration(chunked, whole);
  }
}

TEST(DecodeEngineGeneration, ForksAreSeparateSessionsWithTheirChoice) {
  const TinyWorld& world = PlainWorld();
  for (const int32_t length : {1, 2, 64, 65, 66, 130}) {
    SCOPED_TRACE(length);
    Request request;
    request.tokens = RandomTokens(21, length, world.vocab_size());
    request.sampling.temperature = 1.0f;
    request.sampling.seed = 17;
    request.choice = 5;
    request.wanted = 8;
    const std::unique_ptr<DecodeEngine> engine = world.MakeEngine(Options());
    TextTier tier(*engine, world.vocab_size());
    tier.StartChoices(request, 4);
    tier.Run();
    EXPECT_EQ(engine->CheckQuiescent().ToString(), "OK");
    for (uint32_t i = 0; i < 4; ++i) {
      Request separate = request;
      separate.choice = request.choice + i;
      ExpectSound(tier.outcome(i + 1), request);
      ExpectSameGeneration(tier.outcome(i + 1), RunAlone(world, Options(), separate));
    }
    EXPECT_NE(tier.outcome(1).output, tier.outcome(2).output);
  }
}

TEST(DecodeEngineGeneration, ForksShareThePromptsFullPages) {
  const TinyWorld& world = PlainWorld();
  const std::unique_ptr<DecodeEngine> engine = world.MakeEngine(Options());
  TextTier tier(*engine, world.vocab_size());
  Request request;
  request.tokens = RandomTokens(22, 300, world.vocab_size());
  request.sampling.temperature = 1.0f;
  request.wanted = 100;
  request.max_new = 100;
  tier.StartChoices(request, 4);
  for (int i = 0; i < 12; ++i) tier.Turn();
  // Tokens [0, 299) fill 4 pages and 43 places of a fifth.
  EXPECT_EQ(engine->load().total_pages - engine->load().free_pages, 4 + 4);
}

// A window group drops pages that no row can see any more; the full layers keep theirs.
TEST(DecodeEngineGeneration, B085_WindowsGiveTheSameBitsForAnyChunkSize) {
  TinyWorld::Options windows;
  windows.layer_windows = {0, 32};
  const TinyWorld world(windows);
  for (const int32_t length : {31, 32, 33, 96, 400}) {
    SCOPED_TRACE(length);
    Request request;
    request.tokens = RandomTokens(31, length, world.vocab_size());
    request.wanted = 4;
    EngineOptions options = Options(2);
    options.max_rewind = 16;
    options.step_tokens = 16;
    const Outcome chunked = RunAlone(world, options, request);
    ExpectSound(chunked, request);
    std::vector<int32_t> tokens = request.tokens;
    for (const int32_t token : chunked.output) {
      EXPECT_EQ(token, ArgMax(world.Logits(tokens)));
      tokens.push_back(token);
    }
  }
}

TEST(DecodeEngineGeneration, B085_ForksOverAWindowAreAsSeparateSessions) {
  TinyWorld::Options windows;
  windows.layer_windows = {32, 32};
  const TinyWorld world(windows);
  EngineOptions options = Options(4);
  options.max_rewind = 16;
  options.step_tokens = 16;
  Request request;
  request.tokens = RandomTokens(32, 200, world.vocab_size());
  request.sampling.temperature = 1.0f;
  request.wanted = 120;
  const std::unique_ptr<DecodeEngine> engine = world.MakeEngine(options);
  TextTier tier(*engine, world.vocab_size());
  tier.StartChoices(request, 3);
  tier.Run();
  EXPECT_EQ(engine->CheckQuiescent().ToString(), "OK");
  for (uint32_t i = 0; i < 3; ++i) {
    Request separate = request;
    separate.choice = i;
    ExpectSound(tier.outcome(i + 1), request);
    ExpectSameGeneration(tier.outcome(i + 1), RunAlone(world, options, separate));
  }
}

// A prompt of 400 tokens and 100 more need 8 pages of full attention, but 2 of the window.
TEST(DecodeEngineGeneration, B083_EveryKvFormatWorksWithForksWindowsAndChunks) {
  for (const kernels::KvFormat format : {kernels::KvFormat::kF32, kernels::KvFormat::kBF16,
                                         kernels::KvFormat::kFp8E4M3, kernels::KvFormat::kInt8}) {
    SCOPED_TRACE(kernels::Name(format));
    TinyWorld::Options world_options;
    world_options.layer_windows = {0, 32};
    world_options.kv_format = format;
    const TinyWorld world(world_options);
    EngineOptions options = Options(4);
    options.kv_format = format;
    options.max_rewind = 16;
    Request request;
    request.tokens = RandomTokens(34, 150, world.vocab_size());
    request.sampling.temperature = 1.0f;
    request.wanted = 10;
    const std::unique_ptr<DecodeEngine> engine = world.MakeEngine(options);
    TextTier tier(*engine, world.vocab_size());
    tier.StartChoices(request, 3);
    tier.Run(2);
    EXPECT_EQ(engine->CheckQuiescent().ToString(), "OK");
    options.step_tokens = 7;
    for (uint32_t i = 0; i < 3; ++i) {
      Request separate = request;
      separate.choice = i;
      ExpectSound(tier.outcome(i + 1), request);
      ExpectSameGeneration(tier.outcome(i + 1), RunAlone(world, options, separate));
    }
  }
}

TEST(DecodeEngineGeneration, AWindowGroupHoldsNoMoreThanItsWindow) {
  TinyWorld::Options windows;
  windows.layer_windows = {32, 32};
  const TinyWorld world(windows);
  EngineOptions options = Options(1);
  options.max_rewind = 16;
  options.step_tokens = 16;
  const std::unique_ptr<DecodeEngine> engine = world.MakeEngine(options);
  TextTier tier(*engine, world.vocab_size());
  Request request;
  request.tokens = RandomTokens(33, 400, world.vocab_size());
  request.wanted = 100;
  tier.Start(request);
  while (tier.Turn()) {
    EXPECT_LE(engine->load().total_pages - engine->load().free_pages, 2);
  }
  ExpectSound(tier.outcome(1), request);
}

TEST(DecodeEngineGeneration, TokensThatAreKnownBeforehandAreAMiniPrefillWithTheSameBits) {
  const TinyWorld& world = PlainWorld();
  Request request;
  request.tokens = RandomTokens(41, 40, world.vocab_size());
  request.wanted = 6;
  const Outcome drawn = RunAlone(world, Options(), request);
  const std::unique_ptr<DecodeEngine> engine = world.MakeEngine(Options());
  Peer peer(*engine);
  peer.Open(1, request.tokens);
  peer.Extend(1, 40, 0, {drawn.output.begin(), drawn.output.begin() + 5});
  peer.Run();
  ASSERT_EQ(peer.All<CandidatesEvent>(1).size(), 1u);
  EXPECT_EQ(peer.Last<CandidatesEvent>(1).position, 45);
  EXPECT_TRUE(SameBits(peer.Last<CandidatesEvent>(1).candidates, drawn.candidates[5]));
}

TEST(DecodeEngineGeneration, ARowThatContinuesFromTheDrawUploadsItsPositionAlone) {
  const TinyWorld& world = PlainWorld();
  const std::unique_ptr<DecodeEngine> engine = world.MakeEngine(Options());
  Peer peer(*engine);
  peer.Open(1, RandomTokens(42, 10, world.vocab_size()));
  peer.Run();
  for (int32_t position = 10; position < 20; ++position) {
    const CandidatesEvent event = peer.Last<CandidatesEvent>(1);
    ASSERT_EQ(event.position, position);
    peer.Extend(1, position, 0, {event.candidates.summary.drawn});
    const int64_t before = world.ops->uploaded_bytes();
    peer.Run();
    // Slot and logits row are those of the step before; the prompt had another logits row.
    EXPECT_EQ(world.ops->uploaded_bytes() - before, position == 10 ? 2 * 4 : 4);
  }
  // Another token than the draw costs itself and the count.
  const CandidatesEvent event = peer.Last<CandidatesEvent>(1);
  peer.Extend(1, 20, 1, {event.candidates.summary.drawn == 5 ? 6 : 5});
  const int64_t before = world.ops->uploaded_bytes();
  peer.Run();
  EXPECT_EQ(world.ops->uploaded_bytes() - before, 3 * 4);
}

}  // namespace
}  // namespace tandem::test
