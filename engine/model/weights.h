// The weights of a model on a backend.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/checkpoint.h"
#include "kernels/ops.h"

namespace tandem {

// Owns the device memory that norm.weight points to.
struct NormWeights {
  kernels::Buffer weight;
  kernels::Norm norm;
};

struct LayerWeights {
  NormWeights attention_norm;
  kernels::Weight qkv;  // [(num_heads + 2 num_kv_heads) * head_dim, hidden_size], parts q, k, v
  kernels::Buffer qkv_bias;  // [rows of qkv]; null where the layer has none
  std::optional<NormWeights> q_norm;
  std::optional<NormWeights> k_norm;
  kernels::Weight o;       // [hidden_size, num_heads * head_dim]
  kernels::Buffer o_bias;  // [hidden_size]; null where the layer has none
  std::optional<NormWeights> post_attention_norm;
  NormWeights ffn_norm;
  kernels::Weight gate_up;  // [2 * ffn_size, hidden_size], parts gate, up
  kernels::Weight down;     // [hidden_size, ffn_size]
  std::optional<NormWeights> post_ffn_norm;
};

struct ModelWeights {
  kernels::Weight embedding;  // [vocab_size, hidden_size]
  std::vector<LayerWeights> layers;
  NormWeights output_norm;
  std::optional<kernels::Weight>
      output;  // [vocab_size, hidden_size]; absent where the embedding is used

  const kernels::Weight& OutputMatrix() const { return output.has_value() ? *output : embedding; }
};

// progress: done and total in bytes of matrices in the checkpoint; called with 0 first, then after
// each matrix. May be null. Errors are those of the checkpoint and of ops.
absl::StatusOr<ModelWeights> LoadWeights(
    const Checkpoint& checkpoint, kernels::Ops& ops,
    const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace tandem
