// A Generate request after every field of it was looked at: what sessions are made of.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/sampling/parameters.h"
#include "services/text/door.h"
#include "services/text/served_model.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::text {

inline constexpr int32_t kMaxChoices = 16;
inline constexpr int32_t kMaxStopTokens = 16;
inline constexpr int32_t kMaxLogprobs = 20;
inline constexpr int32_t kMaxEchoBytes = 1 << 20;  // of all choices
inline constexpr int32_t kMaxStreamInterval = 1024;
inline constexpr int32_t kMaxRequestIdBytes = 128;
inline constexpr int32_t kMaxPriority = 100;
inline constexpr int32_t kMaxMessages = 4096;
inline constexpr int32_t kMaxSaltBytes = 64;
// So that an Open fits into one frame.
inline constexpr int32_t kMaxListedIds = 16384;
// Tokens that a worker may draw ahead of what is confirmed, where its own limit is not lower: so
// many steps may pass while a decision is on its way, and at most so many rows are lost at a stop.
inline constexpr int32_t kRunAhead = 4;

struct GenerationRequest {
  Door door = Door::kGrpc;  // that it came by
  std::string request_id;
  std::shared_ptr<const ServedModel> model;
  std::vector<int32_t> prompt;  // at least one token, fewer than the context
  SamplingParameters sampling;  // with the seed that is used
  // Output that the client has already, which the first token sent is to follow; with it, one
  // choice. It may end the output, with its last token.
  std::vector<int32_t> resume;
  int32_t first_choice = 0;           // of the choices' noise
  int32_t choices = 1;                // [1, kMaxChoices]
  std::optional<int32_t> max_tokens;  // absent: up to the context
  std::vector<std::string> stop_strings;
  std::vector<int32_t> stop_token_ids;
  bool ignore_eos = false;
  bool include_stop = false;
  bool logprobs = false;  // which ones: sampling.num_raw_top and report_ids
  bool token_ids = false;
  bool token_details = false;
  bool prefill_progress = false;
  std::optional<int32_t> prompt_logprobs;  // so many of each position of the prompt; absent: none
  bool echo = false;
  int32_t stream_interval = 1;  // tokens of a Delta, [1, kMaxStreamInterval]
  int32_t priority = 0;
  // Most tokens that the worker may draw before they are confirmed. It mirrors all sampling that
  // there is, so that its draws are what will be decided.
  int32_t run_ahead = 0;
  int32_t drafts = 0;         // most that the worker may verify in a step; they count as run-ahead
  std::string cache_salt;     // only requests with the same salt share cached tokens
  bool cache_bypass = false;  // neither finds cached tokens nor leaves any
  Nanos received = 0;
  Nanos deadline = kNoDeadline;

  // Nothing of a prompt whose output is resumed comes again.
  bool Echoes() const { return echo && resume.empty(); }
  // A worker is to give the logprobs of the prompt's tokens, with so many others.
  bool WantsPromptLogprobs() const {
    return resume.empty() && (prompt_logprobs.has_value() || (echo && logprobs));
  }
  int32_t PromptRawTop() const {
    return std::max(prompt_logprobs.value_or(0), Echoes() ? sampling.num_raw_top : 0);
  }

  // Output tokens that there is room for: max_tokens, or what is left of the context.
  int32_t MaxNew() const {
    return max_tokens.value_or(model->context_length - static_cast<int32_t>(prompt.size()));
  }
};

// Checks every field against its range in generation.proto and against the model, renders the chat
// and encodes the text: work of up to seconds for a prompt of megabytes, so not for a thread that
// others wait for. Times are left to the caller.
//
// random: 64 random bits, for a seed or a request id that is not given.
// INVALID_ARGUMENT names the field, the value and the limit. REQUIRES CheckMessage passed.
absl::StatusOr<GenerationRequest> CheckRequest(const v1::GenerateRequest& request,
                                               std::shared_ptr<const ServedModel> model,
                                               const std::function<uint64_t()>& random);

}  // namespace tandem::text
