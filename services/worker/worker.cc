#include "services/worker/worker.h"

#include <chrono>
#include <random>
#include <utility>

#include "absl/strings/str_split.h"
#include "engine/base/check.h"
#include "engine/base/status.h"
#include "engine/memory_plan.h"
#include "services/common/decode_codec.h"
#include "services/common/logging.h"
#include "services/worker/hello.h"
#include "services/worker/self_test.h"

namespace tandem {
namespace {

// A secret of the process: who knew it could make prompts that collide in the prefix index.
uint64_t RandomSeed() {
  std::random_device source;
  return (static_cast<uint64_t>(source()) << 32) | source();
}

std::string Message(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Worker>> Worker::Listen(ServerOptions options) {
  options.max_receive_bytes = kMaxFrameBytes;
  options.max_send_bytes = kMaxFrameBytes;
  std::unique_ptr<Worker> worker(new Worker());
  grpc::Service* const services[] = {&worker->health_, &worker->service_};
  ASSIGN_OR_RETURN(worker->server_, RpcServer::Start(options, services));
  return worker;
}

Worker::Worker() : health_({kDecodeServiceName}), dispatcher_(mailbox_) {}

Worker::~Worker() {
  // Calls end before what they use goes, and the engine's thread before what OnFatal uses.
  if (server_ != nullptr) server_->Shutdown(std::chrono::milliseconds(0));
  loop_.reset();
}

absl::Status Worker::Load(const Checkpoint& checkpoint, std::unique_ptr<kernels::Ops> ops,
                          LoadOptions options, const Model::Progress& progress) {
  TANDEM_CHECK(ops_ == nullptr) << "Load is called once";
  ops_ = std::move(ops);
  options.engine.kv_format = ops_->info().default_kv;
  options.engine.hash_seed = RandomSeed();
  ends_.SetLogAll(options.log_sessions);
  drain_patience_ = options.engine.drain_spread + kDrainPatience;
  const int32_t limit = checkpoint.config().context_length;
  if (options.engine.context_length > limit) {
    return absl::OutOfRangeError(absl::StrCat("--context ", options.engine.context_length,
                                              ": this model's limit is ", limit));
  }
  ASSIGN_OR_RETURN(const TokenizerData tokenizer, checkpoint.Tokenizer());
  const Model::Options model_options = {.max_rows = options.engine.step_tokens,
                                        .context_length = options.engine.context_length,
                                        .checked = options.checked};
  ASSIGN_OR_RETURN(const MemoryPlan memory,
                   PlanMemory(checkpoint, model_options, options.engine, *ops_));
  for (absl::string_view line : absl::StrSplit(memory.Table(), '\n')) LogInfo(line);
  RETURN_IF_ERROR(memory.Fits());
  ASSIGN_OR_RETURN(
      model_, Model::Load(checkpoint, options.engine.kv_format, model_options, *ops_, progress));
  RETURN_IF_ERROR(SelfTest(options.engine.kv_format, *model_, *ops_));
  ASSIGN_OR_RETURN(
      std::unique_ptr<DecodeEngine> engine,
      DecodeEngine::Make(options.engine, DefinedBits(tokenizer, model_->config().vocab_size),
                         *model_, *ops_));
  auto served = std::make_shared<ServedEngine>();
  served->hello = MakeHello({.model_name = options.name,
                             .engine = options.engine,
                             .config = model_->config(),
                             .context_length = model_->context_length(),
                             .total_pages = engine->load().total_pages,
                             .backend = ops_->info(),
                             .tokenizer = tokenizer,
                             .weights_fingerprint = checkpoint.WeightsFingerprint()});
  served->limits = {.context_length = model_->context_length(),
                    .max_choices = options.engine.max_choices,
                    .max_run_ahead = options.engine.max_run_ahead,
                    .max_drafts = options.engine.max_drafts,
                    .max_retain = options.engine.max_retain};
  served->outbox_bytes = OutboxBytes(options.engine.max_sessions, options.engine.max_run_ahead,
                                     model_->config().vocab_size);
  decode::v1::TokenizerData message;
  ToProto(tokenizer, &message);
  served->tokenizer = message.SerializeAsString();
  served->mailbox = &mailbox_;
  served->dispatcher = &dispatcher_;
  served->ends = &ends_;
  description_ =
      absl::StrCat(options.name, " (", model_->config().architecture, ") on ", ops_->info().device);
  served_ = std::move(served);
  loop_ = std::make_unique<EngineLoop>(std::move(engine), ops_->info().asynchronous, mailbox_,
                                       dispatcher_, ends_,
                                       [this](const absl::Status& status) { OnFatal(status); });
  {
    std::lock_guard lock(mutex_);
    loaded_ = {.device_kind = ops_->info().name,
               .memory = memory,
               .step_rows = options.engine.step_tokens};
  }
  service_.Serve(served_);
  health_.Set(kDecodeServiceName, true);
  return absl::OkStatus();
}

WorkerSnapshot Worker::Snapshot() const {
  WorkerSnapshot out;
  {
    std::lock_guard lock(mutex_);
    if (!loaded_) return out;
    out = *loaded_;
  }
  out.streams = dispatcher_.num_streams();
  out.load = dispatcher_.load().value_or(EngineLoad());
  out.counts = loop_->counts();
  out.ends = ends_.counts();
  return out;
}

absl::Status Worker::Health() const {
  std::lock_guard lock(mutex_);
  if (fault_) return *fault_;
  if (drain_requested_) return absl::UnavailableError("the worker is draining");
  if (!loaded_) return absl::UnavailableError("the model is being loaded");
  return absl::OkStatus();
}

absl::Status Worker::Run() {
  std::optional<absl::Status> fault;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return drain_requested_ || fault_; });
    fault = fault_;
  }
  if (!fault) return Drain();
  server_->Shutdown(kStreamPatience);
  return *fault;
}

absl::Status Worker::Drain() {
  // Whoever looks for a worker stops coming before sessions are turned away.
  health_.Shutdown();
  const absl::Status why = absl::UnavailableError("the worker is shutting down");
  service_.Refuse(why);
  if (loop_ != nullptr && !loop_->Drain(drain_patience_)) {
    LogWarning("sessions still run after the time for a drain; their streams are cut");
  }
  dispatcher_.EndAll(why);
  server_->Shutdown(kStreamPatience);
  std::lock_guard lock(mutex_);
  return fault_.value_or(absl::OkStatus());
}

void Worker::RequestDrain() {
  std::lock_guard lock(mutex_);
  drain_requested_ = true;
  changed_.notify_all();
}

void Worker::OnFatal(const absl::Status& status) {
  LogError(Message(status), "; every stream ends, and so does this worker");
  health_.Shutdown();
  const absl::Status why = absl::UnavailableError("the worker lost its device");
  service_.Refuse(why);
  dispatcher_.AbortAll(why);
  std::lock_guard lock(mutex_);
  fault_ = status;
  changed_.notify_all();
}

}  // namespace tandem
