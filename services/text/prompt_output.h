// What a client hears of its prompt: logprobs of its tokens, and the echo that each choice begins
// with.
//
// Logprobs come from a worker while it reads the prompt, once for all choices. A worker that is
// lost in between leaves the rest to the next: what an Open asks for begins behind what has come,
// and of choices that were opened apart, whichever is ahead counts, so that each position goes out
// once, in order.
//
// Not thread-safe: its session owns it.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "engine/sampling/prompt_logprobs.h"
#include "engine/text/detokenizer.h"
#include "services/text/choice.h"
#include "services/text/request.h"
#include "tandem/decode/v1/decode.pb.h"

namespace tandem::text {

class PromptOutput final {
 public:
  // request must outlive this.
  explicit PromptOutput(const GenerationRequest& request);

  // Every position that was asked for has come.
  bool complete() const { return next_ >= end_; }
  // Asks for what has not come.
  void FillOpen(decode::v1::Open* open) const;
  // What goes out with Started: the echo, as far as it needs no worker. choices: those that run.
  void Start(std::span<const int32_t> choices, SessionOutput* out);
  // INVALID_ARGUMENT: not what was asked for; nothing goes out then.
  absl::Status OnLogprobs(const decode::v1::PromptLogprobs& message,
                          std::span<const int32_t> choices, SessionOutput* out);

 private:
  // Tokens of an echo's Delta without logprobs.
  static constexpr int32_t kEchoTokens = 2048;

  // Of positions from echoed_ to end; logprobs: of those from 1 on, or null.
  void Echo(int32_t end, const PromptLogprobs* logprobs, std::span<const int32_t> choices,
            SessionOutput* out);

  const GenerationRequest& request_;
  const int32_t length_;     // of the prompt
  const int32_t end_;        // of the positions whose logprobs are wanted; 0: none are
  int32_t next_ = 1;         // the first that has not come
  int32_t echoed_ = 0;       // tokens
  Detokenizer detokenizer_;  // of the echo
};

}  // namespace tandem::text
