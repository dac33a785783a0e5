#include <utility>

#include "engine/base/status.h"
#include "services/text/openai/completion_fields.h"
#include "services/text/openai/completions.h"
#include "services/text/openai/fields.h"
#include "services/text/openai/json_body.h"

namespace tandem::text {
namespace {

absl::Status CheckMaxTokens(CompletionDraft* draft) {
  const bool chat = draft->call.endpoint == Endpoint::kChatCompletions;
  if (draft->max_completion_tokens.has_value()) {
    if (draft->max_tokens.value_or(*draft->max_completion_tokens) !=
        *draft->max_completion_tokens) {
      return FieldError("max_completion_tokens", " is ", *draft->max_completion_tokens,
                        ": it must be max_tokens, which is ", *draft->max_tokens);
    }
    draft->call.names.max_completion_tokens = !draft->max_tokens.has_value();
    draft->max_tokens = draft->max_completion_tokens;
  }
  if (!chat && !draft->max_tokens.has_value()) draft->max_tokens = kDefaultMaxTokens;
  if (!draft->max_tokens.has_value()) return absl::OkStatus();
  if (*draft->max_tokens == 0) {
    if (!draft->call.shape.echo) {
      return FieldError("max_tokens", " is 0: it must be at least 1, or 0 with echo");
    }
    if (draft->shared.min_tokens() > 0) {
      return FieldError("min_tokens", " is ", draft->shared.min_tokens(), ": max_tokens is 0");
    }
    draft->call.prompt_only = true;
    draft->max_tokens = 1;
  }
  draft->shared.set_max_tokens(static_cast<int32_t>(*draft->max_tokens));
  return absl::OkStatus();
}

absl::Status CheckLogprobs(CompletionDraft* draft) {
  CompletionCall& call = draft->call;
  if (draft->chat_logprobs) {
    draft->shared.mutable_response()->set_logprobs(
        static_cast<int32_t>(draft->top_logprobs.value_or(0)));
  } else if (draft->top_logprobs.value_or(0) > 0) {
    return FieldError("top_logprobs", " is ", *draft->top_logprobs, ": it needs logprobs");
  }
  call.shape.logprobs = draft->shared.response().has_logprobs();
  call.prompt_logprobs = draft->shared.response().has_prompt_logprobs();
  if (call.prompt_logprobs && call.stream) {
    return FieldError("prompt_logprobs", " is given with stream: it goes with a whole answer only");
  }
  if (call.shape.token_details) draft->shared.mutable_response()->set_token_details(true);
  // The id of an echo's first token stands nowhere else.
  const bool needs_ids = call.shape.tokens_as_ids && call.shape.logprobs && call.shape.echo;
  if (call.shape.token_ids || needs_ids) draft->shared.mutable_response()->set_token_ids(true);
  return absl::OkStatus();
}

absl::Status CheckTogether(CompletionDraft* draft) {
  CompletionCall& call = draft->call;
  if (draft->best_of.value_or(call.n) != call.n) {
    return FieldError("best_of", " is ", *draft->best_of, ": it must be n, which is ", call.n);
  }
  draft->shared.mutable_sampling()->set_n(call.n);
  if (draft->has_stream_options && !call.stream) {
    return FieldError("stream_options", " is given: it needs stream");
  }
  if (draft->shared.has_add_special() && !call.requests.front().has_prompt()) {
    return FieldError("add_special_tokens",
                      " is given with a prompt of token ids: it goes with text only");
  }
  call.shape.echo = draft->shared.response().echo();
  RETURN_IF_ERROR(CheckMaxTokens(draft));
  return CheckLogprobs(draft);
}

}  // namespace

absl::StatusOr<CompletionCall> ParseCompletionCall(Endpoint endpoint, std::string_view body) {
  ASSIGN_OR_RETURN(const nlohmann::json value, ParseJsonObject(body));
  const bool chat = endpoint == Endpoint::kChatCompletions;
  CompletionDraft draft;
  CompletionCall& call = draft.call;
  call.endpoint = call.shape.endpoint = call.names.endpoint = endpoint;
  RETURN_IF_ERROR(ReadFields(CompletionFields(), chat ? kOfChat : kOfCompletions,
                             chat ? "/v1/chat/completions" : "/v1/completions", value, &draft));
  if (chat) call.requests.emplace_back();  // its messages are what all else is part of
  RETURN_IF_ERROR(CheckTogether(&draft));
  for (v1::GenerateRequest& request : call.requests) request.MergeFrom(draft.shared);
  return std::move(call);
}

}  // namespace tandem::text
