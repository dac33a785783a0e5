// The public API over real streams: answers, errors, cancel, deadlines, overload, slow clients.
#include <gmock/gmock.h>
#include <grpc/grpc.h>
#include <grpcpp/create_channel.h>

#include <google/protobuf/stubs/logging.h>

#include <future>
#include <string>
#include <thread>
#include <vector>

#include "services/common/decode_codec.h"
#include "tests/services/text/service_fixture.h"

namespace tandem::text {
namespace {

using grpc::StatusCode;
using std::chrono::milliseconds;
using test::ScriptedWorkerOptions;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

ScriptedWorkerOptions Paced(milliseconds step_time, int32_t context_length = 512) {
  ScriptedWorkerOptions options;
  options.step_time = step_time;
  options.decoder.context_length = context_length;
  return options;
}

TEST_F(ServiceTest, AnswersAPrompt) {
  AddWorker();
  Serve();
  const Answer answer = Ask(Prompt("hello", 12));
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.started.size(), 1u);
  EXPECT_EQ(answer.started[0].prompt_tokens(), 1);
  EXPECT_EQ(answer.token_ids.at(0).size(), 12u);
  EXPECT_EQ(answer.finished.at(0).reason(), v1::FINISH_REASON_MAX_TOKENS);
  EXPECT_EQ(
      answer.finished.at(0).counters().from_lists() + answer.finished.at(0).counters().fetched(),
      12);
  EXPECT_TRUE(Eventually([this] { return LiveSessions() == 0 && server_->active() == 0; }));
}

TEST_F(ServiceTest, TheSeedThatItTellsRepeatsTheAnswer) {
  AddWorker();
  Serve();
  v1::GenerateRequest request = Prompt("hello", 20);
  request.mutable_sampling()->set_temperature(1.0f);
  const Answer first = Ask(request);
  const Answer other = Ask(request);
  EXPECT_NE(first.started.at(0).seed(), other.started.at(0).seed());
  request.mutable_sampling()->set_seed(first.started[0].seed());
  EXPECT_EQ(Ask(request), first);
}

class ShardedServiceTest : public ServiceTest, public testing::WithParamInterface<int32_t> {};
INSTANTIATE_TEST_SUITE_P(Shards, ShardedServiceTest, testing::Values(1, 2));

// Two workers, 32 requests of all kinds at once: each gives what it gives alone.
TEST_P(ShardedServiceTest, B111_B113_ConcurrentRequestsGiveWhatEachGivesAlone) {
  AddWorker();
  AddWorker();
  options_.shards = GetParam();
  Serve();
  ASSERT_TRUE(Eventually([this] {
    v1::ListModelsResponse models;
    grpc::ClientContext context;
    return stub_->ListModels(&context, {}, &models).ok() && models.models(0).workers() == 2;
  }));
  std::vector<v1::GenerateRequest> requests;
  for (int i = 0; i < 32; ++i) {
    v1::GenerateRequest request = Prompt("prompt number " + std::to_string(i * 7), 10 + i);
    v1::Sampling& sampling = *request.mutable_sampling();
    sampling.set_temperature(0.25f * static_cast<float>(i % 5));
    sampling.set_seed(static_cast<uint64_t>(i));
    if (i % 2 == 0) sampling.set_top_p(0.9f);
    if (i % 3 == 0) sampling.set_frequency_penalty(1.05f);
    if (i % 4 == 0) sampling.set_n(3);
    if (i % 5 == 0) request.mutable_stopping()->add_stop_strings("e");
    requests.push_back(std::move(request));
  }
  std::vector<Answer> alone;
  for (const v1::GenerateRequest& request : requests) alone.push_back(Ask(request));
  std::vector<std::future<Answer>> together;
  for (const v1::GenerateRequest& request : requests) {
    together.push_back(std::async(std::launch::async, [&] { return Ask(request); }));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const Answer answer = together[i].get();
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer, alone[i]) << "request " << i;
    for (const auto& [choice, finished] : answer.finished) {
      EXPECT_EQ(finished.counters().misses(), 0);
      EXPECT_EQ(finished.counters().faults(), 0);
    }
  }
  for (const auto& worker : workers_) {
    EXPECT_GT(worker->totals().opens, 0) << "load goes to both";
    EXPECT_LT(worker->totals().max_frame_bytes, kMaxFrameBytes);
  }
  EXPECT_TRUE(Eventually([this] { return LiveSessions() == 0; }));
}

