// The text side of one choice's output: its tokens in, the text that a client may have out, and
// where the output ends.
//
// Ending, in the order of precedence at one token: a stop token id, an end token, a stop string,
// max_tokens, the context. A stop token's text stays out unless include_stop; the text of the
// model's end tokens always does. What the stop matcher and the detokenizer hold back is given out
// on every end but a stop string.
//
// It depends on the tokens alone, so that whoever has them can go on behind them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/text/detokenizer.h"
#include "engine/text/stop_matcher.h"
#include "services/text/request.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::text {

class OutputText final {
 public:
  // request must outlive this.
  explicit OutputText(const GenerationRequest& request);

  struct Result {
    std::string text;
    std::optional<v1::FinishReason> end;  // the output ends with this token
  };
  // With a token that ends the output comes all that was held back. REQUIRES !ended() and a token
  // that the tokenizer defines.
  Result Add(int32_t token);
  // What is held back, for an end from outside; nothing once ended() or flushed.
  std::string Flush();

  bool ended() const { return end_.has_value(); }
  std::optional<v1::FinishReason> end() const { return end_; }
  int32_t num_tokens() const { return num_tokens_; }
  // Index of the stop string that matched, and the stop or end token; -1: none.
  int32_t stop() const { return stop_; }
  int32_t stop_token() const { return stop_token_; }

 private:
  bool IsStopToken(int32_t token) const;
  bool IsEndToken(int32_t token) const;
  // The text that a stop token leaves in the output.
  std::string StopTokenText(int32_t token);

  const GenerationRequest& request_;
  Detokenizer detokenizer_;
  StopMatcher stop_matcher_;
  int32_t num_tokens_ = 0;
  int32_t stop_ = -1;
  int32_t stop_token_ = -1;
  std::optional<v1::FinishReason> end_;
};

}  // namespace tandem::text
