// List sizes that follow a session's fetches.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tests/engine/decode_engine_protocol_fixture.h"

namespace tandem::test {
namespace {

class DecodeEngineListSizes : public DecodeEngineProtocol {
 protected:
  // Fetches lists for the open position, then confirms a token; the sizes of the next lists.
  std::pair<size_t, size_t> SizesAfterAFetch() {
    const int32_t position = static_cast<int32_t>(tokens.size());
    peer.FetchMore(1, position, 3, 3);
    peer.Run();
    return SizesAfter(peer.Last<FetchedEvent>(1).candidates);
  }
  std::pair<size_t, size_t> SizesAfter(const Candidates& best) {
    const int32_t position = static_cast<int32_t>(tokens.size());
    tokens.push_back(best.top[0].id);
    peer.Extend(1, position, 0, {tokens.back()});
    peer.Run();
    const Candidates next = peer.Last<CandidatesEvent>(1).candidates;
    return {next.top.size(), next.perturbed.size()};
  }
};

TEST_F(DecodeEngineListSizes, AFetchOfListsDoublesTheSecondListThenTheFirst) {
  tokens = RandomTokens(3, 12, world.vocab_size());
  SamplingParameters greedy;  // the best id is always the token
  greedy.num_top = 3;
  greedy.num_perturbed = 10;
  peer.Open(1, tokens, 0, greedy);
  peer.Run();
  using Sizes = std::pair<size_t, size_t>;
  EXPECT_EQ(SizesAfterAFetch(), Sizes(3, 20));
  EXPECT_EQ(SizesAfterAFetch(), Sizes(3, 40));
  // A row, or a decision without a fetch, changes nothing.
  peer.Fetch(1, static_cast<int32_t>(tokens.size()), FetchCommand::What::kRow);
  peer.Run();
  EXPECT_EQ(SizesAfter(peer.Last<CandidatesEvent>(1).candidates), Sizes(3, 40));
  EXPECT_EQ(SizesAfterAFetch(), Sizes(3, 64));
  EXPECT_EQ(SizesAfterAFetch(), Sizes(6, 64));
  EXPECT_EQ(SizesAfterAFetch(), Sizes(12, 64));
}

// Of the positions in [begin, end), those whose lists did not decide.
int64_t NumUndecided(const Outcome& outcome, int32_t begin, int32_t end) {
  return std::count_if(outcome.candidates.begin() + begin, outcome.candidates.begin() + end,
                       [](const Candidates& lists) { return lists.summary.drawn < 0; });
}

TEST_F(DecodeEngineListSizes, FetchesFallOffAndDecisionsDoNotDependOnTheSizes) {
  int64_t early = 0, late = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Request request;
    request.tokens = RandomTokens(seed, 20, world.vocab_size());
    request.wanted = 60;
    request.max_new = 60;
    request.run_ahead = static_cast<int32_t>(seed % 3);
    request.sampling.temperature = 2.0f;
    request.sampling.top_k = 12;
    request.sampling.repetition_penalty = 1.1f;
    request.sampling.seed = seed;
    request.sampling.num_top = kernels::kMaxTop;
    request.sampling.num_perturbed = kernels::kMaxPerturbed;
    const Outcome large = RunAlone(world, Options(), request);
    EXPECT_EQ(large.fetched, 0);
    request.sampling.num_top = request.sampling.num_perturbed = 1;
    const Outcome small = RunAlone(world, Options(), request);
    ASSERT_EQ(small.output.size(), 60u);
    EXPECT_EQ(small.output, large.output);
    EXPECT_EQ(small.misses, 0);
    early += NumUndecided(small, 0, 10);
    late += NumUndecided(small, 30, 60);
  }
  EXPECT_GE(early, 10);  // of 80 positions
  EXPECT_LT(late, early * 3 / 4) << "of 240: less than a quarter as often";
}

}  // namespace
}  // namespace tandem::test
