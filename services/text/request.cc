#include "services/text/request.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/text/stop_matcher.h"
#include "engine/text/utf8.h"
#include "services/text/output_text.h"

namespace tandem::text {
namespace {

absl::Status InRange(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return InvalidArgument(field, " is ", value, ": it must be ", low, " to ", high);
}

absl::Status AtMost(const char* field, const char* what, int64_t count, int64_t limit) {
  if (count <= limit) return absl::OkStatus();
  return InvalidArgument(field, " has ", count, " ", what, ": at most ", limit);
}

absl::Status CheckIds(const char* field, const google::protobuf::RepeatedField<int32_t>& ids,
                      int32_t vocab_size) {
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size) {
      return InvalidArgument(field, " has id ", id, ": ids are 0 to ", vocab_size - 1);
    }
  }
  return absl::OkStatus();
}

std::vector<int32_t> ToVector(const google::protobuf::RepeatedField<int32_t>& values) {
  return {values.begin(), values.end()};
}

// Status with the name of the message that its field belongs to in front.
absl::Status Within(const char* message, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(message, ".", status.message()));
}

// An encoder's error about `field`; too many tokens is the caller's mistake, not a lack of
// resources.
absl::Status EncodeError(const char* field, const absl::Status& status, int32_t context_length) {
  if (absl::IsResourceExhausted(status)) {
    return InvalidArgument(field, " has more than ", context_length - 1,
                           " tokens: the context has ", context_length,
                           ", of which one at least is the output's");
  }
  return absl::Status(status.code(), absl::StrCat(field, ": ", status.message()));
}

EncodeOptions OptionsFor(const ServedModel& model) {
  EncodeOptions options;
  options.max_tokens = model.context_length - 1;
  return options;
}

absl::StatusOr<std::vector<int32_t>> EncodePrompt(const v1::GenerateRequest& request,
                                                  const ServedModel& model) {
  const std::string& prompt = request.prompt();
  RETURN_IF_ERROR(AtMost("prompt", "bytes", prompt.size(), kMaxEncodeBytes));
  EncodeOptions options = OptionsFor(model);
  options.add_special = request.has_add_special() ? request.add_special() : true;
  auto encoding = model.tokenizer().Encode(prompt, options);
  if (!encoding.ok()) return EncodeError("prompt", encoding.status(), model.context_length);
  return std::move(encoding->ids);
}

std::string SpecialText(const Tokenizer& tokenizer, int32_t id) {
  return id < 0 ? "" : tokenizer.TokenBytes(id, false, true);
}

absl::StatusOr<std::vector<int32_t>> EncodeChat(const v1::Chat& chat, const ServedModel& model) {
  if (chat.messages().empty()) return InvalidArgument("chat.messages is empty: at least one");
  RETURN_IF_ERROR(AtMost("chat.messages", "messages", chat.messages_size(), kMaxMessages));
  if (model.text->chat_template == nullptr) {
    return InvalidArgument("chat: ", model.text->chat_template_status.message());
  }
  int64_t bytes = 0;
  nlohmann::json messages = nlohmann::json::array();
  for (int i = 0; i < chat.messages_size(); ++i) {
    const v1::Message& message = chat.messages(i);
    if (message.role().empty()) return InvalidArgument("chat.messages[", i, "].role is empty");
    bytes += static_cast<int64_t>(message.role().size() + message.content().size());
    messages.push_back({{"role", message.role()}, {"content", message.content()}});
  }
  RETURN_IF_ERROR(AtMost("chat.messages", "bytes", bytes, kMaxEncodeBytes));
  const Tokenizer& tokenizer = model.tokenizer();
  const nlohmann::json variables = {
      {"messages", std::move(messages)},
      {"add_generation_prompt",
       chat.has_add_generation_prompt() ? chat.add_generation_prompt() : true},
      {"bos_token", SpecialText(tokenizer, tokenizer.data().bos_id)},
      {"eos_token", SpecialText(tokenizer, tokenizer.data().eos_id)},
  };
  auto rendered = model.text->chat_template->Render(variables);
  if (!rendered.ok()) {
    // A rendering limit is a limit of what a chat may be, so it is the caller's mistake too.
    return InvalidArgument("chat: ", rendered.status().message());
  }
  std::vector<TextPiece> pieces;
  pieces.reserve(rendered->size());
  for (const RenderedPiece& piece : *rendered) {
    pieces.push_back({.text = piece.text, .parse_special = !piece.from_content});
  }
  // The template writes the begin-of-text token itself where its model wants one.
  auto encoding = tokenizer.EncodePieces(pieces, OptionsFor(model));
  if (!encoding.ok()) return EncodeError("chat", encoding.status(), model.context_length);
  return std::move(encoding->ids);
}

