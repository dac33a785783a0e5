// Options of a DecodeEngine, and what it does when rows or the device go bad.
#include <gtest/gtest.h>

#include "tests/engine/decode_engine_harness.h"

namespace tandem::test {
namespace {

using Reason = ClosedEvent::Reason;

TEST(DecodeEngineFaults, B029_B051_ARowThatIsNotFiniteEndsItsSessionAlone) {
  TinyWorld::Options poisoned;
  poisoned.nan_token = 50;
  const TinyWorld world(poisoned);
  EngineOptions options;
  options.max_sessions = 4;
  options.kv_tokens = 2048;
  const std::unique_ptr<DecodeEngine> engine = world.MakeEngine(options);
  Peer peer(*engine);
  peer.Open(1, {10, 11, 50, 12});
  peer.Open(2, {10, 11, 49, 12});
  peer.Run();
  ASSERT_EQ(peer.All<ClosedEvent>(1).size(), 1u);
  EXPECT_EQ(peer.Last<ClosedEvent>(1).reason, Reason::kNonFinite);
  EXPECT_EQ(peer.Last<ClosedEvent>(1).detail, "the logit of id 0 for position 4 is not finite");
  EXPECT_TRUE(peer.All<CandidatesEvent>(1).empty());
  EXPECT_EQ(peer.All<CandidatesEvent>(2).size(), 1u);
  // The pages that held the NaN serve the next session.
  for (uint64_t number = 3; number < 12; ++number) {
    const std::vector<int32_t> tokens = RandomTokens(number, 49, 49);
    peer.Open(number, tokens);
    peer.Run();
    EXPECT_EQ(peer.Last<CandidatesEvent>(number).candidates.top[0].id,
              ArgMax(world.Logits(tokens)));
    engine->Close({{0, number}}, 1);
  }
  engine->Close({{0, 2}}, 1);
  EXPECT_EQ(engine->CheckQuiescent().ToString(), "OK");
}

TEST(DecodeEngineFaults, ALostDeviceIsReportedByEveryCollect) {
  const TinyWorld world(TinyWorld::Options{});
  const std::unique_ptr<DecodeEngine> engine = world.MakeEngine({.kv_tokens = 512});
  Peer peer(*engine);
  peer.Open(1, {1, 2, 3});
  ASSERT_TRUE(engine->Launch(1));
  world.ops->Break();
  EXPECT_EQ(engine->Collect(1).status().code(), absl::StatusCode::kInternal);
  EXPECT_FALSE(engine->Launch(1));
  EXPECT_EQ(engine->Collect(1).status().code(), absl::StatusCode::kInternal);
}

TEST(DecodeEngineOptions, OptionsOutOfRangeAreRefusedByName) {
  const TinyWorld& world = PlainWorld();
  const auto message = [&](const EngineOptions& options) {
    return std::string(
        DecodeEngine::Make(options, {}, *world.model, *world.ops).status().message());
  };
  EXPECT_EQ(message({.max_sessions = 0}), "max_sessions is 0: it must be 1 to 4096");
  EXPECT_EQ(message({.step_tokens = 257}), "step_tokens is 257: it must be 1 to 256");
  EXPECT_EQ(message({.context_length = 513}), "context_length is 513: it must be 0 to 512");
  EXPECT_EQ(message({.max_rewind = 0}), "max_rewind is 0: it must be 1 to 512");
  EXPECT_EQ(message({.max_drafts = 33}), "max_drafts is 33: it must be 0 to 32");
  EXPECT_EQ(DecodeEngine::Make({}, {1, 2}, *world.model, *world.ops).status().message(),
            "defined_bits has 2 words for 283 ids");
}

TEST(DecodeEngineOptions, TheCapacityIsStatedWithItsFormula) {
  const std::unique_ptr<DecodeEngine> engine =
      PlainWorld().MakeEngine({.max_sessions = 4, .kv_tokens = 640});
  EXPECT_EQ(engine->CapacityText(),
            "4 sessions of up to 512 tokens, 256 rows a step\n"
            "2 layers, full attention: 10 pages * 64 = 640 tokens of 2048 bytes = 1 MiB");
}

TEST(DecodeEngineOptions, UndefinedIdsAreOutsideEveryRow) {
  const TinyWorld& world = PlainWorld();
  std::vector<uint32_t> defined((static_cast<size_t>(world.vocab_size()) + 31) / 32, 0);
  defined[0] = 0b1111;  // ids 0 to 3
  absl::StatusOr<std::unique_ptr<DecodeEngine>> engine =
      DecodeEngine::Make({.kv_tokens = 512}, defined, *world.model, *world.ops);
  ASSERT_TRUE(engine.ok());
  Peer peer(**engine);
  peer.Open(1, {100, 101});
  peer.Run();
  const Candidates candidates = peer.Last<CandidatesEvent>(1).candidates;
  EXPECT_EQ(candidates.summary.num_in_row, 4);
  for (const kernels::TopEntry& entry : candidates.top) EXPECT_LT(entry.id, 4);
  const Decider decider({}, 0, 2, std::vector<int32_t>{100, 101}, world.vocab_size(), defined);
  EXPECT_EQ(decider.DecideFromCandidates(candidates).token, candidates.summary.drawn);
}

}  // namespace
}  // namespace tandem::test
