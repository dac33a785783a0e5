// The parameters of a draw, as both tiers hold them: plain data, the same bytes on host and device.
#pragma once

#include <cstdint>

namespace tandem::kernels {

inline constexpr uint64_t kTopPOff = uint64_t{1} << 32;
// Adjusted logits are clamped to [-kLogitLimit, kLogitLimit].
inline constexpr float kLogitLimit = 1e30f;

// Steps of a decision, in order (each named field belongs to one of them):
//   1 ids outside the row   2 bias   3 repetition, presence, frequency   4 clamp
//   5 temperature   6 top_k   7 top_p (relative to what top_k kept)   8 min_p   9 draw
struct DrawParams {
  uint64_t seed = 0;                 // Philox key: low word, high word
  uint32_t choice = 0;               // Philox counter word 2
  bool greedy = true;                // T = 0: G = 0, inverse_temperature = 1
  float inverse_temperature = 1.0f;  // fp32(1 / T), T in [1e-5, 100]
  int32_t top_k = 0;                 // 0: off
  uint64_t top_p_fixed = kTopPOff;   // round(p * 2^32); kTopPOff: off
  uint64_t min_p_weight = 0;         // round(min_p * 2^32) * 2^8, on the scale of weights; 0: off

  float repetition_penalty = 1.0f;  // 1: off. Positive logits are divided, others multiplied
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  int32_t repetition_window = 0;  // last tokens of prompt and output that count; 0: all
  int32_t presence_window = 0;    // last tokens of the output that count; 0: all
  int32_t frequency_window = 0;
  int32_t prompt_length = 0;  // tokens [0, prompt_length) are the prompt
  int32_t min_tokens = 0;  // end ids are outside the row at positions < prompt_length + min_tokens

  int32_t num_top = 20;       // K: entries of the top list
  int32_t num_perturbed = 8;  // K': entries of the perturbed list
  int32_t num_raw_top = 0;  // N: entries of the raw top list; the raw part is computed iff want_raw
  bool want_raw = false;    // raw ranks, raw total, reported ids
};

}  // namespace tandem::kernels
