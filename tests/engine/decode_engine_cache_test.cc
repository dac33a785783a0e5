// Prefix pages of a DecodeEngine: a hit gives the bits of a miss, whatever else is going on.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <string>
#include <vector>

#include "tests/engine/decode_engine_harness.h"

namespace tandem::test {
namespace {

using Reason = ClosedEvent::Reason;

struct CacheCase {
  const char* name;
  bool cpu = false;
  std::vector<int32_t> windows;
  kernels::KvFormat kv_format = kernels::KvFormat::kF32;
  uint64_t hash_mask = ~uint64_t{0};
  int32_t step_tokens = 256;
};

class DecodeEngineCache : public testing::TestWithParam<CacheCase> {
 protected:
  DecodeEngineCache()
      : world({.layer_windows = GetParam().windows,
               .kv_format = GetParam().kv_format,
               .cpu = GetParam().cpu}) {
    options.max_sessions = 4;
    options.step_tokens = GetParam().step_tokens;
    options.kv_tokens = 32 * 64;
    options.kv_format = GetParam().kv_format;
    options.hash_mask = GetParam().hash_mask;
    options.hash_seed = 7;
    engine = world.MakeEngine(options);
  }
  ~DecodeEngineCache() override {
    engine->CloseStream(0);
    EXPECT_EQ(engine->CheckQuiescent().ToString(), "OK");
  }

  static OpenCommand OpenOf(uint64_t number, std::vector<int32_t> tokens) {
    OpenCommand open;
    open.first = {0, number};
    open.prompt_length = static_cast<int32_t>(tokens.size());
    open.tokens = std::move(tokens);
    open.max_new = 100;
    return open;
  }
  // The logits that an engine gives behind these tokens, and how many tokens were found.
  std::vector<float> Row(DecodeEngine& on, uint64_t number, int32_t position) {
    Peer peer(on);
    peer.Fetch(number, position, FetchCommand::What::kRow);
    peer.Run();
    return peer.Last<FetchedEvent>(number).values;
  }
  // As of an engine that has never seen anything.
  std::vector<float> Fresh(const std::vector<int32_t>& tokens) {
    const std::unique_ptr<DecodeEngine> other = world.MakeEngine(options);
    Peer peer(*other);
    peer.Open(OpenOf(1, tokens));
    peer.Run();
    return Row(*other, 1, static_cast<int32_t>(tokens.size()));
  }
  int32_t Open(uint64_t number, const std::vector<int32_t>& tokens) {
    return Open(OpenOf(number, tokens));
  }
  int32_t Open(OpenCommand open) {
    const uint64_t number = open.first.number;
    Peer peer(*engine);
    peer.Open(std::move(open));
    peer.Run();
    return peer.Last<OpenedEvent>(number).cached_tokens;
  }
  void Close(uint64_t number, Nanos retain = 0, Nanos now = 1) {
    engine->Close({{0, number}, retain}, now);
  }
  void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(a[i]), std::bit_cast<uint32_t>(b[i])) << "id " << i;
    }
  }
  std::vector<int32_t> Tokens(int32_t count, uint64_t seed = 1) const {
    return RandomTokens(seed, count, world.vocab_size());
  }

  const TinyWorld world;
  EngineOptions options;
  std::unique_ptr<DecodeEngine> engine;
};

TEST_P(DecodeEngineCache, B083_AHitGivesTheBitsOfAMiss) {
  std::vector<int32_t> first = Tokens(230);
  EXPECT_EQ(Open(1, first), 0);
  Close(1);
  std::vector<int32_t> second = first;
  second.resize(200);
  for (const int32_t token : Tokens(60, 2)) second.push_back(token);
  EXPECT_EQ(Open(2, second), 192);
  ExpectSameBits(Row(*engine, 2, 260), Fresh(second));
}

TEST_P(DecodeEngineCache, APromptThatIsCachedWholeStillGivesItsLastRow) {
  const std::vector<int32_t> tokens = Tokens(128);
  EXPECT_EQ(Open(1, tokens), 0);
  Close(1);
  EXPECT_EQ(Open(2, tokens), 64) << "of two pages the last row must remain";
  ExpectSameBits(Row(*engine, 2, 128), Fresh(tokens));
}

TEST_P(DecodeEngineCache, ARewindInsideAPageThatAnotherHoldsLeavesTheOtherAsItWas) {
  const std::vector<int32_t> tokens = Tokens(160);
  Open(1, tokens);
  EXPECT_EQ(Open(2, tokens), 128);
  Peer peer(*engine);
  std::vector<int32_t> changed = tokens;
  changed.resize(100);
  const std::vector<int32_t> other = Tokens(40, 3);
  changed.insert(changed.end(), other.begin(), other.end());
  peer.Extend(1, 100, 1, other);
  peer.Run();
  ExpectSameBits(Row(*engine, 2, 160), Fresh(tokens));
  ExpectSameBits(Row(*engine, 1, 140), Fresh(changed));
  EXPECT_EQ(engine->CheckInvariants().ToString(), "OK");
}

