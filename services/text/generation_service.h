// tandem.v1.Generation: takes requests in, counts them, hands them to the shards.
//
// Requests arrive as bytes and are parsed here: gRPC's own parser answers a message that is not
// UTF-8 with UNIMPLEMENTED and no word about the field.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/text/router.h"
#include "services/text/shard.h"
#include "services/text/task_pool.h"
#include "services/text/text_metrics.h"
#include "tandem/v1/generation.grpc.pb.h"

namespace tandem::text {

struct GenerationServiceOptions {
  int32_t max_requests = 256;  // Generate calls at once; one more is RESOURCE_EXHAUSTED at once
  int32_t num_threads = 2;     // for templates and tokenizers
  int32_t drafts = 0;          // most drafts of a step, where the worker makes any
};

// The largest legal request has a text of kMaxEncodeBytes and some lists.
inline constexpr int32_t kMaxRequestBytes = 8 << 20;
// What clients take unless told otherwise.
inline constexpr int32_t kMaxResponseBytes = 4 << 20;

// Every method takes and gives bytes.
using RawGeneration = v1::Generation::WithRawCallbackMethod_Generate<
    v1::Generation::WithRawCallbackMethod_Tokenize<v1::Generation::WithRawCallbackMethod_Detokenize<
        v1::Generation::WithRawCallbackMethod_ListModels<
            v1::Generation::WithRawCallbackMethod_GetModel<v1::Generation::Service>>>>>;

class GenerationService final : public RawGeneration {
 public:
  // router, shards and refusals must outlive this; at least one shard. refusals: counts requests
  // that come to no shard.
  GenerationService(const GenerationServiceOptions& options, const Router* router,
                    std::vector<Shard*> shards, RefusalCounts* refusals);

  // Generate calls that are not done.
  int32_t active() const { return active_; }
  // Requests that wait to be read.
  int32_t tasks_waiting() const { return pool_.waiting(); }
  // From now on Generate is refused with UNAVAILABLE.
  void Drain() { draining_ = true; }

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
  // Answers in the pool's threads.
  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                                   absl::Status (GenerationService::*method)(const Request&,
                                                                             Response*) const);

  absl::Status DoTokenize(const v1::TokenizeRequest& request, v1::TokenizeResponse* out) const;
  absl::Status DoDetokenize(const v1::DetokenizeRequest& request,
                            v1::DetokenizeResponse* out) const;
  absl::Status DoListModels(const v1::ListModelsRequest& request,
                            v1::ListModelsResponse* out) const;
  absl::Status DoGetModel(const v1::GetModelRequest& request, v1::GetModelResponse* out) const;

  absl::StatusOr<GenerationRequest> Prepare(const std::string& bytes) const;

  const GenerationServiceOptions options_;
  const Router* const router_;
  const std::vector<Shard*> shards_;
  RefusalCounts* const refusals_;
  std::atomic<int32_t> active_{0};
  std::atomic<uint64_t> last_key_{0};
  std::atomic<bool> draining_{false};
  TaskPool pool_;  // last, so that its tasks end first
};

}  // namespace tandem::text
