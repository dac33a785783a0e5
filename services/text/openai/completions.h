// OpenAI's completions and chat completions, as translations to and from tandem.v1: a body becomes
// one GenerateRequest for each of its prompts, and the messages that answer them become one JSON
// body or a stream of server-sent events.
//
// Pure functions of their arguments: no clock, no network, no model. What needs a model (ranges
// that depend on the vocabulary or the context) is CheckRequest's, whose errors ErrorOf
// (openai/error.h) turns into the JSON's names.
//
// Which fields there are, their ranges and what they mean: completion_fields.cc, and the OpenAPI
// document that is made of it. In short: those of OpenAI that a server of text models can honour,
// and those that vLLM adds for sampling. A field that is not known, or that is known but could not
// be honoured, is refused by name; null is as good as absent. Defaults are OpenAI's: max_tokens of
// a completion 16, of a chat what the context leaves.
//
// Where the answer leaves OpenAI's words:
// - finish_reason "length" also stands for a full context and a deadline, "abort" for a choice that
//   was cancelled or failed (an error follows).
// - stop_reason is the stop string or the id of stop_token_ids that ended the choice, else null.
// - `tandem`, of a choice's last chunk or of a choice: finish_reason as FinishReason names it, in
//   lower case; stop, the stop string, or null; stop_token_id, also of the model's end tokens, or
//   null; request_id; seed, as a string of digits, which a request's seed may be too, since many
//   readers keep numbers as doubles; counters; timings_ms.
//   In a stream a choice's first chunk has request_id and seed there too; with
//   {"tandem": {"token_details": true}} there are `tokens`, of a chunk or of a choice: how each
//   token was decided (TokenDetail of generation.proto), in the order of token_ids.
// - legacy tokens that are no UTF-8 are "bytes:\xNN...", as OpenAI's were; `token` of a chat has
//   U+FFFD instead, and `bytes` the bytes.
// - prompt_logprobs, of whole answers only, is a list as vLLM's: of choice 0 of each prompt, or of
//   the chat. The rank counts from 1.
// - return_token_ids gives a choice token_ids, of its output, and with echo prompt_token_ids.
// - the first token of an echo has no logprob, and its text in `tokens` is empty if it is special.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/text/openai/choice_json.h"
#include "services/text/openai/field_names.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::text {

inline constexpr int32_t kMaxPrompts = 64;  // of one body
inline constexpr int32_t kDefaultMaxTokens = 16;

struct CompletionCall {
  Endpoint endpoint = Endpoint::kCompletions;
  std::vector<v1::GenerateRequest> requests;  // one for each prompt: choice c of prompt p is choice
                                              // p * n + c of the answer
  int32_t n = 1;
  bool stream = false;
  bool include_usage = false;  // of a stream: its last chunk has the usage
  // What else the answer's shape depends on.
  ChoiceShape shape;
  bool prompt_logprobs = false;
  // max_tokens was 0: the request generates one token, which the answer leaves out.
  bool prompt_only = false;
  // For ErrorOf, of what comes of a request.
  FieldNames names;
};

// INVALID_ARGUMENT: no JSON, a field that is not known or not supported (by name), a wrong type, a
// value out of its range. ParamOf (openai/field_names.h) is the field.
absl::StatusOr<CompletionCall> ParseCompletionCall(Endpoint endpoint, std::string_view body);

// Makes the answer to one call. Of each request its Started comes first. Not thread-safe.
class CompletionAnswer final {
 public:
  // Most that an answer which is no stream may hold.
  static constexpr int64_t kMaxBytes = 64 << 20;

  // Takes nothing of call.requests but their number. id: of the answer, unique; the JSON's is that
  // behind "cmpl-" or "chatcmpl-". created: seconds since the epoch.
  CompletionAnswer(const CompletionCall& call, std::string id, int64_t created);
  CompletionAnswer(const CompletionAnswer&) = delete;
  CompletionAnswer& operator=(const CompletionAnswer&) = delete;

  // A message of the answer to request `prompt`. Appends what can be sent now: zero or more whole
  // server-sent events. Without `stream` nothing; it is kept for Finish. Allocates nothing for a
  // delta of a stream, once warm and where `out` has room.
  void Add(int32_t prompt, const v1::GenerateResponse& message, std::string* out);
  // What is kept has more than kMaxBytes, and more would come: the call is to end with
  // an error. Never so of a stream.
  bool too_large() const { return kept_bytes_ > kMaxBytes; }
  // Every request has ended with OK. Appends the JSON body, or the stream's last events.
  void Finish(std::string* out);
  // A stream that has begun and now fails: appends the event that says so, behind which nothing
  // comes. REQUIRES call.stream.
  void Fail(const absl::Status& status, std::string* out);

 private:
  struct Prompt {
    std::string request_id;
    uint64_t seed = 0;
    std::string head;  // of every chunk, up to the choice's index
    int32_t prompt_tokens = 0;
    int32_t cached_tokens = 0;
    std::string logprobs;  // of the prompt: a list without its brackets
  };
  struct Choice {
    explicit Choice(const ChoiceShape& shape) : json(shape) {}
    ChoiceJson json;
    std::string end;     // from finish_reason on; empty: not finished
    bool begun = false;  // a chunk of it has gone out
  };

  // ,"tandem":{...} of a chunk that is not its choice's last, if there is anything to say.
  void AppendChunkExtras(const Prompt& prompt, Choice* choice, std::string* out) const;
  std::string Head(const v1::Started& started) const;
  void OnStarted(int32_t prompt, const v1::Started& started, std::string* out);
  void OnPromptLogprobs(Prompt* prompt, const v1::PromptLogprobs& logprobs);
  void OnDelta(int32_t prompt, const v1::Delta& delta, std::string* out);
  void OnFinished(int32_t prompt, v1::Finished finished, std::string* out);
  Choice& ChoiceAt(int32_t prompt, int32_t choice);
  void AppendPromptLogprobs(const Prompt& prompt, std::string* out) const;
  void AppendUsage(std::string* out) const;

  const Endpoint endpoint_;
  const int32_t n_;
  const bool stream_;
  const bool include_usage_;
  const ChoiceShape shape_;
  const bool prompt_logprobs_;
  const bool prompt_only_;
  const FieldNames names_;
  const std::string id_;
  const int64_t created_;
  std::vector<Prompt> prompts_;
  std::vector<Choice> choices_;  // p * n + c
  int64_t output_tokens_ = 0;
  int64_t kept_bytes_ = 0;
};

}  // namespace tandem::text