TEST_P(DecodeEngineCache, ARewindOfTheOnlyOwnerTakesThePageOutOfTheIndex) {
  const std::vector<int32_t> tokens = Tokens(160);
  Open(1, tokens);
  Peer peer(*engine);
  peer.Extend(1, 70, 1, Tokens(10, 3));
  peer.Run();
  EXPECT_EQ(Open(2, tokens), 64) << "only the page before the rewind is as it was";
  ExpectSameBits(Row(*engine, 2, 160), Fresh(tokens));
}

TEST_P(DecodeEngineCache, B123_ACancelledPrefillLeavesItsPages) {
  const std::vector<int32_t> tokens = Tokens(400);
  Peer peer(*engine);
  peer.Open(OpenOf(1, tokens));
  ASSERT_TRUE(engine->Launch(1));
  ASSERT_TRUE(engine->Collect(1).ok());
  Close(1);
  const int32_t whole_pages = std::min(options.step_tokens, 399) / 64 * 64;
  EXPECT_EQ(Open(2, tokens), whole_pages);
  ExpectSameBits(Row(*engine, 2, 400), Fresh(tokens));
}

TEST_P(DecodeEngineCache, OutputOfOneTurnIsFoundByTheNext) {
  std::vector<int32_t> tokens = Tokens(60);
  Open(1, tokens);
  Peer peer(*engine);
  const std::vector<int32_t> more = Tokens(80, 4);
  for (const int32_t token : more) {
    peer.Extend(1, static_cast<int32_t>(tokens.size()), static_cast<uint32_t>(tokens.size() - 59),
                {token});
    tokens.push_back(token);
    peer.Run();
  }
  Close(1);
  EXPECT_EQ(Open(2, tokens), 128);
  ExpectSameBits(Row(*engine, 2, 140), Fresh(tokens));
}

// What is computed for a turn that goes away counts only as far as it was confirmed.
TEST_P(DecodeEngineCache, B119_ATurnAfterOneThatWasCancelledInAStepHasAllItsContext) {
  std::vector<int32_t> tokens = Tokens(120);
  OpenCommand open = OpenOf(1, tokens);
  open.run_ahead = 8;
  Open(std::move(open));
  Peer peer(*engine);
  peer.Extend(1, 120, 1, {5});
  ASSERT_TRUE(engine->Launch(1));
  Close(1);
  ASSERT_TRUE(engine->Collect(1).ok());
  tokens.push_back(5);
  for (const int32_t token : Tokens(30, 6)) tokens.push_back(token);
  EXPECT_EQ(Open(2, tokens), 64);
  ExpectSameBits(Row(*engine, 2, 151), Fresh(tokens));
}

TEST_P(DecodeEngineCache, B091_PagesAreSharedOnlyAmongEqualSalts) {
  const std::vector<int32_t> tokens = Tokens(200);
  OpenCommand open = OpenOf(1, tokens);
  open.salt = "a";
  EXPECT_EQ(Open(open), 0);
  open.first.number = 2;
  open.salt = "b";
  EXPECT_EQ(Open(open), 0);
  open.first.number = 3;
  open.salt = "a";
  EXPECT_EQ(Open(open), 192);
  EXPECT_EQ(Open(4, tokens), 0) << "no salt is a salt of its own";
}

TEST_P(DecodeEngineCache, ABypassNeitherFindsNorLeavesPages) {
  const std::vector<int32_t> tokens = Tokens(200);
  OpenCommand open = OpenOf(1, tokens);
  open.use_cache = false;
  EXPECT_EQ(Open(open), 0);
  Close(1);
  EXPECT_EQ(engine->load().cached_pages, 0);
  EXPECT_EQ(Open(2, tokens), 0);
  Close(2);
  open.first.number = 3;
  EXPECT_EQ(Open(open), 0);
}

TEST_P(DecodeEngineCache, ALaterOpenFindsWhatAnEarlierOneComputesWhileItWaits) {
  const std::vector<int32_t> tokens = Tokens(300);
  Peer peer(*engine);
  for (const uint64_t number : {1, 2, 3}) peer.Open(OpenOf(number, tokens));
  peer.Run();
  EXPECT_EQ(engine->load().prefilled_tokens + engine->load().reused_tokens, 900);
  EXPECT_GE(engine->load().reused_tokens, 2 * 192);
  const std::vector<float> fresh = Fresh(tokens);
  for (const uint64_t number : {1, 2, 3}) ExpectSameBits(Row(*engine, number, 300), fresh);
}

