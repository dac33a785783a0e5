// Requests of a bench to any server with OpenAI's /v1/completions, streamed.
//
// What such a server does not say is not known: the tokens of a piece of text are counted by the
// usage at the end (until then, and where there is none, a piece counts as a token), the first
// token comes with the first piece that has text, and there are no times or counters of the server.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "services/cli/http_client.h"
#include "services/cli/load_generator.h"
#include "services/cli/load_plan.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::cli {

// The first model that GET /v1/models lists, or the one of that name, as the server describes it.
// NOT_FOUND: it is not there; UNAUTHENTICATED: a key is needed; UNAVAILABLE and others: no answer,
// or one that is no list of models.
absl::StatusOr<nlohmann::json> FindHttpModel(HttpClient& client, const std::string& name);

// The body of a streamed completion: what is set in the request, under OpenAI's names, and under
// those that servers commonly add for what OpenAI does not have (top_k, min_p, ignore_eos,
// stop_token_ids, repetition_penalty). INVALID_ARGUMENT names a field that has none of these.
absl::StatusOr<nlohmann::json> CompletionBody(const v1::GenerateRequest& request);

// Thread-safe.
class HttpTarget final : public LoadTarget {
 public:
  // body: of all requests, but for the prompt. All must outlive this.
  HttpTarget(HttpClient* client, nlohmann::json body, const PromptSource* prompts, LoadMeter* meter)
      : client_(client), body_(std::move(body)), prompts_(prompts), meter_(meter) {}

  void Send(int64_t number, std::function<void(LoadResult)> done) override;
  void CancelAll() override { client_->CancelAll(); }

 private:
  HttpClient* const client_;
  const nlohmann::json body_;
  const PromptSource* const prompts_;
  LoadMeter* const meter_;
};

}  // namespace tandem::cli
