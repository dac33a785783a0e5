#include "services/text/generation_service.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include <grpcpp/impl/codegen/proto_utils.h>

#include "absl/hash/hash.h"
#include "engine/base/status.h"
#include "engine/text/utf8.h"
#include "services/common/grpc_status.h"
#include "services/text/generate_call.h"
#include "services/text/message_check.h"

namespace tandem::text {
namespace {

constexpr int32_t kMaxWaitingTasks = 64;  // beside those of Generate calls
constexpr int32_t kMaxTokensOfTokenize = 1 << 18;
constexpr Nanos kMaxDeadlineMargin = kNanosPerSecond / 10;

std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string out;
  if (!buffer.Dump(&slices).ok()) return out;
  for (const grpc::Slice& slice : slices) {
    out.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return out;
}

uint64_t RandomBits() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

// The call's deadline on the steady clock, a little early, so that Finished can still reach the
// client.
Nanos DeadlineOf(const grpc::CallbackServerContext& context, Nanos now) {
  if (context.deadline() == std::chrono::system_clock::time_point::max()) return kNoDeadline;
  const Nanos left = std::chrono::duration_cast<std::chrono::nanoseconds>(
                         context.deadline() - std::chrono::system_clock::now())
                         .count();
  if (left >= kNoDeadline - now) return kNoDeadline;
  return now + left - std::clamp<Nanos>(left / 10, 0, kMaxDeadlineMargin);
}

void FillModel(const Router::ModelCount& entry, v1::Model* out) {
  const ServedModel& model = *entry.model;
  out->set_name(model.name);
  out->set_architecture(model.architecture);
  out->set_context_length(model.context_length);
  out->set_vocab_size(model.vocab_size);
  out->set_weights_fingerprint(model.weights_fingerprint);
  out->set_tokenizer_fingerprint(model.tokenizer_fingerprint);
  out->mutable_end_ids()->Add(model.end_ids.begin(), model.end_ids.end());
  out->set_workers(entry.workers);
  out->set_has_chat_template(model.text->chat_template != nullptr);
}

}  // namespace

GenerationService::GenerationService(const GenerationServiceOptions& options, const Router* router,
                                     std::vector<Shard*> shards, RefusalCounts* refusals)
    : options_(options),
      router_(router),
      shards_(std::move(shards)),
      refusals_(refusals),
      pool_(options.num_threads, options.max_requests + kMaxWaitingTasks) {}

absl::StatusOr<GenerationRequest> GenerationService::Prepare(const std::string& bytes) const {
  v1::GenerateRequest request;
  RETURN_IF_ERROR(ParseMessage(bytes, &request));
  ASSIGN_OR_RETURN(std::shared_ptr<const ServedModel> model, router_->Find(request.model()));
  ASSIGN_OR_RETURN(GenerationRequest out, CheckRequest(request, std::move(model), RandomBits));
  out.drafts = std::min(options_.drafts, out.model->limits.max_drafts);
  out.run_ahead += out.drafts;
  return out;
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerationService::Generate(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  const Nanos received = SteadyNow();
  const Nanos deadline = DeadlineOf(*context, received);
  const int32_t active = ++active_;
  auto call = std::make_shared<GenerateCall>(++last_key_, [this] { --active_; });
  auto* const reactor = call->MakeReactor();
  const auto refuse = [this, call](Refusal reason, const absl::Status& status) {
    refusals_->Count(Door::kGrpc, reason, status);
    call->Finish(status);
  };
  if (draining_) {
    refuse(Refusal::kDraining, absl::UnavailableError("the server is shutting down"));
    return reactor;
  }
  if (active > options_.max_requests) {
    refuse(Refusal::kTooMany,
           ResourceExhausted("too many requests at once: at most ", options_.max_requests));
    return reactor;
  }
  const bool posted =
      pool_.Post([this, call, refuse, received, deadline, bytes = BytesOf(*request)] {
        if (call->cancelled()) return refuse(Refusal::kGone, absl::CancelledError("cancelled"));
        // Before the work, too: what has expired is not worth it.
        if (deadline <= SteadyNow()) {
          return refuse(Refusal::kGone, absl::DeadlineExceededError("the deadline passed"));
        }
        absl::StatusOr<GenerationRequest> prepared = Prepare(bytes);
        if (!prepared.ok()) return refuse(RefusalOf(prepared.status()), prepared.status());
        prepared->received = received;
        prepared->deadline = deadline;
        Shard* const shard =
            shards_[absl::Hash<std::string>()(prepared->request_id) % shards_.size()];
        call->SetShard(shard);
        shard->Submit(call->key(), *std::move(prepared), call);
      });
  if (!posted) {
    refuse(Refusal::kTooMany, ResourceExhausted("too many requests wait to be read"));
  }
  return reactor;
}

template <typename Request, typename Response>
grpc::ServerUnaryReactor* GenerationService::Answer(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response,
    absl::Status (GenerationService::*method)(const Request&, Response*) const) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const auto answer = [this, method, bytes = BytesOf(*request), response]() -> absl::Status {
    Request parsed;
    RETURN_IF_ERROR(ParseMessage(bytes, &parsed));
    Response out;
    RETURN_IF_ERROR((this->*method)(parsed, &out));
    if (out.ByteSizeLong() > kMaxResponseBytes) {
      return ResourceExhausted("the response would have ", out.ByteSizeLong(), " bytes: at most ",
                               kMaxResponseBytes);
    }
    bool own_buffer = false;
    return FromGrpc(grpc::SerializationTraits<Response>::Serialize(out, response, &own_buffer));
  };
  if (!pool_.Post([answer, reactor] { reactor->Finish(ToGrpc(answer())); })) {
    reactor->Finish(ToGrpc(ResourceExhausted("too many requests wait to be read")));
  }
  return reactor;
}

grpc::ServerUnaryReactor* GenerationService::Tokenize(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request,
                                                      grpc::ByteBuffer* response) {
  return Answer(context, request, response, &GenerationService::DoTokenize);
}
grpc::ServerUnaryReactor* GenerationService::Detokenize(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request,
                                                        grpc::ByteBuffer* response) {
  return Answer(context, request, response, &GenerationService::DoDetokenize);
}
grpc::ServerUnaryReactor* GenerationService::ListModels(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request,
                                                        grpc::ByteBuffer* response) {
  return Answer(context, request, response, &GenerationService::DoListModels);
}
grpc::ServerUnaryReactor* GenerationService::GetModel(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request,
                                                      grpc::ByteBuffer* response) {
  return Answer(context, request, response, &GenerationService::DoGetModel);
}

absl::Status GenerationService::DoTokenize(const v1::TokenizeRequest& request,
                                           v1::TokenizeResponse* out) const {
  ASSIGN_OR_RETURN(const std::shared_ptr<const ServedModel> model, router_->Find(request.model()));
  const Tokenizer& tokenizer = model->tokenizer();
  const auto encoding = tokenizer.Encode(request.text(), {.add_special = request.add_special(),
                                                          .parse_special = request.parse_special(),
                                                          .max_tokens = kMaxTokensOfTokenize});
  if (!encoding.ok()) {
    return absl::Status(encoding.status().code(),
                        absl::StrCat("text: ", encoding.status().message()));
  }
  for (size_t i = 0; i < encoding->ids.size(); ++i) {
    v1::Token* token = out->add_tokens();
    token->set_id(encoding->ids[i]);
    token->set_piece(ReplaceInvalidUtf8(tokenizer.Piece(encoding->ids[i])));
    token->set_begin(encoding->offsets[i].begin);
    token->set_end(encoding->offsets[i].end);
  }
  return absl::OkStatus();
}

absl::Status GenerationService::DoDetokenize(const v1::DetokenizeRequest& request,
                                             v1::DetokenizeResponse* out) const {
  ASSIGN_OR_RETURN(const std::shared_ptr<const ServedModel> model, router_->Find(request.model()));
  const std::vector<int32_t> ids(request.ids().begin(), request.ids().end());
  const auto text = model->tokenizer().Decode(ids, request.include_special());
  if (!text.ok()) return InvalidArgument("ids: ", text.status().message());
  out->set_text(*text);
  return absl::OkStatus();
}

absl::Status GenerationService::DoListModels(const v1::ListModelsRequest&,
                                             v1::ListModelsResponse* out) const {
  for (const Router::ModelCount& entry : router_->Models()) FillModel(entry, out->add_models());
  return absl::OkStatus();
}

absl::Status GenerationService::DoGetModel(const v1::GetModelRequest& request,
                                           v1::GetModelResponse* out) const {
  ASSIGN_OR_RETURN(const std::shared_ptr<const ServedModel> model, router_->Find(request.model()));
  for (const Router::ModelCount& entry : router_->Models()) {
    if (entry.model->SameModel(*model)) FillModel(entry, out->mutable_model());
  }
  return absl::OkStatus();
}

}  // namespace tandem::text
