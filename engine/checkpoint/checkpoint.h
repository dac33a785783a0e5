// A model file, opened and checked: configuration, tensors by role, tokenizer. Tensor data stays
// mapped while it lives.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/model_config.h"
#include "engine/text/tokenizer_data.h"
#include "kernels/tensor.h"

namespace tandem {

enum class TensorRole : uint8_t {
  kTokenEmbedding,  // [vocab_size, hidden_size]
  kOutputNorm,      // [hidden_size]
  kOutput,          // [vocab_size, hidden_size]; absent where tied
  kAttentionNorm,   // per layer from here on; [hidden_size]
  kQ,
  kK,
  kV,  // [heads * head_dim, hidden_size]
  kQBias,
  kKBias,
  kVBias,
  kQNorm,
  kKNorm,  // [head_dim]
  kO,      // [hidden_size, num_heads * head_dim]
  kOBias,
  kPostAttentionNorm,
  kFfnNorm,
  kGate,
  kUp,    // [ffn_size, hidden_size]
  kDown,  // [hidden_size, ffn_size]
  kPostFfnNorm,
};
std::string_view Name(TensorRole role);

class Checkpoint {
 public:
  virtual ~Checkpoint() = default;
  virtual const ModelConfig& config() const = 0;
  // Whether the file has it; a role that the architecture requires is always there.
  virtual bool Has(TensorRole role, int32_t layer) const = 0;
  // NOT_FOUND names the tensor; shapes and sizes were checked against config when the file was
  // opened. layer is ignored for roles that are not per layer.
  virtual absl::StatusOr<kernels::HostMatrix> Matrix(TensorRole role, int32_t layer) const = 0;
  // F32, or F16 and BF16 converted.
  virtual absl::StatusOr<std::vector<float>> Vector(TensorRole role, int32_t layer) const = 0;
  // Checked: ids are in range, arrays have one entry per token. INVALID_ARGUMENT, also where the
  // file has no tokenizer; UNIMPLEMENTED: a kind of vocabulary that is not supported, by name.
  virtual absl::StatusOr<TokenizerData> Tokenizer() const = 0;
  // 32 hex digits over configuration and every byte of every tensor. Reads the whole file: call it
  // once.
  virtual std::string WeightsFingerprint() const = 0;
};

// A .gguf file, or "random:NAME" (random_checkpoint.h). NOT_FOUND: no such file or name; INVALID_ARGUMENT: it is broken (what, where, the limit);
// UNIMPLEMENTED: an architecture, tensor type or option that is not supported, by name. Allocates
// no more than a small multiple of the file.
absl::StatusOr<std::unique_ptr<Checkpoint>> OpenCheckpoint(const std::string& path);

}  // namespace tandem
