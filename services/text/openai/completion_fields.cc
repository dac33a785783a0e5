#include "services/text/openai/completion_fields.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace tandem::text {
namespace {

using Draft = CompletionDraft;
using json = nlohmann::json;

constexpr uint8_t kBoth = kOfCompletions | kOfChat;
constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

v1::Sampling& Sampling(Draft* draft) { return *draft->shared.mutable_sampling(); }
v1::Stopping& Stopping(Draft* draft) { return *draft->shared.mutable_stopping(); }
v1::ResponseOptions& Response(Draft* draft) { return *draft->shared.mutable_response(); }

void Copy(const std::vector<int32_t>& from, google::protobuf::RepeatedField<int32_t>* to) {
  to->Assign(from.begin(), from.end());
}

// Accepted: it cannot change the answer.
constexpr Boolean<Draft> kUnusedBoolean = {[](bool, Draft*) {}};
constexpr Text<Draft> kUnusedText = {1024, [](std::string, Draft*) {}};

absl::Status ReadMetadata(const json& value, Draft*) {
  if (value.is_object()) return absl::OkStatus();
  return FieldError("metadata", " is ", Shown(value), ": it must be an object");
}

constexpr Field<Draft> kFields[] = {
    // What is asked.
    {"model", kBoth,
     "The model's name, as /v1/models lists it. Without it: the only one that is served.",
     Text<Draft>{1024, [](std::string value, Draft* d) { d->shared.set_model(std::move(value)); }}},
    {"prompt", kOfCompletions,
     "A text, an array of texts, an array of token ids, or an array of arrays of token ids. Each "
     "prompt has its n choices: choice c of prompt p has the index p * n + c.",
     Own<Draft>{kPromptSchema, ReadPrompt}, true},
    {"messages", kOfChat, "The conversation. The text parts of a message are joined as they are.",
     Own<Draft>{kMessagesSchema, ReadMessages}, true},
    {"add_special_tokens", kOfCompletions,
     "Whether a prompt of text begins with the token that the vocabulary asks for. Default true.",
     Boolean<Draft>{[](bool value, Draft* d) { d->shared.set_add_special(value); }}},
    {"add_generation_prompt", kOfChat,
     "Whether the chat template opens the answer's turn. Default true.",
     Boolean<Draft>{
         [](bool value, Draft* d) { d->shared.mutable_chat()->set_add_generation_prompt(value); }}},
    // How long.
    {"max_tokens", kOfCompletions,
     "Most tokens of a choice, up to what the context leaves. Default 16. 0, with echo: the prompt "
     "alone.",
     Integer<Draft>{0, kMaxInt, [](int64_t value, Draft* d) { d->max_tokens = value; }}},
    {"max_tokens", kOfChat,
     "Most tokens of a choice, up to what the context leaves. Default: what it leaves.",
     Integer<Draft>{1, kMaxInt, [](int64_t value, Draft* d) { d->max_tokens = value; }}},
    {"max_completion_tokens", kOfChat, "max_tokens under its newer name.",
     Integer<Draft>{1, kMaxInt, [](int64_t value, Draft* d) { d->max_completion_tokens = value; }}},
    {"min_tokens", kBoth,
     "End tokens and stop_token_ids cannot be chosen before. At most max_tokens.",
     Integer<Draft>{
         0, kMaxInt,
         [](int64_t value, Draft* d) { d->shared.set_min_tokens(static_cast<int32_t>(value)); }}},
    {"stop", kBoth, "Up to 16 texts of 1 to 256 bytes that end the output, and are not in it.",
     Own<Draft>{kStopSchema, ReadStop}},
    {"stop_token_ids", kBoth, "Tokens that end the output, beside the model's own.",
     Ids<Draft>{0, kMaxStops,
                [](std::vector<int32_t> value, Draft* d) {
                  Copy(value, Stopping(d).mutable_stop_token_ids());
                }}},
    {"ignore_eos", kBoth, "The model's end tokens do not end the output. Default false.",
     Boolean<Draft>{[](bool value, Draft* d) { Stopping(d).set_ignore_eos(value); }}},
    {"include_stop_str_in_output", kBoth, "What ended the output stays in it. Default false.",
     Boolean<Draft>{[](bool value, Draft* d) { Stopping(d).set_include_stop(value); }}},
    // How tokens are chosen.
    {"n", kBoth, "Choices of each prompt. Default 1.",
     Integer<Draft>{1, kMaxN,
                    [](int64_t value, Draft* d) { d->call.n = static_cast<int32_t>(value); }}},
    {"best_of", kOfCompletions, "n, or nothing.",
     Integer<Draft>{1, kMaxN, [](int64_t value, Draft* d) { d->best_of = value; }}},
    {"temperature", kBoth, "0: the most likely token; else 1e-5 to 100. Default 1.",
     Own<Draft>{kTemperatureSchema, ReadTemperature}},
    {"top_p", kBoth, "1: off. The most likely token always stays. Default 1.",
     Number<Draft>{
         0.0, 1.0,
         [](double value, Draft* d) { Sampling(d).set_top_p(static_cast<float>(value)); }}},
    {"top_k", kBoth, "-1 or 0: off. Default 0.",
     Integer<Draft>{-1, kMaxInt,
                    [](int64_t value, Draft* d) {
                      Sampling(d).set_top_k(static_cast<int32_t>(std::max<int64_t>(0, value)));
                    }}},
    {"min_p", kBoth, "0: off. Default 0.",
     Number<Draft>{
         0.0, 1.0,
         [](double value, Draft* d) { Sampling(d).set_min_p(static_cast<float>(value)); }}},
    {"presence_penalty", kBoth, "Of tokens that the output has. Default 0.",
     Number<Draft>{-100.0, 100.0,
                   [](double value, Draft* d) {
                     Sampling(d).set_presence_penalty(static_cast<float>(value));
                   }}},
    {"frequency_penalty", kBoth, "Of tokens that the output has, each time. Default 0.",
     Number<Draft>{-100.0, 100.0,
                   [](double value,
                      Draft* d) { Sampling(d).set_frequency_penalty(static_cast<float>(value)); }}},
    {"repetition_penalty", kBoth, "Of tokens that prompt or output have. 1: off. Default 1.",
     Number<Draft>{
         0.01, 100.0,
         [](double value,
            Draft* d) { Sampling(d).set_repetition_penalty(static_cast<float>(value)); }}},
    {"logit_bias", kBoth, "What is added to the logits of up to 1,024 token ids.",
     Own<Draft>{kLogitBiasSchema, ReadLogitBias}},
    {"allowed_token_ids", kBoth, "Distinct ids; no others can be chosen.",
     Ids<Draft>{1, kMaxListed,
                [](std::vector<int32_t> value,
                   Draft* d) { Copy(value, Sampling(d).mutable_allowed_ids()); },
                true}},
    {"seed", kBoth,
     "Equal requests with equal seeds have equal answers. 64 bits: a negative one is that of its "
     "two's complement; a string of digits for those who keep numbers as doubles. Default: drawn, "
     "and given in the answer.",
     Own<Draft>{kSeedSchema, ReadSeed}},
    // What the answer has.
    {"stream", kBoth, "Server-sent events instead of one answer. Default false.",
     Boolean<Draft>{[](bool value, Draft* d) { d->call.stream = value; }}},
    {"stream_options", kBoth, "include_usage: the last chunk has the usage. With stream only.",
     Own<Draft>{kStreamOptionsSchema, ReadStreamOptions}},
    {"echo", kOfCompletions, "Each choice begins with the prompt. Default false.",
     Boolean<Draft>{[](bool value, Draft* d) { Response(d).set_echo(value); }}},
    {"logprobs", kOfCompletions,
     "Log probabilities of each token, and of so many that were most likely.",
     Integer<Draft>{
         0, kMaxTopLogprobs,
         [](int64_t value, Draft* d) { Response(d).set_logprobs(static_cast<int32_t>(value)); }}},
    {"logprobs", kOfChat, "Log probabilities of each token. Default false.",
     Boolean<Draft>{[](bool value, Draft* d) { d->chat_logprobs = value; }}},
    {"top_logprobs", kOfChat, "Those of so many that were most likely too. With logprobs only.",
     Integer<Draft>{0, kMaxTopLogprobs, [](int64_t value, Draft* d) { d->top_logprobs = value; }}},
    {"prompt_logprobs", kBoth,
     "Log probabilities of the prompt's tokens, and of so many that were most likely. Not with "
     "stream.",
     Integer<Draft>{
         0, kMaxTopLogprobs,
         [](int64_t value,
            Draft* d) { Response(d).set_prompt_logprobs(static_cast<int32_t>(value)); }}},
    {"return_token_ids", kBoth, "A choice has token_ids. Default false.",
     Boolean<Draft>{[](bool value, Draft* d) { d->call.shape.token_ids = value; }}},
    {"return_tokens_as_token_ids", kBoth,
     "Log probabilities name a token \"token_id:5\" instead of its text. Default false.",
     Boolean<Draft>{[](bool value, Draft* d) { d->call.shape.tokens_as_ids = value; }}},
    {"tandem", kBoth,
     "token_details: a choice's `tandem` has `tokens`, which says how each of them was decided.",
     Own<Draft>{kTandemSchema, ReadTandem}},
    // How it is served.
    {"request_id", kBoth, "A name for logs and traces, of up to 128 bytes. Default: made up.",
     Text<Draft>{128,
                 [](std::string value, Draft* d) { d->shared.set_request_id(std::move(value)); }}},
    {"priority", kBoth, "Lower goes first. Default 0.",
     Integer<Draft>{
         -100, 100,
         [](int64_t value, Draft* d) { d->shared.set_priority(static_cast<int32_t>(-value)); }}},
    {"cache_salt", kBoth, "Only requests with the same salt share cached tokens. Up to 64 bytes.",
     Text<Draft>{64, [](std::string value,
                        Draft* d) { d->shared.mutable_cache()->set_salt(std::move(value)); }}},
    // Accepted, and unused.
    {"user", kBoth, "Unused.", kUnusedText},
    {"safety_identifier", kOfChat, "Unused.", kUnusedText},
    {"prompt_cache_key", kOfChat, "Unused: equal beginnings are found by themselves.", kUnusedText},
    {"metadata", kOfChat, "Unused.", Own<Draft>{R"({"type": ["object", "null"]})", ReadMetadata}},
    {"parallel_tool_calls", kOfChat, "Unused: there are no tools.", kUnusedBoolean},
    {"service_tier", kOfChat, "Unused.", Only{R"(["auto", "default"])"}},
    // Not supported, beyond the value that asks for nothing.
    {"suffix", kOfCompletions, "Not supported.", Only{R"([""])"}},
    {"store", kOfChat, "Not supported.", Only{"[false]"}},
    {"response_format", kOfChat, "Text only.", Only{R"([{"type": "text"}])"}},
    {"tools", kOfChat, "Not supported.", Only{"[[]]"}},
    {"tool_choice", kOfChat, "Not supported.", Only{R"(["none", "auto"])"}},
    {"functions", kOfChat, "Not supported.", Only{"[[]]"}},
    {"function_call", kOfChat, "Not supported.", Only{R"(["none", "auto"])"}},
    {"modalities", kOfChat, "Text only.", Only{R"([["text"]])"}},
    {"audio", kOfChat, "Not supported.", Only{"[]"}},
    {"prediction", kOfChat, "Not supported.", Only{"[]"}},
    {"reasoning_effort", kOfChat, "Not supported.", Only{R"(["none"])"}},
    {"verbosity", kOfChat, "Not supported.", Only{"[]"}},
    {"web_search_options", kOfChat, "Not supported.", Only{"[]"}},
    {"moderation", kOfChat, "Not supported.", Only{"[]"}},
    {"prompt_cache_options", kOfChat, "Not supported.", Only{"[]"}},
    {"prompt_cache_retention", kOfChat, "Not supported.", Only{R"(["in_memory"])"}},
    {"continue_final_message", kOfChat, "Not supported.", Only{"[false]"}},
    {"chat_template", kOfChat, "The model's own.", Only{"[]"}},
    {"chat_template_kwargs", kOfChat, "Not supported.", Only{"[{}]"}},
    {"documents", kOfChat, "Not supported.", Only{"[[]]"}},
    {"skip_special_tokens", kBoth, "Special tokens have no text.", Only{"[true]"}},
    {"spaces_between_special_tokens", kBoth, "Special tokens have no text.", Only{"[true]"}},
    {"detokenize", kBoth, "The answer is text.", Only{"[true]"}},
    {"truncate_prompt_tokens", kBoth, "Not supported: a long prompt is refused.", Only{"[]"}},
    {"use_beam_search", kBoth, "Not supported.", Only{"[false]"}},
    {"length_penalty", kBoth, "Not supported.", Only{"[1]"}},
    {"early_stopping", kBoth, "Not supported.", Only{"[false]"}},
    {"bad_words", kBoth, "Not supported.", Only{"[[]]"}},
    {"logits_processors", kBoth, "Not supported.", Only{"[[]]"}},
    {"guided_json", kBoth, "Not supported.", Only{"[]"}},
    {"guided_regex", kBoth, "Not supported.", Only{"[]"}},
    {"guided_choice", kBoth, "Not supported.", Only{"[]"}},
    {"guided_grammar", kBoth, "Not supported.", Only{"[]"}},
    {"guided_decoding_backend", kBoth, "Not supported.", Only{"[]"}},
    {"guided_whitespace_pattern", kBoth, "Not supported.", Only{"[]"}},
    {"structured_outputs", kBoth, "Not supported.", Only{"[]"}},
};

}  // namespace

std::span<const Field<CompletionDraft>> CompletionFields() { return kFields; }

}  // namespace tandem::text
