// What is there for speed changes no token, through both programs: run-ahead, drafts, one shard of
// the text tier or eight, alone or together.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/fleet.h"
#include "tests/support/tiny_model.h"

namespace tandem::test {
namespace {

constexpr int kRequests = 65;

// Half of them may draw a few ids only, so that they repeat themselves.
std::vector<v1::GenerateRequest> Requests() {
  std::vector<v1::GenerateRequest> requests;
  for (int i = 0; i < kRequests; ++i) {
    v1::GenerateRequest request;
    request.set_prompt("same " + std::to_string(i) + " same same");
    request.set_max_tokens(24);
    v1::Sampling& sampling = *request.mutable_sampling();
    sampling.set_seed(static_cast<uint64_t>(i));
    sampling.set_temperature(i % 3 == 0 ? 0.0f : 0.8f);
    if (i % 2 == 0) {
      for (const int id : {68, 69, 70}) sampling.add_allowed_ids(id);
    }
    if (i % 4 == 1) sampling.set_top_k(20);
    if (i % 4 == 2) sampling.set_repetition_penalty(1.1f);
    if (i % 4 == 3) sampling.set_presence_penalty(0.5f);
    if (i % 5 == 4) sampling.set_frequency_penalty(0.2f);
    if (i % 8 == 0) sampling.set_n(2);
    request.mutable_stopping()->set_ignore_eos(true);
    request.mutable_response()->set_token_ids(true);
    requests.push_back(std::move(request));
  }
  return requests;
}

using Tokens = std::vector<std::vector<int32_t>>;  // by choice

std::vector<Tokens> Together(Fleet* fleet) {
  const std::vector<v1::GenerateRequest> requests = Requests();
  std::vector<CallResult> results(requests.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < requests.size(); ++i) {
    threads.emplace_back([&, i] { results[i] = fleet->Generate(requests[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<Tokens> tokens;
  for (const CallResult& result : results) {
    EXPECT_TRUE(result.status.ok()) << result.status.error_message();
    for (const v1::Finished& finished : result.finished) {
      EXPECT_EQ(finished.counters().misses(), 0);
      EXPECT_EQ(finished.counters().faults(), 0);
    }
    tokens.push_back(result.token_ids);
  }
  return tokens;
}

TEST(SameTokens, OfOneShardAndEightWithAndWithoutRunAheadAndDrafts) {
  const TemporaryFolder folder;
  const std::string model = folder.File("tiny.gguf");
  std::ofstream(model, std::ios::binary) << TinyModel(TinyModelOptions{});

  Fleet plain({model, {"--max-run-ahead", "0", "--max-drafts", "0"}, {"--shards", "1"}});
  std::vector<Tokens> alone;
  for (const v1::GenerateRequest& request : Requests()) {
    alone.push_back(plain.Generate(request).token_ids);
    ASSERT_FALSE(alone.back().empty());
    ASSERT_EQ(alone.back()[0].size(), 24u);
  }
  EXPECT_EQ(plain.WorkerLoad().value().drafted_tokens(), 0);
  EXPECT_EQ(Together(&plain), alone);

  for (const char* shards : {"1", "8"}) {
    SCOPED_TRACE(std::string(shards) + " shards");
    Fleet fast({model, {"--max-sessions", "80"}, {"--shards", shards}});
    EXPECT_EQ(Together(&fast), alone);
    std::vector<Tokens> again;
    for (const v1::GenerateRequest& request : Requests()) {
      again.push_back(fast.Generate(request).token_ids);
    }
    EXPECT_EQ(again, alone);
    EXPECT_GT(fast.WorkerLoad().value().taken_drafts(), 0);
  }
}

}  // namespace
}  // namespace tandem::test
