#include "services/text/prompt_output.h"

#include <algorithm>
#include <string>

#include "engine/base/status.h"
#include "services/common/prompt_logprobs_codec.h"
#include "services/text/logprobs.h"

namespace tandem::text {

PromptOutput::PromptOutput(const GenerationRequest& request)
    : request_(request),
      length_(static_cast<int32_t>(request.prompt.size())),
      end_(request.WantsPromptLogprobs() ? length_ : 0),
      detokenizer_(request.model->tokenizer(), /*include_special=*/false, /*has_prompt=*/false) {}

void PromptOutput::FillOpen(decode::v1::Open* open) const {
  if (complete()) return;
  open->mutable_prompt_logprobs()->set_first_position(next_);
  open->mutable_prompt_logprobs()->set_num_raw_top(request_.PromptRawTop());
}

void PromptOutput::Start(std::span<const int32_t> choices, SessionOutput* out) {
  if (!request_.Echoes()) return;
  // The first token has no logprob to wait for.
  const int32_t end = request_.logprobs ? 1 : length_;
  while (echoed_ < end) Echo(std::min(end, echoed_ + kEchoTokens), nullptr, choices, out);
}

absl::Status PromptOutput::OnLogprobs(const decode::v1::PromptLogprobs& message,
                                      std::span<const int32_t> choices, SessionOutput* out) {
  ASSIGN_OR_RETURN(const PromptLogprobs logprobs,
                   FromProto(message, request_.prompt, request_.sampling.report_ids,
                             request_.PromptRawTop(), request_.model->vocab_size));
  const int32_t end = logprobs.position + logprobs.size();
  if (end_ == 0 || logprobs.position > next_) {
    return InvalidArgument("prompt logprobs from position ", logprobs.position, " on: the next is ",
                           std::min(next_, end_));
  }
  if (end <= next_) return absl::OkStatus();  // from one that is behind another
  if (request_.prompt_logprobs.has_value()) {
    v1::PromptLogprobs* sent = out->messages.emplace_back().mutable_prompt_logprobs();
    sent->set_first_position(next_);
    for (int32_t position = next_; position < end; ++position) {
      *sent->add_positions() = MakePromptLogprobs(logprobs, position, *request_.prompt_logprobs,
                                                  request_.model->tokenizer());
    }
  }
  next_ = end;
  if (request_.Echoes() && request_.logprobs) Echo(end, &logprobs, choices, out);
  return absl::OkStatus();
}

void PromptOutput::Echo(int32_t end, const PromptLogprobs* logprobs,
                        std::span<const int32_t> choices, SessionOutput* out) {
  v1::Delta delta;
  delta.set_echo(true);
  std::string* text = delta.mutable_text();
  for (; echoed_ < end; ++echoed_) {
    const int32_t token = request_.prompt[echoed_];
    text->append(detokenizer_.Add(token));
    if (request_.token_ids) delta.add_token_ids(token);
    if (!request_.logprobs) continue;
    v1::PositionLogprobs* position = delta.add_logprobs();
    if (logprobs != nullptr) {
      *position = MakePromptLogprobs(*logprobs, echoed_, request_.sampling.num_raw_top,
                                     request_.model->tokenizer());
    }
  }
  if (echoed_ == length_) text->append(detokenizer_.Flush());
  if (text->empty() && !request_.token_ids && !request_.logprobs) return;
  for (const int32_t choice : choices) {
    delta.set_choice(choice);
    *out->messages.emplace_back().mutable_delta() = delta;
  }
}

}  // namespace tandem::text