TEST_F(ServiceTest, AnswersAChat) {
  AddWorker();
  Serve();
  v1::GenerateRequest request = Prompt("", 5);
  v1::Message* message = request.mutable_chat()->add_messages();
  message->set_role("user");
  message->set_content("hello");
  const Answer answer = Ask(request);
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_GT(answer.started.at(0).prompt_tokens(), 10);
}

TEST_F(ServiceTest, ListsItsModels) {
  AddWorker();
  Serve();
  grpc::ClientContext context;
  v1::ListModelsResponse models;
  ASSERT_TRUE(stub_->ListModels(&context, {}, &models).ok());
  ASSERT_EQ(models.models_size(), 1);
  const v1::Model& model = models.models(0);
  EXPECT_EQ(model.name(), "scripted");
  EXPECT_EQ(model.context_length(), 512);
  EXPECT_EQ(model.vocab_size(), test::kRowSize);
  EXPECT_EQ(model.tokenizer_fingerprint().size(), 32u);
  EXPECT_THAT(model.end_ids(), ElementsAre(test::kImEnd, test::kEndOfText));
  EXPECT_EQ(model.workers(), 1);
  EXPECT_TRUE(model.has_chat_template());
  grpc::ClientContext one;
  v1::GetModelRequest request;
  v1::GetModelResponse response;
  ASSERT_TRUE(stub_->GetModel(&one, request, &response).ok());
  EXPECT_EQ(response.model().SerializeAsString(), model.SerializeAsString());
  grpc::ClientContext none;
  request.set_model("other");
  EXPECT_EQ(stub_->GetModel(&none, request, &response).error_code(), StatusCode::NOT_FOUND);
}

TEST_F(ServiceTest, TokenizesAndBack) {
  AddWorker();
  Serve();
  v1::TokenizeRequest request;
  request.set_text("hello \xC3\xA9<|im_end|>");
  request.set_parse_special(true);
  v1::TokenizeResponse tokens;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(stub_->Tokenize(&context, request, &tokens).ok());
  }
  ASSERT_EQ(tokens.tokens_size(), 5);
  EXPECT_EQ(tokens.tokens(0).piece(), "hello");
  EXPECT_EQ(tokens.tokens(0).end(), 5);
  EXPECT_EQ(tokens.tokens(4).id(), test::kImEnd);
  EXPECT_EQ(tokens.tokens(4).begin(), 8);
  v1::DetokenizeRequest ids;
  for (const v1::Token& token : tokens.tokens()) ids.add_ids(token.id());
  for (const bool include : {false, true}) {
    ids.set_include_special(include);
    grpc::ClientContext context;
    v1::DetokenizeResponse text;
    ASSERT_TRUE(stub_->Detokenize(&context, ids, &text).ok());
    EXPECT_EQ(text.text(), include ? request.text() : "hello \xC3\xA9");
  }
  ids.add_ids(test::kSmallVocab);
  grpc::ClientContext context;
  v1::DetokenizeResponse text;
  const grpc::Status status = stub_->Detokenize(&context, ids, &text);
  EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), AllOf(HasSubstr("ids"), HasSubstr("265")));
}

TEST_F(ServiceTest, BadRequestsHaveTheirStatus) {
  AddWorker();
  Serve();
  v1::GenerateRequest request = Prompt("x", 5);
  request.set_model("other");
  EXPECT_EQ(Ask(request).status.error_code(), StatusCode::NOT_FOUND);
  request = Prompt("x", 5);
  request.mutable_sampling()->set_temperature(-2.0f);
  const grpc::Status status = Ask(request).status;
  EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("sampling.temperature is -2"));
}

