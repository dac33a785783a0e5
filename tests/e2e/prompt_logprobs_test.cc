// Logprobs of a prompt through both programs, against the logits that transformers gives for the
// same tokens (tests/golden/model).
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/e2e/fleet.h"
#include "tests/support/golden.h"

namespace tandem::test {
namespace {

constexpr float kTolerance = 2e-3f;  // of the range of a row's logits

struct Answer {
  grpc::Status status;
  v1::Started started;
  std::vector<v1::PositionLogprobs> prompt;  // from position 1 on
  v1::Finished finished;
};

Answer Ask(Fleet& fleet, const v1::GenerateRequest& request) {
  Answer answer;
  grpc::ClientContext context;
  const auto reader = fleet.stub().Generate(&context, request);
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
    if (response.has_started()) answer.started = response.started();
    if (response.has_finished()) answer.finished = response.finished();
    if (!response.has_prompt_logprobs()) continue;
    const v1::PromptLogprobs& part = response.prompt_logprobs();
    EXPECT_EQ(part.first_position(), static_cast<int32_t>(answer.prompt.size()) + 1);
    answer.prompt.insert(answer.prompt.end(), part.positions().begin(), part.positions().end());
  }
  answer.status = reader->Finish();
  return answer;
}

TEST(PromptLogprobsE2e, AreThoseOfTheOraclesLogits) {
  const auto model = DefaultModel();
  if (!model) GTEST_SKIP() << "TANDEM_TEST_MODEL is not set";
  Fleet fleet({*model, {"--max-sessions", "4", "--context", "2048"}, {}});
  const nlohmann::json golden = ReadJson("tests/golden/model/default_model.json");
  const std::vector<int32_t> fixed_ids = golden["fixed_ids"].get<std::vector<int32_t>>();
  const size_t num_steps = golden["num_steps"].get<size_t>();
  for (const nlohmann::json& prompt : golden["prompts"]) {
    SCOPED_TRACE(prompt["name"].get<std::string>());
    const std::vector<int32_t> tokens = Ints(prompt["token"]);
    std::vector<int32_t> ids = Ints(prompt["prompt_ids"]);
    const size_t begin = ids.size();
    ids.insert(ids.end(), tokens.begin(), tokens.end());
    v1::GenerateRequest request;
    request.mutable_token_ids()->mutable_ids()->Assign(ids.begin(), ids.end());
    request.set_max_tokens(1);
    request.mutable_response()->set_prompt_logprobs(10);
    request.mutable_response()->set_logprobs(0);
    request.mutable_response()->mutable_report_ids()->Assign(fixed_ids.begin(), fixed_ids.end());
    const Answer answer = Ask(fleet, request);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.finished.usage().cached_tokens(), 0);
    ASSERT_EQ(answer.prompt.size(), ids.size() - 1);
    for (size_t i = 0; i < answer.prompt.size(); ++i) {
      ASSERT_EQ(answer.prompt[i].chosen().id(), ids[i + 1]);
    }
    const std::vector<float> log_sum_exp = Floats(prompt["log_sum_exp"]);
    const std::vector<float> min = Floats(prompt["min"]), max = Floats(prompt["max"]);
    const std::vector<float> fixed_logits = Floats(prompt["fixed_logits"]);
    const std::vector<int32_t> top_ids = Ints(prompt["top_ids"]);
    const std::vector<float> top_logits = Floats(prompt["top_logits"]);
    for (size_t step = 0; step < num_steps; ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      const v1::PositionLogprobs& got = answer.prompt[begin + step - 1];
      const float tolerance = kTolerance * (max[step] - min[step]);
      ASSERT_EQ(got.reported_size(), static_cast<int>(fixed_ids.size()));
      for (size_t k = 0; k < fixed_ids.size(); ++k) {
        const float want = fixed_logits[step * fixed_ids.size() + k] - log_sum_exp[step];
        ASSERT_NEAR(got.reported(static_cast<int>(k)).logprob(), want, tolerance);
      }
      // Of near ties either may come first.
      ASSERT_EQ(got.top_size(), 10);
      for (int rank = 0; rank < 10; ++rank) {
        const float want = top_logits[step * 10 + static_cast<size_t>(rank)] - log_sum_exp[step];
        ASSERT_NEAR(got.top(rank).logprob(), want, tolerance);
        if (got.chosen().id() == top_ids[step * 10 + static_cast<size_t>(rank)]) {
          ASSERT_NEAR(got.chosen().logprob(), want, tolerance);
        }
      }
    }
  }
  EXPECT_TRUE(fleet.WorkerIsFreeSoon());
}

}  // namespace
}  // namespace tandem::test
