#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "services/text/openai/completions.h"
#include "services/text/openai/error.h"
#include "services/text/openai/json_writer.h"

namespace tandem::text {
namespace {

struct Reason {
  std::string_view openai;
  std::string_view tandem;
};

Reason ReasonOf(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP_STRING:
      return {"stop", "stop_string"};
    case v1::FINISH_REASON_STOP_TOKEN:
      return {"stop", "stop_token"};
    case v1::FINISH_REASON_END_OF_TEXT:
      return {"stop", "end_of_text"};
    case v1::FINISH_REASON_MAX_TOKENS:
      return {"length", "max_tokens"};
    case v1::FINISH_REASON_CONTEXT_FULL:
      return {"length", "context_full"};
    case v1::FINISH_REASON_DEADLINE:
      return {"length", "deadline"};
    case v1::FINISH_REASON_CANCELLED:
      return {"abort", "cancelled"};
    default:
      return {"abort", "error"};
  }
}

void AppendCount(std::string_view name, int32_t value, std::string* out) {
  out->append(name);
  AppendInteger(value, out);
}

void AppendDuration(std::string_view name, const google::protobuf::Duration& duration,
                    std::string* out) {
  out->append(name);
  AppendMilliseconds(std::max<int64_t>(0, duration.seconds() * 1'000'000'000 + duration.nanos()),
                     out);
}

void AppendStop(const v1::Finished& finished, std::string* out) {
  if (finished.reason() == v1::FINISH_REASON_STOP_STRING) {
    AppendJsonString(finished.stop(), out);
  } else {
    out->append("null");
  }
}

void AppendStopToken(const v1::Finished& finished, std::string* out) {
  if (finished.has_stop_token_id()) {
    AppendInteger(finished.stop_token_id(), out);
  } else {
    out->append("null");
  }
}

void AppendExtras(const v1::Finished& finished, std::string_view reason,
                  const std::string& request_id, uint64_t seed, const ChoiceJson& choice,
                  std::string* out) {
  out->append(",\"tandem\":{\"finish_reason\":");
  AppendJsonString(reason, out);
  out->append(",\"stop\":");
  AppendStop(finished, out);
  out->append(",\"stop_token_id\":");
  AppendStopToken(finished, out);
  out->append(",\"request_id\":");
  AppendJsonString(request_id, out);
  out->append(",\"seed\":\"").append(std::to_string(seed));
  const v1::Counters& counters = finished.counters();
  AppendCount("\",\"counters\":{\"from_lists\":", counters.from_lists(), out);
  AppendCount(",\"fetched\":", counters.fetched(), out);
  AppendCount(",\"misses\":", counters.misses(), out);
  AppendCount(",\"faults\":", counters.faults(), out);
  AppendCount(",\"rewound\":", counters.rewound(), out);
  AppendCount(",\"reopened\":", counters.reopened(), out);
  AppendCount(",\"approximate\":", counters.approximate(), out);
  AppendDuration("},\"timings_ms\":{\"queue\":", finished.timings().queue(), out);
  AppendDuration(",\"prefill\":", finished.timings().prefill(), out);
  AppendDuration(",\"decode\":", finished.timings().decode(), out);
  out->push_back('}');
  if (const size_t size = out->size(); choice.AppendTokenDetails(out), out->size() > size) {
    out->insert(size, 1, ',');
  }
  out->push_back('}');
}

}  // namespace

CompletionAnswer::CompletionAnswer(const CompletionCall& call, std::string id, int64_t created)
    : endpoint_(call.endpoint),
      n_(call.n),
      stream_(call.stream),
      include_usage_(call.include_usage),
      shape_(call.shape),
      prompt_logprobs_(call.prompt_logprobs),
      prompt_only_(call.prompt_only),
      names_(call.names),
      id_(std::move(id)),
      created_(created),
      prompts_(call.requests.size()) {
  choices_.reserve(prompts_.size() * n_);
  for (size_t i = 0; i < prompts_.size() * n_; ++i) choices_.emplace_back(shape_);
}

std::string CompletionAnswer::Head(const v1::Started& started) const {
  const bool chat = endpoint_ == Endpoint::kChatCompletions;
  std::string head = stream_ ? "data: {\"id\":" : "{\"id\":";
  AppendJsonString((chat ? "chatcmpl-" : "cmpl-") + id_, &head);
  head += ",\"object\":";
  AppendJsonString(!chat     ? "text_completion"
                   : stream_ ? "chat.completion.chunk"
                             : "chat.completion",
                   &head);
  head += ",\"created\":";
  AppendInteger(created_, &head);
  head += ",\"model\":";
  AppendJsonString(started.model(), &head);
  head += ",\"system_fingerprint\":";
  AppendJsonString(started.worker_fingerprint(), &head);
  head += ",\"choices\":[";
  return head;
}

void CompletionAnswer::Add(int32_t prompt, const v1::GenerateResponse& message, std::string* out) {
  TANDEM_CHECK(prompt >= 0 && prompt < static_cast<int32_t>(prompts_.size()))
      << "prompt " << prompt << " of " << prompts_.size();
  switch (message.event_case()) {
    case v1::GenerateResponse::kStarted:
      return OnStarted(prompt, message.started(), out);
    case v1::GenerateResponse::kPromptLogprobs:
      return OnPromptLogprobs(&prompts_[prompt], message.prompt_logprobs());
    case v1::GenerateResponse::kDelta:
      return OnDelta(prompt, message.delta(), out);
    case v1::GenerateResponse::kFinished:
      return OnFinished(prompt, message.finished(), out);
    case v1::GenerateResponse::kProgress:
    case v1::GenerateResponse::EVENT_NOT_SET:
      return;
  }
}

CompletionAnswer::Choice& CompletionAnswer::ChoiceAt(int32_t prompt, int32_t choice) {
  TANDEM_CHECK(choice >= 0 && choice < n_) << "choice " << choice << " of " << n_;
  return choices_[prompt * n_ + choice];
}

void CompletionAnswer::OnStarted(int32_t index, const v1::Started& started, std::string* out) {
  Prompt& prompt = prompts_[index];
  prompt.request_id = started.request_id();
  prompt.seed = started.seed();
  prompt.prompt_tokens = started.prompt_tokens();
  prompt.cached_tokens = started.cached_tokens();
  prompt.head = Head(started);
  if (!stream_ || endpoint_ == Endpoint::kCompletions) return;
  for (int32_t choice = 0; choice < n_; ++choice) {
    out->append(prompt.head);
    AppendCount("{\"index\":", index * n_ + choice, out);
    out->append(",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null");
    AppendChunkExtras(prompt, &choices_[index * n_ + choice], out);
    out->append(include_usage_ ? ",\"finish_reason\":null}],\"usage\":null}\n\n"
                               : ",\"finish_reason\":null}]}\n\n");
  }
}

void CompletionAnswer::OnPromptLogprobs(Prompt* prompt, const v1::PromptLogprobs& logprobs) {
  if (!prompt_logprobs_) return;
  kept_bytes_ -= static_cast<int64_t>(prompt->logprobs.size());
  for (const v1::PositionLogprobs& position : logprobs.positions()) {
    AppendPromptPosition(position, &prompt->logprobs);
  }
  kept_bytes_ += static_cast<int64_t>(prompt->logprobs.size());
}

void CompletionAnswer::AppendChunkExtras(const Prompt& prompt, Choice* choice,
                                         std::string* out) const {
  const bool first = !std::exchange(choice->begun, true);
  const size_t begin = out->size();
  out->append(",\"tandem\":{");
  const size_t empty = out->size();
  if (first) {
    out->append("\"request_id\":");
    AppendJsonString(prompt.request_id, out);
    out->append(",\"seed\":\"").append(std::to_string(prompt.seed)).append("\",");
  }
  choice->json.AppendTokenDetails(out);
  if (out->size() == empty) return out->resize(begin);
  if (out->back() == ',') out->pop_back();
  out->push_back('}');
}

void CompletionAnswer::OnDelta(int32_t prompt, const v1::Delta& delta, std::string* out) {
  if (prompt_only_ && !delta.echo()) return;
  const int32_t index = prompt * n_ + delta.choice();
  Choice& choice = ChoiceAt(prompt, delta.choice());
  ChoiceJson& json = choice.json;
  if (!stream_) {
    kept_bytes_ -= json.bytes();
    json.Add(delta);
    kept_bytes_ += json.bytes();
    return;
  }
  json.Add(delta);
  out->append(prompts_[prompt].head);
  AppendCount("{\"index\":", index, out);
  const bool chat = endpoint_ == Endpoint::kChatCompletions;
  out->append(chat ? ",\"delta\":{\"content\":\"" : ",\"text\":\"");
  json.AppendText(out);
  out->append(chat ? "\"},\"logprobs\":" : "\",\"logprobs\":");
  json.AppendLogprobs(out);
  json.AppendTokenIds(out);
  AppendChunkExtras(prompts_[prompt], &choice, out);
  out->append(include_usage_ ? ",\"finish_reason\":null}],\"usage\":null}\n\n"
                             : ",\"finish_reason\":null}]}\n\n");
  json.Clear();
}

void CompletionAnswer::OnFinished(int32_t prompt, v1::Finished finished, std::string* out) {
  const bool failed = finished.reason() == v1::FINISH_REASON_ERROR ||
                      finished.reason() == v1::FINISH_REASON_CANCELLED;
  if (prompt_only_ && !failed) {
    // Nothing of the token behind the prompt, which may have been any.
    finished.set_reason(v1::FINISH_REASON_MAX_TOKENS);
    finished.clear_stop();
    finished.clear_stop_token_id();
    finished.mutable_usage()->clear_output_tokens();
  }
  const v1::Usage& usage = finished.usage();
  Prompt& of = prompts_[prompt];
  of.prompt_tokens = usage.prompt_tokens();
  of.cached_tokens = std::max(of.cached_tokens, usage.cached_tokens());
  output_tokens_ += usage.output_tokens();

  const int32_t index = prompt * n_ + finished.choice();
  Choice& choice = ChoiceAt(prompt, finished.choice());
  const Reason reason = ReasonOf(finished.reason());
  choice.end = ",\"finish_reason\":";
  AppendJsonString(reason.openai, &choice.end);
  choice.end += ",\"stop_reason\":";
  if (finished.reason() == v1::FINISH_REASON_STOP_TOKEN) {
    AppendStopToken(finished, &choice.end);
  } else {
    AppendStop(finished, &choice.end);
  }
  AppendExtras(finished, reason.tandem, of.request_id, of.seed, choice.json, &choice.end);
  choice.end += "}";
  if (!stream_) return;
  out->append(of.head);
  AppendCount("{\"index\":", index, out);
  out->append(endpoint_ == Endpoint::kChatCompletions ? ",\"delta\":{}" : ",\"text\":\"\"");
  out->append(",\"logprobs\":null");
  out->append(choice.end);
  out->append(include_usage_ ? "],\"usage\":null}\n\n" : "]}\n\n");
}

void CompletionAnswer::AppendPromptLogprobs(const Prompt& prompt, std::string* out) const {
  out->append(",\"prompt_logprobs\":[null").append(prompt.logprobs).append("]");
}

void CompletionAnswer::AppendUsage(std::string* out) const {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  for (const Prompt& prompt : prompts_) {
    prompt_tokens += prompt.prompt_tokens;
    cached_tokens += prompt.cached_tokens;
  }
  out->append("{\"prompt_tokens\":");
  AppendInteger(prompt_tokens, out);
  out->append(",\"completion_tokens\":");
  AppendInteger(output_tokens_, out);
  out->append(",\"total_tokens\":");
  AppendInteger(prompt_tokens + output_tokens_, out);
  out->append(",\"prompt_tokens_details\":{\"cached_tokens\":");
  AppendInteger(cached_tokens, out);
  out->append("}}");
}

void CompletionAnswer::Finish(std::string* out) {
  if (stream_) {
    if (include_usage_) {
      out->append(prompts_.front().head).append("],\"usage\":");
      AppendUsage(out);
      out->append("}\n\n");
    }
    out->append("data: [DONE]\n\n");
    return;
  }
  const bool chat = endpoint_ == Endpoint::kChatCompletions;
  out->append(prompts_.front().head);
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    TANDEM_CHECK(!choice.end.empty()) << "choice " << i << " has not finished";
    AppendCount(i == 0 ? "{\"index\":" : ",{\"index\":", static_cast<int32_t>(i), out);
    out->append(chat ? ",\"message\":{\"role\":\"assistant\",\"content\":\"" : ",\"text\":\"");
    choice.json.AppendText(out);
    out->append(chat ? "\",\"refusal\":null},\"logprobs\":" : "\",\"logprobs\":");
    choice.json.AppendLogprobs(out);
    choice.json.AppendTokenIds(out);
    if (prompt_logprobs_ && !chat && i % n_ == 0) AppendPromptLogprobs(prompts_[i / n_], out);
    out->append(choice.end);
  }
  out->append("]");
  if (prompt_logprobs_ && chat) AppendPromptLogprobs(prompts_.front(), out);
  out->append(",\"usage\":");
  AppendUsage(out);
  out->append("}");
}

void CompletionAnswer::Fail(const absl::Status& status, std::string* out) {
  TANDEM_CHECK(stream_) << "only a stream that has begun can fail";
  out->append("data: ").append(ErrorOf(status, names_).body).append("\n\n");
}

}  // namespace tandem::text
