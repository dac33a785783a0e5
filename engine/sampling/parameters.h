// Sampling parameters as a caller states them, their ranges, and their form for the draw.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/draw/params.h"

namespace tandem {

// Everything a row's decision depends on beside the logits and the tokens before it. Defaults
// change nothing: greedy with no edits.
struct SamplingParameters {
  float temperature = 0.0f;         // 0: greedy; else [1e-5, 100]
  int32_t top_k = 0;                // 0 or -1: off; larger than the vocabulary: the vocabulary
  float top_p = 1.0f;               // [0, 1]; 1: off; the best id always stays, so 0 is the best id
  float min_p = 0.0f;               // [0, 1]; 0: off
  float repetition_penalty = 1.0f;  // [0.01, 100]; 1: off; prompt and output
  float presence_penalty = 0.0f;    // [-100, 100]; output
  float frequency_penalty = 0.0f;   // [-100, 100]; output
  int32_t repetition_window = 0;    // last tokens that count, [0, kMaxWindow]; 0: all
  int32_t presence_window = 0;
  int32_t frequency_window = 0;
  uint64_t seed = 0;
  int32_t min_tokens = 0;  // [0, kMaxWindow]; end ids cannot be chosen before so many output tokens
  std::vector<std::pair<int32_t, float>>
      logit_bias;                    // distinct ids, |bias| <= 1e4, at most kMaxBias
  std::vector<int32_t> allowed_ids;  // empty: all; distinct, at most the vocabulary
  std::vector<int32_t> banned_ids;   // distinct
  std::vector<int32_t> end_ids;      // distinct; what min_tokens holds back, at most kMaxEndIds
  bool want_raw = false;             // logprobs: raw ranks, raw total
  int32_t num_raw_top = 0;           // [0, kernels::kMaxRawTop]; needs want_raw
  std::vector<int32_t> report_ids;   // at most kernels::kMaxReported, distinct; needs want_raw
  int32_t num_top = 20;              // K, [1, kernels::kMaxTop]
  int32_t num_perturbed = 8;         // K', [1, kernels::kMaxPerturbed]
};

inline constexpr int32_t kMaxBias = 1024;
inline constexpr int32_t kMaxEndIds = 32;
inline constexpr int32_t kMaxWindow = 1 << 20;

// INVALID_ARGUMENT names the field, the value and the range. Both tiers call it: neither trusts the
// other. REQUIRES vocab_size > 0.
absl::Status Validate(const SamplingParameters& parameters, int32_t vocab_size);

// The plain part, for the choice with this Philox number and a prompt of this length. Fixed-point
// values are rounded to nearest, halves up. REQUIRES Validate passed.
kernels::DrawParams ToDrawParams(const SamplingParameters& parameters, uint32_t choice,
                                 int32_t prompt_length, int32_t vocab_size);

// Bit set of the ids inside the row by allowed_ids and banned_ids: [ceil(vocab_size / 32)]; empty
// where both are empty. REQUIRES Validate passed.
std::vector<uint32_t> AllowedBits(const SamplingParameters& parameters, int32_t vocab_size);

}  // namespace tandem
