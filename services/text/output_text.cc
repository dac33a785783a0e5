#include "services/text/output_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/check.h"

namespace tandem::text {
namespace {

StopMatcher MakeStopMatcher(const GenerationRequest& request) {
  auto matcher = StopMatcher::Make(request.stop_strings, request.include_stop);
  TANDEM_CHECK(matcher.ok()) << matcher.status();  // CheckRequest saw to it
  return *std::move(matcher);
}

bool Contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

OutputText::OutputText(const GenerationRequest& request)
    : request_(request),
      detokenizer_(request.model->tokenizer(), /*include_special=*/false, /*has_prompt=*/true),
      stop_matcher_(MakeStopMatcher(request)) {}

bool OutputText::IsStopToken(int32_t token) const {
  return Contains(request_.stop_token_ids, token);
}

bool OutputText::IsEndToken(int32_t token) const {
  return !request_.ignore_eos && Contains(request_.model->end_ids, token);
}

std::string OutputText::StopTokenText(int32_t token) {
  if (!request_.include_stop) return "";
  const Tokenizer& tokenizer = request_.model->tokenizer();
  if (!tokenizer.IsSpecial(token)) return detokenizer_.Add(token);
  return detokenizer_.Flush() + tokenizer.TokenBytes(token, /*first=*/false,
                                                     /*include_special=*/true);
}

OutputText::Result OutputText::Add(int32_t token) {
  TANDEM_CHECK(!ended()) << "a token behind the end";
  ++num_tokens_;
  StopMatcher::Result result;
  if (IsStopToken(token)) {
    stop_token_ = token;
    result = stop_matcher_.Add(StopTokenText(token));
    end_ = v1::FINISH_REASON_STOP_TOKEN;
  } else if (IsEndToken(token)) {
    stop_token_ = token;
    end_ = v1::FINISH_REASON_END_OF_TEXT;
  } else {
    result = stop_matcher_.Add(detokenizer_.Add(token));
    if (result.stop >= 0) {
      end_ = v1::FINISH_REASON_STOP_STRING;
    } else if (num_tokens_ >= request_.MaxNew()) {
      end_ = request_.max_tokens.has_value() ? v1::FINISH_REASON_MAX_TOKENS
                                             : v1::FINISH_REASON_CONTEXT_FULL;
    }
  }
  if (ended() && result.stop < 0) {
    // The replacement of an unfinished character is text too, so it may still complete a stop
    // string.
    StopMatcher::Result held = stop_matcher_.Add(detokenizer_.Flush());
    result.text += held.text;
    result.stop = held.stop;
    if (held.stop < 0) result.text += stop_matcher_.Flush();
  }
  if (result.stop >= 0) {
    stop_ = result.stop;
    end_ = v1::FINISH_REASON_STOP_STRING;
  }
  return {std::move(result.text), end_};
}

std::string OutputText::Flush() {
  if (ended()) return "";
  StopMatcher::Result held = stop_matcher_.Add(detokenizer_.Flush());
  return held.text + stop_matcher_.Flush();
}

}  // namespace tandem::text