absl::StatusOr<std::vector<int32_t>> CheckInput(const v1::GenerateRequest& request,
                                                const ServedModel& model) {
  std::vector<int32_t> ids;
  const char* field = "";
  switch (request.input_case()) {
    case v1::GenerateRequest::kPrompt: {
      field = "prompt";
      ASSIGN_OR_RETURN(ids, EncodePrompt(request, model));
      break;
    }
    case v1::GenerateRequest::kChat: {
      field = "chat";
      ASSIGN_OR_RETURN(ids, EncodeChat(request.chat(), model));
      break;
    }
    case v1::GenerateRequest::kTokenIds: {
      field = "token_ids";
      const auto& given = request.token_ids().ids();
      if (given.size() >= model.context_length) {
        return EncodeError(field, absl::ResourceExhaustedError(""), model.context_length);
      }
      RETURN_IF_ERROR(CheckIds("token_ids", given, model.tokenizer().vocab_size()));
      ids = ToVector(given);
      break;
    }
    case v1::GenerateRequest::INPUT_NOT_SET:
      return InvalidArgument("input is not set: one of prompt, chat and token_ids");
  }
  if (request.has_add_special() && !request.has_prompt()) {
    return InvalidArgument("add_special is set with ", field, ": it goes with prompt only");
  }
  if (ids.empty()) return InvalidArgument(field, " has no tokens: at least one");
  return ids;
}

absl::Status CheckLength(const v1::GenerateRequest& request, GenerationRequest* out) {
  const int32_t room = out->model->context_length - static_cast<int32_t>(out->prompt.size());
  if (request.has_max_tokens()) {
    const int32_t max_tokens = request.max_tokens();
    if (max_tokens < 1 || max_tokens > room) {
      return InvalidArgument("max_tokens is ", max_tokens, ": it must be 1 to ", room,
                             ", since the prompt has ", out->prompt.size(),
                             " tokens and the context ", out->model->context_length);
    }
    out->max_tokens = max_tokens;
  }
  return InRange("min_tokens", request.min_tokens(), 0, out->MaxNew());
}

absl::Status CheckStopping(const v1::Stopping& stopping, GenerationRequest* out) {
  RETURN_IF_ERROR(AtMost("stopping.stop_strings", "strings", stopping.stop_strings_size(),
                         StopMatcher::kMaxStops));
  for (int i = 0; i < stopping.stop_strings_size(); ++i) {
    const int64_t bytes = static_cast<int64_t>(stopping.stop_strings(i).size());
    if (bytes < 1 || bytes > StopMatcher::kMaxStopBytes) {
      return InvalidArgument("stopping.stop_strings[", i, "] has ", bytes,
                             " bytes: it must have 1 to ", StopMatcher::kMaxStopBytes);
    }
  }
  RETURN_IF_ERROR(
      AtMost("stopping.stop_token_ids", "ids", stopping.stop_token_ids_size(), kMaxStopTokens));
  RETURN_IF_ERROR(CheckIds("stopping.stop_token_ids", stopping.stop_token_ids(),
                           out->model->tokenizer().vocab_size()));
  out->stop_strings.assign(stopping.stop_strings().begin(), stopping.stop_strings().end());
  out->stop_token_ids = ToVector(stopping.stop_token_ids());
  out->ignore_eos = stopping.ignore_eos();
  out->include_stop = stopping.include_stop();
  return absl::OkStatus();
}