// A client's protobuf library may not check: the bytes arrive, and the field is named.
TEST_F(ServiceTest, B061_APromptThatIsNotUtf8IsInvalidArgumentByName) {
  AddWorker();
  Serve();
  const google::protobuf::LogSilencer quiet;
  const Answer answer = Ask(Prompt("abc\xC2", 5));
  EXPECT_EQ(answer.status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(answer.status.error_message(), AllOf(HasSubstr("prompt"), HasSubstr("byte 3")));
}

TEST_F(ServiceTest, B143_RequestsUpToTheLimitAreReadAndOneByteMoreIsRefused) {
  AddWorker();
  Serve();
  v1::GenerateRequest request = Prompt(std::string(4 << 20, 'x'), 5);
  Answer answer = Ask(request);
  EXPECT_EQ(answer.status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(answer.status.error_message(), HasSubstr("more than 511 tokens"));
  request = Prompt("x", 5);
  request.set_request_id("");
  const size_t rest = request.ByteSizeLong();
  request.set_model(std::string(kMaxRequestBytes - rest - 5, 'm'));
  ASSERT_EQ(request.ByteSizeLong(), static_cast<size_t>(kMaxRequestBytes));
  EXPECT_EQ(Ask(request).status.error_code(), StatusCode::NOT_FOUND);
  request.set_model(std::string(kMaxRequestBytes - rest - 4, 'm'));
  EXPECT_EQ(Ask(request).status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(ServiceTest, B023_B117_CancelReachesTheWorkerAtOnce) {
  test::ScriptedWorker& worker = AddWorker(Paced(milliseconds(5), 100'000));
  Serve();
  int deltas = 0;
  const Answer answer = Ask(Prompt("go", 90'000), [&](grpc::ClientContext& context, const auto& m) {
    if (m.has_delta() && ++deltas == 3) context.TryCancel();
  });
  EXPECT_EQ(answer.status.error_code(), StatusCode::CANCELLED);
  EXPECT_TRUE(Eventually([&] { return worker.totals().live == 0 && server_->active() == 0; }));
  EXPECT_EQ(worker.totals().closes, 1);
  EXPECT_LT(worker.totals().extends, 1000) << "it did not run to the end";
}

TEST_F(ServiceTest, CancelBeforeTheFirstTokenReachesTheWorker) {
  test::ScriptedWorker& worker = AddWorker(Paced(std::chrono::seconds(3600)));
  Serve();
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, Prompt("go", 5));
  ASSERT_TRUE(Eventually([&] { return worker.totals().live == 1; }));
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::CANCELLED);
  EXPECT_TRUE(Eventually([&] { return worker.totals().live == 0 && server_->active() == 0; }));
}

TEST_F(ServiceTest, B147_TheDeadlineEndsTheRequestOnBothTiers) {
  test::ScriptedWorker& worker = AddWorker(Paced(milliseconds(10), 100'000));
  Serve();
  const Answer answer = Ask(Prompt("go", 90'000), nullptr, milliseconds(600));
  // Finished comes shortly before the deadline; on a loaded machine the deadline may still win.
  if (answer.status.ok()) {
    EXPECT_EQ(answer.finished.at(0).reason(), v1::FINISH_REASON_DEADLINE);
  } else {
    EXPECT_EQ(answer.status.error_code(), StatusCode::DEADLINE_EXCEEDED);
  }
  EXPECT_TRUE(Eventually([&] { return worker.totals().live == 0 && server_->active() == 0; }));
}

TEST_F(ServiceTest, B125_MoreThanTheLimitIsRefusedAtOnce) {
  test::ScriptedWorker& worker = AddWorker(Paced(milliseconds(5), 100'000));
  options_.max_requests = 3;
  Serve();
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> readers;
  for (int i = 0; i < 3; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(stub_->Generate(contexts.back().get(), Prompt("go", 90'000)));
  }
  ASSERT_TRUE(Eventually([&] { return worker.totals().live == 3; }));
  const Answer refused = Ask(Prompt("go", 5));
  EXPECT_EQ(refused.status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.status.error_message(), HasSubstr("at most 3"));
  for (const auto& context : contexts) context->TryCancel();
  for (const auto& reader : readers) reader->Finish();
  ASSERT_TRUE(Eventually([&] { return server_->active() == 0; }));
  EXPECT_TRUE(Ask(Prompt("go", 5)).status.ok());
}

TEST_F(ServiceTest, FlagsAreCheckedInOneLine) {
  TextServerOptions options;
  const auto message = [&] { return std::string(TextServer::Start(options).status().message()); };
  EXPECT_THAT(message(), HasSubstr("--worker"));
  options.workers = {"nowhere"};
  EXPECT_THAT(message(), AllOf(HasSubstr("--worker nowhere"), HasSubstr("host:port")));
  options.workers = {"localhost:1"};
  options.shards = 0;
  EXPECT_THAT(message(), AllOf(HasSubstr("--shards is 0"), HasSubstr("64")));
  options.shards = 1;
  options.max_requests = -1;
  EXPECT_THAT(message(), AllOf(HasSubstr("--max-requests is -1"), HasSubstr("65536")));
  options.max_requests = 1;
  options.replay.tries = 101;
  EXPECT_THAT(message(), AllOf(HasSubstr("--replay-tries is 101"), HasSubstr("100")));
  options.replay = {.tries = 0, .wait = 3601 * kNanosPerSecond};
  EXPECT_THAT(message(), AllOf(HasSubstr("--replay-wait-seconds is 3601"), HasSubstr("3600")));
  options.replay.wait = 0;
  options.listen = "x";
  EXPECT_THAT(message(), HasSubstr("--listen"));
}

}  // namespace
}  // namespace tandem::text
