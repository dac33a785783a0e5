// The shape of a model, as read from a checkpoint and checked. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/ops.h"

namespace tandem {

struct RopeScaling {
  enum class Kind : uint8_t { kNone, kLinear, kLlama3, kYarn };
  Kind kind = Kind::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;   // llama3
  double high_freq_factor = 4.0;  // llama3
  int32_t original_context = 0;   // llama3, yarn
  double beta_fast = 32.0;  // yarn: turns within original_context above which a frequency is kept
  double beta_slow = 1.0;   // yarn: turns below which it is divided by factor
  std::vector<float>
      freq_factors;  // divides each frequency (GGUF's rope_freqs tensor); empty: none
};

struct ModelConfig {
  std::string architecture;  // "llama"
  std::string name;          // general.name, for people
  int32_t num_layers = 0;
  int32_t hidden_size = 0;
  int32_t ffn_size = 0;
  int32_t vocab_size = 0;
  int32_t context_length = 0;
  kernels::AttentionShape attention;
  float norm_epsilon = 0.0f;
  double rope_base = 0.0;
  int32_t rotary_dim = 0;
  kernels::RopePairs rope_pairs = kernels::RopePairs::kInterleaved;
  RopeScaling rope_scaling;
  kernels::NormOrder norm_order = kernels::NormOrder::kRoundThenScale;
  float norm_offset = 0.0f;
  kernels::GateKind gate = kernels::GateKind::kSilu;
  float embedding_scale = 1.0f;
  float attention_scale = 0.0f;  // multiplies q k
  float attention_soft_cap = 0.0f;
  float final_soft_cap = 0.0f;
  float logit_scale = 1.0f;
  std::vector<int32_t> layer_windows;  // [num_layers], 0: full attention
  bool tied_output = false;            // the output matrix is the embedding table
};

}  // namespace tandem
