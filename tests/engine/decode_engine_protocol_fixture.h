// A peer on an engine of a tiny model, for tests of single commands.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "tests/engine/decode_engine_harness.h"

namespace tandem::test {

class DecodeEngineProtocol : public testing::Test {
 protected:
  DecodeEngineProtocol() : peer(*engine) {}
  ~DecodeEngineProtocol() override {
    engine->CloseStream(0);
    while (true) {
      const absl::StatusOr<bool> collected = engine->Collect(1);
      if (!collected.ok() || !*collected) break;
    }
    EXPECT_EQ(engine->CheckQuiescent().ToString(), "OK");
  }
  static EngineOptions Options() {
    EngineOptions options;
    options.max_sessions = 8;
    options.step_tokens = 64;
    options.kv_tokens = 8 * 512;
    return options;
  }
  // An open session of `length` tokens with its first Candidates.
  CandidatesEvent Opened(uint64_t number, int32_t length, uint64_t seed = 1) {
    tokens = RandomTokens(seed, length, world.vocab_size());
    peer.Open(number, tokens);
    peer.Run();
    return peer.Last<CandidatesEvent>(number);
  }
  int32_t OtherThan(int32_t token) const { return (token + 1) % world.vocab_size(); }
  // The Candidates of a fresh session with these tokens; prompt_length as in Opened.
  Candidates Fresh(const std::vector<int32_t>& list, int32_t prompt_length) {
    const std::unique_ptr<DecodeEngine> other = world.MakeEngine(Options());
    Peer fresh(*other);
    OpenCommand open;
    open.first = {0, 1};
    open.tokens = list;
    open.prompt_length = std::min<int32_t>(prompt_length, static_cast<int32_t>(list.size()));
    other->Open(open, 1);
    fresh.Run();
    return fresh.Last<CandidatesEvent>(1).candidates;
  }

  std::vector<float> Logits(const std::vector<int32_t>& list) const { return world.Logits(list); }

  const TinyWorld& world = PlainWorld();
  std::unique_ptr<DecodeEngine> engine = world.MakeEngine(Options());
  Peer peer;
  std::vector<int32_t> tokens;
};

}  // namespace tandem::test
