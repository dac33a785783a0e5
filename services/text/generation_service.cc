#include "services/text/generation_service.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/impl/codegen/proto_utils.h>

#include "engine/base/status.h"
#include "services/common/grpc_status.h"
#include "services/text/generate_call.h"
#include "services/text/grpc_key.h"
#include "services/text/message_check.h"
#include "services/text/queries.h"

namespace tandem::text {
namespace {

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

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerationService::Generate(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  const Nanos received = SteadyNow();
  const Nanos deadline = DeadlineOf(*context, received);
  auto call = std::make_shared<GenerateCall>(intake_->NextKey());
  auto* const reactor = call->MakeReactor();
  Intake::Place place;
  absl::Status admitted = CheckKey(keys_, *context);
  if (admitted.ok()) admitted = intake_->Admit(1, &place);
  const auto refuse = [intake = intake_, call](const absl::Status& status) {
    intake->CountRefusal(Door::kGrpc, status);
    call->Finish(status);
  };
  if (!admitted.ok()) {
    refuse(admitted);
    return reactor;
  }
  call->SetPlace(std::move(place));
  const absl::Status posted = intake_->Post(
      [intake = intake_, call, refuse, received, deadline, bytes = BytesOf(*request)] {
        if (call->cancelled()) return refuse(absl::CancelledError("cancelled"));
        // Before the work, too: what has expired is not worth it.
        if (deadline <= SteadyNow()) {
          return refuse(absl::DeadlineExceededError("the deadline passed"));
        }
        v1::GenerateRequest parsed;
        const absl::Status read = ParseMessage(bytes, &parsed);
        if (!read.ok()) return refuse(read);
        absl::StatusOr<GenerationRequest> prepared =
            intake->Prepare(parsed, Door::kGrpc, received, deadline);
        if (!prepared.ok()) return refuse(prepared.status());
        Shard* const shard = intake->ShardOf(*prepared);
        call->SetShard(shard);
        shard->Submit(call->key(), *std::move(prepared), call);
      });
  if (!posted.ok()) refuse(posted);
  return reactor;
}

template <typename Request, typename Response>
grpc::ServerUnaryReactor* GenerationService::Answer(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response, absl::Status (*answer)(const Router&, const Request&, Response*)) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  if (const absl::Status allowed = CheckKey(keys_, *context); !allowed.ok()) {
    reactor->Finish(ToGrpc(allowed));
    return reactor;
  }
  const auto run = [intake = intake_, answer, bytes = BytesOf(*request),
                    response]() -> absl::Status {
    Request parsed;
    RETURN_IF_ERROR(ParseMessage(bytes, &parsed));
    Response out;
    RETURN_IF_ERROR(answer(intake->router(), parsed, &out));
    RETURN_IF_ERROR(CheckResponseSize(out));
    bool own_buffer = false;
    return FromGrpc(grpc::SerializationTraits<Response>::Serialize(out, response, &own_buffer));
  };
  const absl::Status posted = intake_->Post([run, reactor] { reactor->Finish(ToGrpc(run())); });
  if (!posted.ok()) reactor->Finish(ToGrpc(posted));
  return reactor;
}

grpc::ServerUnaryReactor* GenerationService::Tokenize(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request,
                                                      grpc::ByteBuffer* response) {
  return Answer(context, request, response, &text::Tokenize);
}
grpc::ServerUnaryReactor* GenerationService::Detokenize(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request,
                                                        grpc::ByteBuffer* response) {
  return Answer(context, request, response, &text::Detokenize);
}
grpc::ServerUnaryReactor* GenerationService::ListModels(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request,
                                                        grpc::ByteBuffer* response) {
  return Answer(context, request, response, &text::ListModels);
}
grpc::ServerUnaryReactor* GenerationService::GetModel(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request,
                                                      grpc::ByteBuffer* response) {
  return Answer(context, request, response, &text::GetModel);
}

}  // namespace tandem::text
