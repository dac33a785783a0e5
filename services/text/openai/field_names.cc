#include "services/text/openai/field_names.h"

#include <algorithm>
#include <optional>

#include "absl/strings/cord.h"
#include "engine/base/field_path.h"

namespace tandem::text {
namespace {

constexpr char kParamUrl[] = "tandem.text.openai.param";

struct Name {
  std::string_view path;         // of tandem.v1, without indices
  std::string_view completions;  // empty: not of this endpoint
  std::string_view chat;
};

// Those whose name depends on more than the endpoint are looked after in JsonName.
constexpr Name kNames[] = {
    {"model", "model", "model"},
    {"input", "prompt", "messages"},
    {"prompt", "prompt", ""},
    {"token_ids", "prompt", ""},
    {"token_ids.ids", "prompt", ""},
    {"text", "prompt", ""},
    {"ids", "tokens", ""},
    {"chat", "", "messages"},
    {"chat.messages", "", "messages"},
    {"chat.messages.role", "", "messages.role"},
    {"chat.messages.content", "", "messages.content"},
    {"chat.add_generation_prompt", "", "add_generation_prompt"},
    {"add_special", "add_special_tokens", ""},
    {"max_tokens", "max_tokens", "max_tokens"},
    {"min_tokens", "min_tokens", "min_tokens"},
    {"request_id", "request_id", "request_id"},
    {"priority", "priority", "priority"},
    {"cache.salt", "cache_salt", "cache_salt"},
    {"stopping.stop_strings", "stop", "stop"},
    {"stopping.stop_token_ids", "stop_token_ids", "stop_token_ids"},
    {"stopping.ignore_eos", "ignore_eos", "ignore_eos"},
    {"stopping.include_stop", "include_stop_str_in_output", "include_stop_str_in_output"},
    {"response.logprobs", "logprobs", "top_logprobs"},
    {"response.prompt_logprobs", "prompt_logprobs", "prompt_logprobs"},
    {"response.token_ids", "return_token_ids", "return_token_ids"},
    {"response.token_details", "tandem.token_details", "tandem.token_details"},
    {"response.echo", "echo", ""},
    {"sampling.temperature", "temperature", "temperature"},
    {"sampling.top_k", "top_k", "top_k"},
    {"sampling.top_p", "top_p", "top_p"},
    {"sampling.min_p", "min_p", "min_p"},
    {"sampling.repetition_penalty", "repetition_penalty", "repetition_penalty"},
    {"sampling.presence_penalty", "presence_penalty", "presence_penalty"},
    {"sampling.frequency_penalty", "frequency_penalty", "frequency_penalty"},
    {"sampling.logit_bias", "logit_bias", "logit_bias"},
    {"sampling.allowed_ids", "allowed_token_ids", "allowed_token_ids"},
    {"sampling.seed", "seed", "seed"},
    {"sampling.n", "n", "n"},
    // Of SamplingParameters, which the message becomes.
    {"sampling.min_tokens", "min_tokens", "min_tokens"},
    {"sampling.end_ids", "stop_token_ids", "stop_token_ids"},
    {"sampling.num_raw_top", "logprobs", "top_logprobs"},
};

// "chat.messages[2].content" is "chat.messages.content" and "[2]". An index that is not closed is
// dropped with what follows.
struct Path {
  std::string name;
  std::string index;
};

Path Split(std::string_view path) {
  const size_t open = path.find('[');
  if (open == std::string_view::npos) return {std::string(path), ""};
  const size_t close = path.find(']', open);
  if (close == std::string_view::npos) return {std::string(path.substr(0, open)), ""};
  return {std::string(path.substr(0, open)) + std::string(path.substr(close + 1)),
          std::string(path.substr(open, close + 1 - open))};
}

// The index goes behind the first part of the name.
std::string WithIndex(std::string_view name, std::string_view index) {
  const size_t dot = std::min(name.find('.'), name.size());
  return std::string(name.substr(0, dot)) + std::string(index) + std::string(name.substr(dot));
}

bool IsPathCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == ']';
}

}  // namespace

std::string JsonName(std::string_view path, const FieldNames& names, int32_t prompt) {
  const Path parts = Split(path);
  const auto found = std::find_if(std::begin(kNames), std::end(kNames),
                                  [&](const Name& name) { return name.path == parts.name; });
  if (found == std::end(kNames)) return "";
  const bool chat = names.endpoint == Endpoint::kChatCompletions;
  const std::string_view name = chat ? found->chat : found->completions;
  if (name.empty()) return "";
  if (name == "prompt") {
    return names.many_prompts && prompt >= 0 ? "prompt[" + std::to_string(prompt) + "]" : "prompt";
  }
  if (name == "stop" && names.one_stop) return "stop";
  if (name == "max_tokens" && names.max_completion_tokens) return "max_completion_tokens";
  return WithIndex(name, parts.index);
}

std::string ParamOf(const absl::Status& status) {
  const absl::optional<absl::Cord> param = status.GetPayload(kParamUrl);
  return param.has_value() ? std::string(*param) : "";
}

absl::Status WithParam(absl::Status status, std::string_view param) {
  if (!param.empty()) status.SetPayload(kParamUrl, absl::Cord(std::string(param)));
  return status;
}

absl::Status WithJsonNames(const absl::Status& status, const FieldNames& names, int32_t prompt) {
  if (status.ok() || !ParamOf(status).empty()) return status;
  const std::string_view message(status.message().data(), status.message().size());
  const std::string_view leading = LeadingPath(message);
  const std::string param = JsonName(leading, names, prompt);
  std::string renamed = param.empty() ? std::string(leading) : param;
  // Behind that only paths with a dot are surely names.
  for (size_t i = leading.size(); i < message.size();) {
    const std::string_view rest = message.substr(i);
    const std::string_view path = LeadingPath(rest);
    const bool begins = i == 0 || !IsPathCharacter(message[i - 1]);
    const std::string name = begins && path.find('.') != std::string_view::npos
                                 ? JsonName(path, names, prompt)
                                 : std::string();
    if (name.empty()) {
      const size_t size = std::max<size_t>(1, path.size());
      renamed += rest.substr(0, size);
      i += size;
    } else {
      renamed += name;
      i += path.size();
    }
  }
  return WithParam(absl::Status(status.code(), renamed), param);
}

}  // namespace tandem::text
