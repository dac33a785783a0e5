// The checked mode: a value that is not finite is reported where it came from first.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/engine/decode_engine_harness.h"

namespace tandem::test {
namespace {

using Reason = ClosedEvent::Reason;

// How the one session of a world ends.
ClosedEvent EndOf(const TinyWorld& world, const std::vector<int32_t>& tokens) {
  const std::unique_ptr<DecodeEngine> engine = world.MakeEngine({.kv_tokens = 1024});
  Peer peer(*engine);
  peer.Open(1, tokens);
  peer.Run();
  const ClosedEvent closed = peer.Last<ClosedEvent>(1);
  EXPECT_EQ(engine->CheckQuiescent().ToString(), "OK");
  return closed;
}

TEST(DecodeEngineChecked, ANaNInATableIsReportedAtItsRowAndOthersGoOn) {
  for (const bool cpu : {false, true}) {
    const TinyWorld world({.nan_token = 50, .cpu = cpu, .checked = true});
    const std::unique_ptr<DecodeEngine> engine =
        world.MakeEngine({.max_sessions = 4, .kv_tokens = 2048});
    Peer peer(*engine);
    peer.Open(1, {10, 11, 50, 12});
    peer.Open(2, {10, 11, 49, 12});
    peer.Run();
    ASSERT_EQ(peer.All<ClosedEvent>(1).size(), 1u);
    EXPECT_EQ(peer.Last<ClosedEvent>(1).reason, Reason::kNonFinite);
    EXPECT_EQ(peer.Last<ClosedEvent>(1).detail,
              "embedding, row of position 2: value 0 is not finite");
    EXPECT_TRUE(peer.All<CandidatesEvent>(1).empty());
    EXPECT_EQ(peer.All<CandidatesEvent>(2).size(), 1u);
    EXPECT_TRUE(peer.All<ClosedEvent>(2).empty());
    engine->Close({{0, 2}}, 1);
    EXPECT_EQ(engine->CheckQuiescent().ToString(), "OK");
  }
}

// The first value of a matrix meets the first value of its input and of its output.
TEST(DecodeEngineChecked, ANaNInAWeightIsReportedWithLayerAndOperation) {
  const struct {
    const char* tensor;
    const char* detail;
  } cases[] = {
      {"blk.1.attn_q.weight", "queries of layer 1, row of position 0: value 0 is not finite"},
      {"blk.0.attn_k.weight",
       "keys and values of layer 0, row of position 0: value 0 is not finite"},
      // Behind 2 kv heads of 64 keys.
      {"blk.0.attn_v.weight",
       "keys and values of layer 0, row of position 0: value 128 is not finite"},
      {"blk.1.attn_output.weight",
       "attention projection of layer 1, row of position 0: value 0 is not finite"},
      {"blk.0.ffn_gate.weight", "gate of layer 0, row of position 0: value 0 is not finite"},
      {"blk.1.ffn_down.weight",
       "down projection of layer 1, row of position 0: value 0 is not finite"},
      // Only the row that somebody waits for has logits.
      {"output.weight", "logits, row of position 2: value 0 is not finite"},
  };
  for (const auto& [tensor, detail] : cases) {
    const TinyWorld world({.checked = true, .nan_tensor = tensor});
    const ClosedEvent closed = EndOf(world, {10, 11, 12});
    EXPECT_EQ(closed.reason, Reason::kNonFinite) << tensor;
    EXPECT_EQ(closed.detail, detail) << tensor;
  }
}

TEST(DecodeEngineChecked, AValueOfAPromptIsReportedInTheStepThatComputesIt) {
  const TinyWorld world({.nan_token = 50, .checked = true});
  const std::unique_ptr<DecodeEngine> engine =
      world.MakeEngine({.max_sessions = 2, .step_tokens = 64, .kv_tokens = 1024});
  Peer peer(*engine);
  std::vector<int32_t> tokens = RandomTokens(3, 200, 49);
  tokens[70] = 50;
  peer.Open(1, tokens);
  peer.Run();
  EXPECT_EQ(peer.Last<ClosedEvent>(1).detail,
            "embedding, row of position 70: value 0 is not finite");
  ASSERT_FALSE(peer.All<PrefillEvent>(1).empty());
  EXPECT_LE(peer.Last<PrefillEvent>(1).done, 70);
}

TEST(DecodeEngineChecked, LogitsHaveTheSameBits) {
  const TinyWorld plain({.cpu = true});
  const TinyWorld checked({.cpu = true, .checked = true});
  const std::vector<int32_t> tokens = RandomTokens(5, 90, 200);
  EXPECT_EQ(checked.Logits(tokens), plain.Logits(tokens));
}

}  // namespace
}  // namespace tandem::test