absl::Status CheckResponse(const v1::ResponseOptions& response, GenerationRequest* out) {
  const WorkerLimits& limits = out->model->limits;
  if (response.has_logprobs()) {
    RETURN_IF_ERROR(InRange("response.logprobs", response.logprobs(), 0,
                            std::min(kMaxLogprobs, limits.max_raw_top)));
    out->logprobs = true;
    out->sampling.want_raw = true;
    out->sampling.num_raw_top = response.logprobs();
  } else if (!response.report_ids().empty()) {
    return InvalidArgument("response.report_ids has ", response.report_ids_size(),
                           " ids: it needs response.logprobs");
  }
  RETURN_IF_ERROR(
      AtMost("response.report_ids", "ids", response.report_ids_size(), limits.max_report_ids));
  RETURN_IF_ERROR(
      CheckIds("response.report_ids", response.report_ids(), out->model->tokenizer().vocab_size()));
  out->sampling.report_ids = ToVector(response.report_ids());
  std::vector<int32_t> sorted = out->sampling.report_ids;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    return InvalidArgument("response.report_ids has id ", *twice, " twice");
  }
  out->token_ids = response.token_ids();
  out->token_details = response.token_details();
  out->prefill_progress = response.prefill_progress();
  out->echo = response.echo();
  if (response.has_prompt_logprobs()) {
    RETURN_IF_ERROR(InRange("response.prompt_logprobs", response.prompt_logprobs(), 0,
                            std::min(kMaxLogprobs, limits.max_raw_top)));
    out->prompt_logprobs = response.prompt_logprobs();
  }
  if (response.has_stream_interval()) {
    RETURN_IF_ERROR(
        InRange("response.stream_interval", response.stream_interval(), 1, kMaxStreamInterval));
    out->stream_interval = response.stream_interval();
  }
  if (limits.prompt_logprobs) return absl::OkStatus();
  const std::string lacks = absl::StrCat(" is set: the workers of model ", out->model->name,
                                         " give no logprobs of a prompt");
  if (out->prompt_logprobs.has_value()) {
    return InvalidArgument("response.prompt_logprobs", lacks);
  }
  if (out->echo && out->logprobs) return InvalidArgument("response.echo with logprobs", lacks);
  return absl::OkStatus();
}

absl::Status CheckCache(const v1::CacheOptions& cache, GenerationRequest* out) {
  RETURN_IF_ERROR(AtMost("cache.salt", "bytes", cache.salt().size(),
                         std::min(kMaxSaltBytes, out->model->limits.max_salt_bytes)));
  out->cache_salt = cache.salt();
  out->cache_bypass = cache.bypass();
  return absl::OkStatus();
}

absl::Status CheckSampling(const v1::Sampling& sampling, int32_t min_tokens,
                           const std::function<uint64_t()>& random, GenerationRequest* out) {
  const ServedModel& model = *out->model;
  if (sampling.has_n()) {
    RETURN_IF_ERROR(
        InRange("sampling.n", sampling.n(), 1, std::min(kMaxChoices, model.limits.max_choices)));
    out->choices = sampling.n();
  }
  RETURN_IF_ERROR(
      AtMost("sampling.allowed_ids", "ids", sampling.allowed_ids_size(), kMaxListedIds));
  RETURN_IF_ERROR(AtMost("sampling.banned_ids", "ids", sampling.banned_ids_size(), kMaxListedIds));
  SamplingParameters& parameters = out->sampling;
  parameters.temperature = sampling.has_temperature() ? sampling.temperature() : 1.0f;
  parameters.top_k = sampling.top_k();
  parameters.top_p = sampling.has_top_p() ? sampling.top_p() : 1.0f;
  parameters.min_p = sampling.min_p();
  parameters.repetition_penalty =
      sampling.has_repetition_penalty() ? sampling.repetition_penalty() : 1.0f;
  parameters.presence_penalty = sampling.presence_penalty();
  parameters.frequency_penalty = sampling.frequency_penalty();
  parameters.repetition_window = sampling.repetition_window();
  parameters.presence_window = sampling.presence_window();
  parameters.frequency_window = sampling.frequency_window();
  parameters.seed = sampling.has_seed() ? sampling.seed() : random();
  parameters.logit_bias.assign(sampling.logit_bias().begin(), sampling.logit_bias().end());
  std::sort(parameters.logit_bias.begin(), parameters.logit_bias.end());
  parameters.allowed_ids = ToVector(sampling.allowed_ids());
  parameters.banned_ids = ToVector(sampling.banned_ids());
  parameters.min_tokens = min_tokens;
  if (min_tokens > 0) {
    std::vector<int32_t>& end_ids = parameters.end_ids;
    end_ids = model.end_ids;
    end_ids.insert(end_ids.end(), out->stop_token_ids.begin(), out->stop_token_ids.end());
    std::sort(end_ids.begin(), end_ids.end());
    end_ids.erase(std::unique(end_ids.begin(), end_ids.end()), end_ids.end());
  }
  parameters.num_top = std::min(parameters.num_top, model.limits.max_top);
  parameters.num_perturbed = std::min(parameters.num_perturbed, model.limits.max_perturbed);
  return Within("sampling", Validate(parameters, model.vocab_size));
}

