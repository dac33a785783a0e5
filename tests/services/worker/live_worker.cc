#include "tests/services/worker/live_worker.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "engine/base/check.h"
#include "services/common/channel.h"
#include "services/common/decode_codec.h"
#include "services/worker/backend.h"

namespace tandem::test {
namespace {

template <typename T>
T Checked(absl::StatusOr<T> result) {
  TANDEM_CHECK(result.ok()) << result.status();
  return *std::move(result);
}

}  // namespace

LiveWorker::LiveWorker(const Options& options) : options_(options) {
  GgufWriter file = TinyModelWriter(TinyModelOptions());
  if (!options.chat_template.empty()) {
    file.Remove("tokenizer.chat_template").Text("tokenizer.chat_template", options.chat_template);
  }
  if (options.nan_token >= 0) {
    std::string& bytes = file.FindTensor("token_embd.weight")->bytes;
    const size_t line = static_cast<size_t>(TinyModelOptions().hidden_size) * sizeof(float);
    std::memset(bytes.data() + static_cast<size_t>(options.nan_token) * line, 0xFF, line);
  }
  TANDEM_CHECK(WriteFile(folder_.File("tiny.gguf"), file.Build()));
  tokenizer_ = Checked(OpenModel()->Tokenizer());
  ServerOptions server;
  server.listen = "127.0.0.1:0";
  server.keepalive = options.keepalive;
  worker_ = Checked(Worker::Listen(server));
  if (options.load) {
    const absl::Status loaded = Load();
    TANDEM_CHECK(loaded.ok()) << loaded;
  }
}

LiveWorker::~LiveWorker() {
  switches_->Release();
  if (runner_.joinable()) {
    RequestDrain();
    runner_.join();
  }
}

std::unique_ptr<Checkpoint> LiveWorker::OpenModel() const {
  return Checked(OpenCheckpoint(folder_.File("tiny.gguf")));
}

absl::Status LiveWorker::Load() {
  auto ops = std::make_unique<BreakableOps>(Checked(MakeOps("cpu", 1)), switches_);
  const absl::Status loaded = worker_->Load(*OpenModel(), std::move(ops),
                                            {"tiny", options_.checked, options_.engine}, nullptr);
  if (loaded.ok()) runner_ = std::thread([this] { ended_ = worker_->Run(); });
  return loaded;
}

absl::Status LiveWorker::WaitForEnd() {
  runner_.join();
  return ended_;
}

grpc::health::v1::HealthCheckResponse::ServingStatus LiveWorker::health() const {
  ChannelOptions options;
  options.target = address();
  const auto client = grpc::health::v1::Health::NewStub(Checked(MakeChannel(options)));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(kDecodeServiceName);
  grpc::health::v1::HealthCheckResponse response;
  if (!client->Check(&context, request, &response).ok()) {
    return grpc::health::v1::HealthCheckResponse::UNKNOWN;
  }
  return response.status();
}

std::vector<int32_t> LiveWorker::GenerateWithoutService(const std::vector<int32_t>& prompt,
                                                        int32_t num_tokens) const {
  const auto ops = Checked(MakeOps("cpu", 1));
  const auto model = Checked(Model::Load(*OpenModel(), ops->info().default_kv,
                                         {.max_rows = options_.engine.step_tokens}, *ops, nullptr));
  const auto engine = Checked(DecodeEngine::Make(
      options_.engine, DefinedBits(tokenizer_, model->config().vocab_size), *model, *ops));
  OpenCommand open;
  open.first = {0, 1};
  open.tokens = prompt;
  open.prompt_length = static_cast<int32_t>(prompt.size());
  engine->Open(std::move(open), 0);
  auto position = static_cast<int32_t>(prompt.size());
  std::vector<int32_t> tokens;
  while (static_cast<int32_t>(tokens.size()) < num_tokens) {
    engine->Launch(0);
    Checked(engine->Collect(0));
    for (const EngineEvent& event : engine->TakeEvents()) {
      if (const auto* candidates = std::get_if<CandidatesEvent>(&event)) {
        tokens.push_back(candidates->candidates.summary.drawn);
        engine->Extend({{0, 1}, position++, 0, {tokens.back()}}, 0);
      }
    }
  }
  return tokens;
}

}  // namespace tandem::test
