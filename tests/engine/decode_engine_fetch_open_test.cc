// Fetch and Open as the protocol has them: answers and refusals.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/engine/decode_engine_protocol_fixture.h"

namespace tandem::test {
namespace {

// ---- Fetch -----------------------------------------------------------------------------------

TEST_F(DecodeEngineProtocol, AFetchedRowHasTheBitsOfTheFullLogits) {
  Opened(1, 130);
  for (const int32_t position : {130, 129, 65, 64, 63 + 10}) {
    peer.Fetch(1, position, FetchCommand::What::kRow);
    peer.Run();
    const FetchedEvent fetched = peer.Last<FetchedEvent>(1);
    EXPECT_EQ(fetched.position, position);
    EXPECT_EQ(fetched.values, Logits({tokens.begin(), tokens.begin() + position}));
  }
  // The session goes on as if nothing had been fetched.
  tokens.push_back(peer.Last<CandidatesEvent>(1).candidates.summary.drawn);
  peer.Extend(1, 130, 0, {tokens.back()});
  peer.Run();
  EXPECT_TRUE(SameBits(peer.Last<CandidatesEvent>(1).candidates, Fresh(tokens, 130)));
}

TEST_F(DecodeEngineProtocol, FetchedIdsAreRawLogitsInTheOrderAsked) {
  Opened(1, 30);
  FetchCommand fetch;
  fetch.handle = {0, 1};
  fetch.position = 30;
  fetch.what = FetchCommand::What::kIds;
  fetch.ids = {9, 0, 200, 9};
  engine->Fetch(fetch, 1);
  peer.Run();
  const std::vector<float> row = Logits(tokens);
  EXPECT_EQ(peer.Last<FetchedEvent>(1).values,
            (std::vector<float>{row[9], row[0], row[200], row[9]}));
}

TEST_F(DecodeEngineProtocol, FetchMoreGivesLargerListsOfTheSameRow) {
  tokens = RandomTokens(15, 40, world.vocab_size());
  SamplingParameters sampling;
  sampling.temperature = 1.3f;
  sampling.repetition_penalty = 1.2f;
  sampling.num_top = 2;
  sampling.num_perturbed = 1;
  peer.Open(1, tokens, 0, sampling);
  peer.Run();
  const Candidates small = peer.Last<CandidatesEvent>(1).candidates;
  peer.FetchMore(1, 40, 50, 16);
  peer.Run();
  const Candidates large = peer.Last<FetchedEvent>(1).candidates;
  EXPECT_EQ(large.top.size(), 50u);
  EXPECT_EQ(large.perturbed.size(), 16u);
  EXPECT_EQ(large.top[1].id, small.top[1].id);
  EXPECT_EQ(large.perturbed[0].id, small.perturbed[0].id);
  const Decider decider(sampling, 0, 40, tokens, world.vocab_size(), {});
  EXPECT_EQ(decider.DecideFromCandidates(large).token, decider.DecideFromRow(Logits(tokens)).token);
  // The next Candidates do not have the fetched sizes.
  const int32_t token = decider.DecideFromCandidates(large).token;
  const bool differs = small.summary.drawn >= 0 && small.summary.drawn != token;
  EXPECT_FALSE(differs);
  peer.Extend(1, 40, 0, {token});
  peer.Run();
  EXPECT_EQ(peer.Last<CandidatesEvent>(1).candidates.top.size(), 2u);
}

TEST_F(DecodeEngineProtocol, AFetchInASharedPageLeavesTheOtherChoicesAlone) {
  SamplingParameters sampling;
  sampling.temperature = 1.0f;
  tokens = RandomTokens(16, 140, world.vocab_size());
  peer.Open(1, tokens, 20, sampling, 2);
  peer.Run();
  peer.Fetch(2, 100, FetchCommand::What::kRow);
  peer.Run();
  EXPECT_EQ(peer.Last<FetchedEvent>(2).values, Logits({tokens.begin(), tokens.begin() + 100}));
  for (const uint64_t number : {1, 2}) {
    std::vector<int32_t> list = tokens;
    list.push_back(peer.Last<CandidatesEvent>(number).candidates.summary.drawn);
    peer.Extend(number, 140, 0, {list.back()});
    peer.Run();
    peer.Fetch(number, 141, FetchCommand::What::kRow);
    peer.Run();
    EXPECT_EQ(peer.Last<FetchedEvent>(number).values, Logits(list));
  }
}

TEST_F(DecodeEngineProtocol, AFetchWhosePositionIsCutStaysUnanswered) {
  Opened(1, 30);
  peer.Fetch(1, 30, FetchCommand::What::kRow);
  peer.Fetch(1, 20, FetchCommand::What::kRow);
  peer.Extend(1, 25, 1, {OtherThan(tokens[25])});
  peer.Run();
  const std::vector<FetchedEvent> fetched = peer.All<FetchedEvent>(1);
  ASSERT_EQ(fetched.size(), 1u);
  EXPECT_EQ(fetched[0].position, 20);
  // The same for one whose row is in flight.
  peer.Fetch(1, 26, FetchCommand::What::kRow);
  ASSERT_TRUE(engine->Launch(1));
  peer.Extend(1, 24, 2, {});
  peer.Run();
  ASSERT_TRUE(engine->Collect(1).ok());
  EXPECT_EQ(peer.All<FetchedEvent>(1).size(), 1u);
}

TEST_F(DecodeEngineProtocol, FetchesOutsideTheRulesAreRefused) {
  Opened(1, 10);
  peer.Fetch(1, 11, FetchCommand::What::kRow);
  peer.ExpectRefused(1, "position must be 1 to 10");
  Opened(2, 200);
  peer.Fetch(2, 71, FetchCommand::What::kRow);
  peer.ExpectRefused(2, "position must be 72 to 200");
  Opened(3, 10);
  peer.Fetch(3, std::numeric_limits<int32_t>::min(), FetchCommand::What::kRow);
  peer.ExpectRefused(3, "position must be");
  Opened(4, 10);
  peer.FetchMore(4, 10, kernels::kMaxTop + 1, 8);
  peer.ExpectRefused(4, "num_top is 1025");
  Opened(5, 10);
  peer.FetchMore(5, 10, 20, 0);
  peer.ExpectRefused(5, "num_perturbed is 0");
  Opened(6, 10);
  FetchCommand ids;
  ids.handle = {0, 6};
  ids.position = 10;
  ids.what = FetchCommand::What::kIds;
  ids.ids = {3, world.vocab_size()};
  engine->Fetch(ids, 1);
  peer.ExpectRefused(6, "ids are 0 to");
  Opened(7, 10);
  for (int32_t i = 0; i <= kMaxFetches; ++i) peer.Fetch(7, 10, FetchCommand::What::kRow);
  peer.ExpectRefused(7, "16 fetches wait");
  Opened(8, 10);
  peer.Fetch(8, 10, static_cast<FetchCommand::What>(9));
  peer.ExpectRefused(8, "what is 9");
  peer.Open(9, tokens);
  peer.Fetch(9, 1, FetchCommand::What::kRow);
  peer.ExpectRefused(9, "position must be 1 to 0");
}

// ---- Open ------------------------------------------------------------------------------------

TEST_F(DecodeEngineProtocol, B047_B049_OpensOutsideTheRulesAreRefusedByField) {
  struct Case {
    const char* text;
    void (*spoil)(OpenCommand*);
  };
  const Case cases[] = {
      {"tokens is empty", [](OpenCommand* open) { open->tokens.clear(); }},
      {"tokens[1] is -1", [](OpenCommand* open) { open->tokens[1] = -1; }},
      {"tokens[2] is 100000", [](OpenCommand* open) { open->tokens[2] = 100000; }},
      {"tokens has 512: fewer than 512",
       [](OpenCommand* open) {
         open->tokens.assign(512, 1);
         open->prompt_length = 512;
       }},
      {"tokens has 8: fewer than 8",
       [](OpenCommand* open) {
         open->tokens.assign(8, 1);
         open->prompt_length = 4;
         open->max_new = 4;
       }},
      {"prompt_length is 0", [](OpenCommand* open) { open->prompt_length = 0; }},
      {"prompt_length is 5", [](OpenCommand* open) { open->prompt_length = 5; }},
      {"max_new is -1", [](OpenCommand* open) { open->max_new = -1; }},
      {"first_choice is 4294967295",
       [](OpenCommand* open) {
         open->first_choice = 4294967295u;
         open->choices = 2;
       }},
      {"choices is 0", [](OpenCommand* open) { open->choices = 0; }},
      {"choices is 17", [](OpenCommand* open) { open->choices = 17; }},
      {"choices is -2147483648",
       [](OpenCommand* open) { open->choices = std::numeric_limits<int32_t>::min(); }},
      {"there are 8 slots", [](OpenCommand* open) { open->choices = 9; }},
      {"temperature is nan", [](OpenCommand* open) { open->sampling.temperature = NAN; }},
      {"logit_bias has id 100000",
       [](OpenCommand* open) {
         open->sampling.logit_bias = {{100000, 1.0f}};
       }},
      {"report_ids has id -1",
       [](OpenCommand* open) {
         open->sampling.want_raw = true;
         open->sampling.report_ids = {-1};
       }},
  };
  uint64_t number = 1;
  for (const Case& it : cases) {
    SCOPED_TRACE(it.text);
    OpenCommand open;
    open.first = {0, number};
    open.tokens = {1, 2, 3, 4};
    open.prompt_length = 4;
    it.spoil(&open);
    engine->Open(open, 1);
    peer.ExpectRefused(number, it.text);
    number += 100;
  }
}

TEST_F(DecodeEngineProtocol, ARefusedOpenClosesEveryHandleOfItsRange) {
  peer.Open(5, {1, -2}, 0, {}, 3);
  for (uint64_t number = 5; number < 8; ++number) peer.ExpectRefused(number, "tokens[1] is -2");
  EXPECT_TRUE(peer.All<ClosedEvent>(8).empty());
}

TEST_F(DecodeEngineProtocol, AnOpenOnALiveHandleClosesItOnce) {
  Opened(4, 10);
  peer.Open(3, tokens, 0, {}, 3);
  for (uint64_t number = 3; number < 6; ++number) {
    peer.ExpectRefused(number, "handle 4 is opened twice");
  }
  peer.Run();
  EXPECT_EQ(peer.All<ClosedEvent>(4).size(), 1u);
}

TEST_F(DecodeEngineProtocol, HandlesThatWouldPass2To64AreRefused) {
  const uint64_t last = std::numeric_limits<uint64_t>::max();
  peer.Open(last, {1, 2}, 0, {}, 2);
  peer.ExpectRefused(last, "choices is 2");
  peer.Open(last, {1, 2});
  peer.Run();
  EXPECT_EQ(peer.All<CandidatesEvent>(last).size(), 1u);
}

TEST_F(DecodeEngineProtocol, CommandsForHandlesThatAreNotLiveAreIgnored) {
  Opened(1, 10);
  engine->Close({{0, 1}}, 1);
  engine->Close({{0, 1}}, 1);
  peer.Extend(1, 10, 0, {1});
  peer.Fetch(1, 10, FetchCommand::What::kRow);
  peer.Extend(99, 0, 0, {1});
  engine->Close({{0, 98}}, 1);
  peer.Run();
  EXPECT_EQ(peer.All<ClosedEvent>(1).size(), 1u);
  EXPECT_TRUE(peer.All<ClosedEvent>(98).empty());
  EXPECT_TRUE(peer.All<ClosedEvent>(99).empty());
}

}  // namespace
}  // namespace tandem::test