// An echo waits for its client whole, of every choice.
absl::Status CheckEcho(const v1::GenerateRequest& request, const GenerationRequest& out) {
  if (!out.echo) return absl::OkStatus();
  if (request.has_chat()) {
    return InvalidArgument("response.echo is set with chat: it goes with prompt and token_ids");
  }
  int64_t bytes = 0;
  for (const int32_t id : out.prompt) {
    bytes += static_cast<int64_t>(
        out.model->tokenizer().TokenBytes(id, /*first=*/false, /*include_special=*/false).size());
  }
  return AtMost("response.echo", "bytes of text in all choices", bytes * out.choices,
                kMaxEchoBytes);
}

// Looks at everything else of `out` first: the tokens must be an output that it can have.
absl::Status CheckResume(const v1::GenerateRequest& request, GenerationRequest* out) {
  RETURN_IF_ERROR(InRange("resume_choice", request.resume_choice(), 0, kMaxChoices - 1));
  const auto& tokens = request.resume_tokens();
  if (tokens.empty() && request.resume_choice() == 0) return absl::OkStatus();
  const char* const field = tokens.empty() ? "resume_choice" : "resume_tokens";
  if (!request.sampling().has_seed()) {
    return InvalidArgument(field, " is set: it needs sampling.seed, the one that Started named");
  }
  if (out->choices != 1) {
    return InvalidArgument(field, " is set with sampling.n ", out->choices, ": it must be 1");
  }
  RETURN_IF_ERROR(AtMost("resume_tokens", "ids", tokens.size(), out->MaxNew()));
  RETURN_IF_ERROR(CheckIds("resume_tokens", tokens, out->model->tokenizer().vocab_size()));
  OutputText text(*out);
  for (int i = 0; i < tokens.size(); ++i) {
    if (text.ended()) {
      return InvalidArgument("resume_tokens has ", tokens.size(), " ids: the output ends with ", i,
                             " of them (", v1::FinishReason_Name(*text.end()), ")");
    }
    text.Add(tokens[i]);
  }
  out->resume = ToVector(tokens);
  out->first_choice = request.resume_choice();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GenerationRequest> CheckRequest(const v1::GenerateRequest& request,
                                               std::shared_ptr<const ServedModel> model,
                                               const std::function<uint64_t()>& random) {
  GenerationRequest out;
  out.model = std::move(model);
  // Cheap checks first: what is wrong at a glance costs no encoding.
  RETURN_IF_ERROR(AtMost("request_id", "bytes", request.request_id().size(), kMaxRequestIdBytes));
  RETURN_IF_ERROR(InRange("priority", request.priority(), -kMaxPriority, kMaxPriority));
  RETURN_IF_ERROR(CheckStopping(request.stopping(), &out));
  RETURN_IF_ERROR(CheckResponse(request.response(), &out));
  RETURN_IF_ERROR(CheckCache(request.cache(), &out));
  // min_tokens is held against the room below, once the prompt's length is known.
  RETURN_IF_ERROR(InRange("min_tokens", request.min_tokens(), 0, out.model->context_length));
  RETURN_IF_ERROR(CheckSampling(request.sampling(), request.min_tokens(), random, &out));
  ASSIGN_OR_RETURN(out.prompt, CheckInput(request, *out.model));
  RETURN_IF_ERROR(CheckLength(request, &out));
  RETURN_IF_ERROR(CheckEcho(request, out));
  RETURN_IF_ERROR(CheckResume(request, &out));
  out.priority = request.priority();
  out.run_ahead = kRunAhead;
  out.request_id = request.request_id().empty() ? absl::StrFormat("%016x%016x", random(), random())
                                                : request.request_id();
  return out;
}

}  // namespace tandem::text
