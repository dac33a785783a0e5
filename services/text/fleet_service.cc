#include "services/text/fleet_service.h"

#include <algorithm>

#include "engine/text/utf8.h"
#include "services/common/decode_codec.h"
#include "services/common/grpc_status.h"
#include "services/text/grpc_key.h"
#include "services/text/message_check.h"

namespace tandem::text {
namespace {

v1::WorkerState StateOf(const Router::WorkerStatus& worker) {
  if (worker.draining) return v1::WORKER_STATE_DRAINING;
  return worker.suspect ? v1::WORKER_STATE_SUSPECT : v1::WORKER_STATE_SERVING;
}

void Fill(const decode::v1::Load& load, Nanos age, v1::WorkerLoad* out) {
  ToProto(age, out->mutable_age());
  out->set_step(load.step());
  out->set_running(load.running());
  out->set_queued(load.queued());
  out->set_free_pages(load.free_pages());
  out->set_total_pages(load.total_pages());
  out->set_cached_pages(load.cached_pages());
  *out->mutable_step_time() = load.step_time();
  out->set_queued_prefill_tokens(load.queued_prefill_tokens());
  out->set_prefilled_tokens(load.prefilled_tokens());
  out->set_reused_tokens(load.reused_tokens());
  out->set_evicted_pages(load.evicted_pages());
  out->set_preempted(load.preempted());
  out->set_drafted_tokens(load.drafted_tokens());
  out->set_taken_drafts(load.taken_drafts());
}

}  // namespace

void FleetService::Add(const WorkerConnection* connection) {
  std::lock_guard lock(mutex_);
  connections_.push_back(connection);
}

grpc::ServerUnaryReactor* FleetService::ListWorkers(grpc::CallbackServerContext* context,
                                                    const v1::ListWorkersRequest* request,
                                                    v1::ListWorkersResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  absl::Status status = CheckKey(keys_, *context);
  if (status.ok()) status = CheckMessage(*request);
  if (!status.ok()) {
    reactor->Finish(ToGrpc(status));
    return reactor;
  }
  std::lock_guard lock(mutex_);
  const std::vector<Router::WorkerStatus> connected = router_->Workers();
  for (const WorkerConnection* connection : connections_) {
    const WorkerConnection::State state = connection->state();
    v1::Worker* const out = response->add_workers();
    out->set_address(state.address);
    out->set_last_error(ReplaceInvalidUtf8(state.last_error));  // it may be the worker's text
    out->set_state(v1::WORKER_STATE_CONNECTING);
    const auto found =
        std::find_if(connected.begin(), connected.end(), [&](const Router::WorkerStatus& worker) {
          return worker.ref.connection == state.connection;
        });
    if (found == connected.end()) continue;
    out->set_state(StateOf(*found));
    out->set_model(found->ref.model->name);
    out->set_device(state.device);
    out->set_weights_fingerprint(found->ref.model->weights_fingerprint);
    out->set_numerics_fingerprint(found->ref.model->numerics_fingerprint);
    out->set_sessions(static_cast<int32_t>(found->placed));
    if (found->load.has_value()) Fill(*found->load, found->load_age, out->mutable_load());
  }
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace tandem::text
