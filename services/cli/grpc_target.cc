#include "services/cli/grpc_target.h"

#include <chrono>
#include <utility>

#include <grpcpp/client_context.h>

#include "absl/strings/str_cat.h"
#include "engine/base/check.h"
#include "engine/base/status.h"

namespace tandem::cli {
namespace {

std::string ErrorLine(const absl::Status& status) {
  return absl::StrCat(absl::StatusCodeToString(status.code()), ": ",
                      status.message().substr(0, 200));
}

ServerSide ToServerSide(const v1::Finished& finished) {
  const auto nanos = [](const google::protobuf::Duration& duration) {
    return duration.seconds() * kNanosPerSecond + duration.nanos();
  };
  const v1::Counters& counters = finished.counters();
  return {.queue = nanos(finished.timings().queue()),
          .prefill = nanos(finished.timings().prefill()),
          .from_lists = counters.from_lists(),
          .fetched = counters.fetched(),
          .misses = counters.misses(),
          .faults = counters.faults(),
          .rewound = counters.rewound(),
          .reopened = counters.reopened(),
          .approximate = counters.approximate()};
}

}  // namespace

// Lives until its OnDone.
class GrpcTarget::Call final : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  Call(GrpcTarget* target, std::function<void(LoadResult)> done)
      : target_(target), done_(std::move(done)) {}

  void Start(Connection& connection, BenchPrompt prompt) {
    request_ = target_->options_.request;
    if (!prompt.ids.empty()) {
      request_.mutable_token_ids()->mutable_ids()->Add(prompt.ids.begin(), prompt.ids.end());
    } else {
      request_.set_prompt(std::move(prompt.text));
    }
    if (target_->options_.timeout_seconds > 0) {
      context_.set_deadline(
          std::chrono::system_clock::now() +
          std::chrono::microseconds(static_cast<int64_t>(target_->options_.timeout_seconds * 1e6)));
    }
    connection.Authorize(&context_);
    connection.generation().async()->Generate(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }
  void Cancel() {
    cancelled_ = true;
    context_.TryCancel();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (response_.has_started()) {
      result_.prompt_tokens = response_.started().prompt_tokens();
    } else if (response_.has_delta()) {
      if (const int64_t tokens = response_.delta().token_ids_size(); tokens > 0) Note(tokens);
    } else if (response_.has_finished()) {
      const v1::Finished& finished = response_.finished();
      finished_ = true;
      result_.cached_tokens = finished.usage().cached_tokens();
      result_.server = ToServerSide(finished);
      if (finished.reason() == v1::FINISH_REASON_ERROR ||
          finished.reason() == v1::FINISH_REASON_DEADLINE ||
          finished.reason() == v1::FINISH_REASON_CANCELLED) {
        result_.error = absl::StrCat(v1::FinishReason_Name(finished.reason()), ": ",
                                     finished.error().substr(0, 200));
      }
    }
    StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    result_.done = SteadyNow();
    result_.cancelled = cancelled_;
    if (!status.ok()) {
      result_.error = ErrorLine(FromGrpc(status));
    } else if (!finished_) {
      result_.error = "the stream ended early";
    }
    {
      std::lock_guard lock(target_->mutex_);
      target_->calls_.erase(this);
    }
    const auto done = std::move(done_);
    LoadResult result = std::move(result_);
    delete this;
    done(std::move(result));
  }

 private:
  void Note(int64_t tokens) {
    const Nanos now = SteadyNow();
    if (result_.first == 0) {
      result_.first = now;
    } else {
      result_.gaps.push_back(now - result_.last);
    }
    result_.last = now;
    result_.output_tokens += tokens;
    target_->meter_->output_tokens += tokens;
  }

  GrpcTarget* const target_;
  std::function<void(LoadResult)> done_;
  v1::GenerateRequest request_;
  grpc::ClientContext context_;
  v1::GenerateResponse response_;
  LoadResult result_;
  bool finished_ = false;
  std::atomic<bool> cancelled_{false};
};

absl::StatusOr<std::unique_ptr<GrpcTarget>> GrpcTarget::Dial(const ConnectionFlags& flags,
                                                             GrpcTargetOptions options,
                                                             const PromptSource* prompts,
                                                             LoadMeter* meter) {
  std::vector<std::unique_ptr<Connection>> connections;
  for (int32_t i = 0; i < options.connections; ++i) {
    ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection, Connection::Dial(flags));
    connections.push_back(std::move(connection));
  }
  return std::unique_ptr<GrpcTarget>(
      new GrpcTarget(std::move(connections), std::move(options), prompts, meter));
}

GrpcTarget::GrpcTarget(std::vector<std::unique_ptr<Connection>> connections,
                       GrpcTargetOptions options, const PromptSource* prompts, LoadMeter* meter)
    : connections_(std::move(connections)),
      options_(std::move(options)),
      prompts_(prompts),
      meter_(meter) {}

GrpcTarget::~GrpcTarget() { TANDEM_CHECK(calls_.empty()) << calls_.size() << " calls run"; }

void GrpcTarget::Send(int64_t number, std::function<void(LoadResult)> done) {
  Call* const call = new Call(this, std::move(done));
  {
    std::lock_guard lock(mutex_);
    calls_.insert(call);
  }
  // Not touched after Start: it may be over.
  call->Start(*connections_[static_cast<size_t>(number) % connections_.size()],
              prompts_->Get(number));
}

void GrpcTarget::CancelAll() {
  std::lock_guard lock(mutex_);
  for (Call* const call : calls_) call->Cancel();
}

}  // namespace tandem::cli