TEST_P(DecodeEngineCache, ChoicesShareWhatIsFound) {
  const std::vector<int32_t> tokens = Tokens(200);
  Open(1, tokens);
  OpenCommand open = OpenOf(2, tokens);
  open.choices = 3;
  EXPECT_EQ(Open(open), 192);
  const std::vector<float> fresh = Fresh(tokens);
  for (const uint64_t number : {2, 3, 4}) ExpectSameBits(Row(*engine, number, 200), fresh);
}

// Window groups have fewer pages than this test speaks of.
class DecodeEngineEviction : public DecodeEngineCache {};

TEST_P(DecodeEngineEviction, B081_PagesThatAreNeededAreEvictedTheLeastRecentlyUsedFirst) {
  for (uint64_t number = 1; number <= 8; ++number) {  // 32 pages in all; each leaves 3
    Open(number, Tokens(200, number));
    Close(number);
  }
  EXPECT_EQ(Open(20, Tokens(200, 1)), 192);
  Close(20);
  for (uint64_t number = 21; number <= 24; ++number) {
    Open(number, Tokens(200, 100 + number));
    Close(number);
  }
  EXPECT_GT(engine->load().evicted_pages, 0);
  EXPECT_EQ(Open(30, Tokens(200, 1)), 192) << "used again meanwhile";
  Close(30);
  EXPECT_LT(Open(31, Tokens(200, 2)), 192) << "the oldest";
  ExpectSameBits(Row(*engine, 31, 200), Fresh(Tokens(200, 2)));
}

TEST_P(DecodeEngineEviction, RetainedPagesAreEvictedLastUntilTheirTimeHasPassed) {
  const Nanos retain = kNanosPerSecond;
  for (const bool expires : {false, true}) {
    const uint64_t base = expires ? 100 : 0;
    Open(base + 1, Tokens(200, base + 1));
    Close(base + 1, retain, 1);
    const Nanos now = expires ? 1 + retain : retain;
    for (uint64_t number = base + 2; number <= base + 12; ++number) {
      engine->Launch(now);
      Open(number, Tokens(200, number));
      Close(number);
    }
    EXPECT_EQ(Open(base + 50, Tokens(200, base + 1)), expires ? 0 : 192);
    Close(base + 50);
  }
}

TEST_P(DecodeEngineCache, ARetainBeyondTheLimitIsRefused) {
  Open(1, Tokens(10));
  Close(1, options.max_retain + 1);
  Peer(*engine).ExpectRefused(1, "it must be 0 to " + std::to_string(options.max_retain));
}

// Every KV format with every kind of group, in small chunks.
class DecodeEngineCacheFormats : public DecodeEngineCache {};

TEST_P(DecodeEngineCacheFormats, B083_AHitGivesTheBitsOfAMissInChunksAndUnderAWindow) {
  std::vector<int32_t> tokens = Tokens(70);
  Open(1, tokens);
  Close(1);
  tokens[66] = (tokens[66] + 1) % world.vocab_size();
  EXPECT_EQ(Open(2, tokens), 64);
  ExpectSameBits(Row(*engine, 2, 70), Fresh(tokens));
}

std::string NameOf(const testing::TestParamInfo<CacheCase>& info) { return info.param.name; }

const CacheCase kCpu{.name = "Cpu", .cpu = true};
const CacheCase kCollisions{.name = "AllHashesCollide", .cpu = true, .hash_mask = 0};

INSTANTIATE_TEST_SUITE_P(
    Worlds, DecodeEngineCache,
    testing::Values(
        kCpu, kCollisions,
        CacheCase{.name = "HalfOfHashesCollide", .cpu = true, .hash_mask = 1, .step_tokens = 48},
        CacheCase{.name = "Window", .cpu = true, .windows = {0, 40}, .step_tokens = 100},
        CacheCase{.name = "WindowOnly", .cpu = true, .windows = {70, 40}, .step_tokens = 64}),
    NameOf);
INSTANTIATE_TEST_SUITE_P(Worlds, DecodeEngineEviction, testing::Values(kCpu, kCollisions), NameOf);
INSTANTIATE_TEST_SUITE_P(
    Worlds, DecodeEngineCacheFormats,
    testing::Values(CacheCase{.name = "Fp32", .windows = {0, 30}, .step_tokens = 16},
                    CacheCase{.name = "Bf16",
                              .windows = {0, 30},
                              .kv_format = kernels::KvFormat::kBF16,
                              .step_tokens = 16},
                    CacheCase{.name = "Int8",
                              .windows = {0, 30},
                              .kv_format = kernels::KvFormat::kInt8,
                              .step_tokens = 16},
                    CacheCase{.name = "Fp8",
                              .windows = {30, 0},
                              .kv_format = kernels::KvFormat::kFp8E4M3,
                              .step_tokens = 16}),
    NameOf);

}  // namespace
}  // namespace tandem::test
