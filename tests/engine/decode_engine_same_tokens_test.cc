// Nothing that is there for speed changes a token: run-ahead, drafts, neighbours, list sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/decode_engine_harness.h"

namespace tandem::test {
namespace {

constexpr int32_t kNeighbours = 64;
constexpr int32_t kWanted = 24;
// Steps that results wait before they are decided: the way to the text tier and back.
constexpr size_t kWay = 3;

struct ListSizes {
  int32_t top = 20;
  int32_t perturbed = 8;
};

struct Totals {
  int64_t decided = 0;  // this and `fetched` without the neighbours
  int64_t misses = 0;
  int64_t fetched = 0;
  int64_t taken_drafts = 0;
  int32_t depth = 0;  // most positions that one session had sent and that were not decided yet
};

class SameTokensTest : public testing::Test {
 protected:
  // Half of them draw from a few ids, so that they repeat themselves.
  static std::vector<Request> Requests(int32_t vocab_size) {
    std::vector<Request> requests = MixedRequests(12, vocab_size);
    for (size_t i = 0; i < requests.size(); ++i) {
      Request& request = requests[i];
      request.wanted = kWanted;
      if (i % 2 == 1) continue;
      for (int32_t& token : request.tokens) token = 40 + token % 3;
      request.sampling.banned_ids.clear();
      request.sampling.logit_bias.clear();
      request.sampling.allowed_ids = {40, 41, 42};
    }
    return requests;
  }
  static std::vector<Request> Neighbours(int32_t vocab_size) {
    std::vector<Request> requests = MixedRequests(kNeighbours, vocab_size);
    for (Request& request : requests) {
      request.tokens.resize(std::min<size_t>(request.tokens.size(), 20));
      request.prompt_length = static_cast<int32_t>(request.tokens.size());
      request.run_ahead = 2;
      request.drafts = 4;
    }
    return requests;
  }
  static EngineOptions Options() {
    EngineOptions options;
    options.max_sessions = kNeighbours + 1;
    options.max_queued = 2 * kNeighbours;
    options.step_tokens = 128;
    options.kv_tokens = int64_t{kNeighbours + 1} * 512;
    return options;
  }

  // The request's outcome, with steps that overlap and results that are decided kWay steps later.
  Outcome Generate(const Request& request, const std::vector<Request>& neighbours) {
    const std::unique_ptr<DecodeEngine> engine = world.MakeEngine(Options());
    TextTier tier(*engine, world.vocab_size());
    const SessionHandle handle = tier.Start(request);
    for (const Request& neighbour : neighbours) tier.Start(neighbour);
    std::deque<std::vector<EngineEvent>> on_the_way;
    bool is_idle = false;
    while (!is_idle || !on_the_way.empty()) {
      const bool launched = engine->Launch(1);
      if (launched) engine->Launch(1);
      const absl::StatusOr<bool> collected = engine->Collect(1);
      EXPECT_TRUE(collected.ok());
      std::vector<EngineEvent> events = engine->TakeEvents();
      is_idle = !launched && !*collected && events.empty();
      if (!is_idle) on_the_way.push_back(std::move(events));
      std::map<SessionHandle, int32_t> sent;
      for (const std::vector<EngineEvent>& batch : on_the_way) {
        for (const EngineEvent& event : batch) {
          const auto* candidates = std::get_if<CandidatesEvent>(&event);
          if (candidates == nullptr) continue;
          totals.depth = std::max(totals.depth, ++sent[candidates->handle] - 1);
        }
      }
      if (on_the_way.empty() || (on_the_way.size() < kWay && !is_idle)) continue;
      tier.Handle(std::move(on_the_way.front()));
      on_the_way.pop_front();
      is_idle = false;
    }
    EXPECT_EQ(engine->CheckQuiescent().ToString(), "OK");
    totals.taken_drafts += engine->load().taken_drafts;
    for (const Outcome* outcome : tier.outcomes()) {
      totals.misses += outcome->misses;
      EXPECT_TRUE(outcome->faults.empty());
    }
    const Outcome& outcome = tier.outcome(handle);
    totals.decided += static_cast<int64_t>(outcome.output.size());
    totals.fetched += outcome.fetched;
    return outcome;
  }

  const TinyWorld world{TinyWorld::Options{.cpu = true}};
  Totals totals;
};

TEST_F(SameTokensTest, WithAnyRunAheadDraftsNeighboursAndListSizes) {
  const std::vector<Request> neighbours = Neighbours(world.vocab_size());
  int32_t turn = 0;
  std::map<int32_t, Totals> of_lists;  // by the length of the top list
  for (const Request& request : Requests(world.vocab_size())) {
    const std::vector<int32_t> expected = RunAlone(world, Options(), request).output;
    ASSERT_EQ(expected.size(), size_t{kWanted});
    for (const ListSizes sizes : {ListSizes{1, 1}, ListSizes{20, 8}, ListSizes{1024, 64}}) {
      totals = {};
      for (const int32_t run_ahead : {0, 1, 2, 4}) {
        for (const int32_t drafts : {0, 4}) {
          Request changed = request;
          changed.sampling.num_top = sizes.top;
          changed.sampling.num_perturbed = sizes.perturbed;
          changed.run_ahead = run_ahead;
          changed.drafts = drafts;
          const std::string what = "run_ahead " + std::to_string(run_ahead) + ", drafts " +
                                   std::to_string(drafts) + ", lists " + std::to_string(sizes.top);
          EXPECT_EQ(Generate(changed, {}).output, expected) << what;
          // Not all of those that take long.
          if (++turn % 23 != 7) continue;
          EXPECT_EQ(Generate(changed, neighbours).output, expected) << what << ", among others";
        }
      }
      Totals& all = of_lists[sizes.top];
      all.decided += totals.decided;
      all.misses += totals.misses;
      all.fetched += totals.fetched;
      all.taken_drafts += totals.taken_drafts;
      all.depth = std::max(all.depth, totals.depth);
    }
  }
  for (const auto& [top, all] : of_lists) {
    SCOPED_TRACE("lists of " + std::to_string(top));
    EXPECT_EQ(all.misses, 0) << "hit rate below 100 %";
    EXPECT_GE(all.depth, 2);
    EXPECT_GT(all.taken_drafts, 0);
    const double share = static_cast<double>(all.fetched) / static_cast<double>(all.decided);
    RecordProperty("fetch_share_" + std::to_string(top), std::to_string(share));
    std::printf("lists of %d: %.2f %% of %lld tokens were fetched, %lld drafts taken, depth %d\n",
                top, 100 * share, static_cast<long long>(all.decided),
                static_cast<long long>(all.taken_drafts), all.depth);
  }
  const auto share = [&](int32_t top) {
    return static_cast<double>(of_lists[top].fetched) / static_cast<double>(of_lists[top].decided);
  };
  EXPECT_LT(share(1), 0.5);
  EXPECT_GT(share(1), 0.0);
  EXPECT_LT(share(20), 0.01);
  EXPECT_EQ(share(1024), 0.0);
}

}  // namespace
}  // namespace tandem::test
