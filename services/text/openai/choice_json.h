// The parts of one choice's JSON that grow with its tokens: text, logprobs, token ids. The same
// code makes those of a stream's chunk and those of a whole answer, so they cannot differ.
#pragma once

#include <cstdint>
#include <string>

#include "services/text/openai/field_names.h"
#include "services/text/openai/text_offsets.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::text {

struct ChoiceShape {
  Endpoint endpoint = Endpoint::kCompletions;
  bool logprobs = false;
  bool tokens_as_ids = false;  // tokens are written as "token_id:5"
  bool token_ids = false;
  bool token_details = false;
  bool echo = false;
};

// Not thread-safe.
class ChoiceJson final {
 public:
  explicit ChoiceJson(const ChoiceShape& shape) : shape_(shape) {}

  void Add(const v1::Delta& delta);
  // Forgets what was added, but not where in the text it ended.
  void Clear();
  // About what is held.
  int64_t bytes() const;

  // Without the quotes.
  void AppendText(std::string* out) const { out->append(text_); }
  // The value of `logprobs`: null, tokens, token_logprobs, top_logprobs and text_offset, or
  // content, as the endpoint has it.
  void AppendLogprobs(std::string* out) const;
  // ,"token_ids":[...] and, with echo, prompt_token_ids; nothing without shape.token_ids.
  void AppendTokenIds(std::string* out) const;
  // "tokens":[...], how each token was decided; nothing without shape.token_details or tokens.
  void AppendTokenDetails(std::string* out) const;

 private:
  void AddLegacy(const v1::Delta& delta);
  void AddLegacyTop(const v1::PositionLogprobs& position);
  void AddChat(const v1::PositionLogprobs& position);
  // As a JSON string in the legacy form.
  void AppendLegacyToken(int32_t id, std::string_view bytes, std::string* out) const;
  void AppendChatToken(const v1::TokenLogprob& token, std::string* out) const;

  const ChoiceShape shape_;
  TextOffsets offsets_;
  std::string text_;  // escaped
  // Elements of arrays, with a comma behind each.
  std::string tokens_;
  std::string token_logprobs_;
  std::string top_logprobs_;
  std::string text_offset_;
  std::string content_;
  std::string token_ids_;
  std::string prompt_token_ids_;
  std::string token_details_;
  std::string behind_;  // used again
};

// A token of prompt_logprobs: {"logprob":-0.5,"rank":1,"decoded_token":" a"} under its id, with the
// rank counted from 1; those of position behind a comma.
void AppendPromptPosition(const v1::PositionLogprobs& position, std::string* out);

}  // namespace tandem::text
