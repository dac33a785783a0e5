// tandem.v1.Generation: gRPC's door to the intake.
//
// Requests arrive as bytes and are parsed here: gRPC's own parser answers a message that is not
// UTF-8 with UNIMPLEMENTED and no word about the field.
#pragma once

#include "absl/status/status.h"
#include "services/text/api_keys.h"
#include "services/text/intake.h"
#include "tandem/v1/generation.grpc.pb.h"

namespace tandem::text {

// Every method takes and gives bytes.
using RawGeneration = v1::Generation::WithRawCallbackMethod_Generate<
    v1::Generation::WithRawCallbackMethod_Tokenize<v1::Generation::WithRawCallbackMethod_Detokenize<
        v1::Generation::WithRawCallbackMethod_ListModels<
            v1::Generation::WithRawCallbackMethod_GetModel<v1::Generation::Service>>>>>;

class GenerationService final : public RawGeneration {
 public:
  // Both must outlive this. keys: what a call has to show one of, as metadata `authorization`, else
  // it is UNAUTHENTICATED; null: nothing.
  explicit GenerationService(Intake* intake, const ApiKeys* keys = nullptr)
      : intake_(intake), keys_(keys) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;

 private:
  // Answers in the intake's threads.
  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                                   absl::Status (*answer)(const Router&, const Request&,
                                                          Response*));

  Intake* const intake_;
  const ApiKeys* const keys_;
};

}  // namespace tandem::text
