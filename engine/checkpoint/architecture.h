// What a GGUF file must say to be a model that Tandem runs: keys to configuration, tensor names to
// roles. One architecture today, "llama" (Llama 1 to 3, SmolLM2, Mistral and others that were
// converted under that name). What a file says beyond it is refused by name, because leaving it out
// would give another model's answers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/model_config.h"

namespace tandem {

// INVALID_ARGUMENT: a key is missing, has the wrong type or a value out of range; UNIMPLEMENTED: an
// architecture, key or option that is not supported, by name. tied_output and
// rope_scaling.freq_factors follow the tensors.
absl::StatusOr<ModelConfig> ReadModelConfig(const GgufFile& file);

// One tensor that a model may have. A vector has cols 0.
struct TensorSpec {
  TensorRole role = TensorRole::kTokenEmbedding;
  int32_t layer = -1;  // -1: not per layer
  std::string name;
  int32_t rows = 0;
  int32_t cols = 0;
  bool required = true;
};
std::vector<TensorSpec> TensorSpecs(const ModelConfig& config);

// GGUF's tensor with the divisors of the RoPE frequencies (Llama 3.1's scaling), [rotary_dim / 2].
inline constexpr char kRopeFactorsTensor[] = "rope_freqs.weight";

}  // namespace tandem
